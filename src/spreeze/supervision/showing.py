"""What shows a run beside the terminal: which guests are wanted, and the videos.

In: the config, measurements and evaluations. Out: a dashboard with a viewer, where they are wanted and installed, and
videos, each made by a process of its own that gives way to the training.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from spreeze.channels import Channels
from spreeze.channels.brief import ChildSpec, Film
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import Spaces
from spreeze.channels.weights import WeightsChannel, kept_weights, version_path
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.runs.records import Evaluation, Measurement
from spreeze.supervision import launch
from spreeze.supervision.launch import Child
from spreeze.supervision.optional_processes import how_it_ended
from spreeze.supervision.workers import Crew

NO_DASHBOARD = 'there is no dashboard: it needs NiceGUI, pip install "spreeze[dashboard]"'
NO_VIDEO = 'there is no video: it needs PyAV, pip install "spreeze[video]"'
# Beside a training that takes all cores, a picture may take a second; nobody waits for it.
FILM_LIMIT_S = 600.0
# At the end somebody does: a video ends early after the one, and its process is taken to hang after the other.
LAST_FILM_WORK_S, LAST_FILM_LIMIT_S = 45.0, 60.0
POLL_S = 0.02


class Tell(Protocol):
    """Notes an event of the run."""

    def __call__(self, kind: str, reason: str, **details: object) -> None:
        """Write it to events.jsonl; show it too if it is a warning."""
        ...


class Showing:
    """What is started, when, for people to see a run."""

    def __init__(self, crew: Crew, config: Config, recorder: Recorder, tell: Tell) -> None:
        self._crew, self._config, self._recorder, self._tell = crew, config, recorder, tell
        self._waits_for_dashboard = config.watching.dashboard
        self._waits_for_view = config.watching.dashboard and config.watching.view

    def measured(self, measurement: Measurement) -> None:
        """Start what is due: after the first figures, so that nothing slows the start of the training."""
        if self._waits_for_dashboard:
            self._waits_for_dashboard = False
            if not all(map(_is_there, ("nicegui", "spreeze.views.dashboard.process"))):
                self._tell("dashboard", NO_DASHBOARD)
                self._waits_for_view = False  # nobody would see it
            else:
                self._crew.add_guest("dashboard")
        if self._waits_for_view and measurement.updates > 0:
            self._waits_for_view = False
            self._crew.add_guest("viewer")

    def evaluated(self, evaluation: Evaluation) -> None:
        """Order a video of what the evaluator has kept for one: each Nth version, where that is wanted."""
        kept = version_path(kept_weights(self._recorder.run_dir), evaluation.version)
        if self._config.watching.video_every and kept.exists():
            self._recorder.order(kept, f"eval-{evaluation.version:08d}.mp4")

    def turn(self) -> None:
        """Go on with videos."""
        self._recorder.turn()

    def finish(self) -> None:
        """Record the best policy, and wait for all videos."""
        best = self._recorder.run_dir / "best" / "policy.safetensors"
        self._recorder.wait()
        if self._config.watching.video and best.exists():
            self._recorder.order(best, "best.mp4", LAST_FILM_WORK_S)
            self._recorder.wait()

    def close(self) -> None:
        """Give up what is not ready."""
        self._recorder.close()


class Recorder:
    """Makes videos, one after the other. Nobody waits for them before the end of the run."""

    def __init__(
        self, env: EnvSpec, config: Config, spaces: Spaces, run_dir: Path, tell: Tell, note: Callable[[str], None]
    ) -> None:
        self.run_dir = run_dir.absolute()
        self._videos, self._shown_dir = self.run_dir / "videos", run_dir / "videos"
        self._env, self._config, self._spaces, self._tell, self._note = env, config, spaces, tell, note
        self._waiting: Film | None = None
        self._at_work: tuple[Film, Child, Channels, float] | None = None
        self._is_able: bool | None = None
        self._has_said_so = False
        self._has_warned = False

    def order(self, weights: Path, name: str, max_work_s: float = FILM_LIMIT_S) -> None:
        """Want a video. One that still waits for its turn is left out: training makes more than there is time for."""
        film = Film(weights, self._videos / name, self._config.seed, max_work_s)
        if self._is_able is None:
            self._is_able = _is_there("av")
            if not self._is_able:
                self._tell("video", NO_VIDEO)
        if not self._is_able:
            _discard(film)
            return
        if self._waiting is not None:
            self._tell("video", f"{self._waiting.target.name} is left out: the one before it takes longer")
            _discard(self._waiting)
        self._waiting = film

    def turn(self) -> None:
        """Let go of what is ready, and begin with the next."""
        if self._at_work is not None:
            film, child, _, deadline = self._at_work
            if child.process.poll() is None and time.monotonic() < deadline:
                return
            self._let_go(film, child)
        if self._waiting is not None:
            film, self._waiting = self._waiting, None
            self._begin(film)

    def wait(self) -> None:
        """Wait for all that was ordered, though not for ever."""
        self.turn()
        if self._at_work is not None and not self._has_said_so:
            self._has_said_so = True
            self._note("Recording a video; Ctrl-C leaves it out")
        while self._at_work is not None:
            film, child, channels, deadline = self._at_work
            self._at_work = film, child, channels, min(deadline, time.monotonic() + LAST_FILM_LIMIT_S)
            time.sleep(POLL_S)  # for another process's work
            self.turn()

    def close(self) -> None:
        """Give up what is not ready."""
        if self._waiting is not None:
            _discard(self._waiting)
            self._waiting = None
        self._end_work()
        shutil.rmtree(kept_weights(self.run_dir), ignore_errors=True)  # an evaluation may have come too late

    def _end_work(self) -> None:
        if self._at_work is None:
            return
        film, child, channels, _ = self._at_work
        child.kill()
        child.close()
        channels.close()
        _discard(film)
        for half in self._videos.glob(f".{film.target.name}.*"):
            with contextlib.suppress(OSError):
                half.unlink()
        self._at_work = None

    def _begin(self, film: Film) -> None:
        channels: Channels | None = None
        try:
            # Channels of its own, of which it needs none: those of the run may be closed by now.
            channels = Channels((), WeightsChannel(self.run_dir / "weights"), MetricsChannel(), ControlChannel())
            child = launch.start("recorder", 0, 0, channels, self.run_dir / "logs" / "recorder.log", 1)
        except OSError as error:  # no descriptor, process or disk is left: the run needs them more
            if channels is not None:
                channels.close()
            _discard(film)
            self._warn(f"{film.target.name} cannot be recorded: {error}")
            return
        self._at_work = film, child, channels, time.monotonic() + FILM_LIMIT_S
        child.send_spec(
            ChildSpec(
                index=0,
                slot=0,
                config=self._config,
                env=self._env,
                spaces=self._spaces,
                run_dir=self.run_dir,
                started_at=time.monotonic(),
                channels=channels,
                film=film,
            )
        )

    def _let_go(self, film: Film, child: Child) -> None:
        messages = child.messages.read()
        failure: str | None = None
        if child.process.poll() is None:
            failure = "it took too long"
        elif child.process.returncode != 0:
            errors = [message["reason"] for message in messages if message["kind"] == "error"]
            failure = errors[0] if errors else how_it_ended(child)
        self._end_work()
        for message in messages:
            if message.pop("kind") == "event":
                self._tell(message.pop("event"), message.pop("reason"), **message)
        if failure is not None:
            self._warn(f"{film.target.name} could not be recorded: {failure}")
        elif film.target.exists():
            self._note(f"  video {self._shown_dir / film.target.name}")

    def _warn(self, reason: str) -> None:
        """Warn of the first video that fails: the next ones mostly do for the same reason, and are only noted."""
        self._tell("video" if self._has_warned else "warning", reason)
        self._has_warned = True


def _discard(film: Film) -> None:
    if film.weights.parent == kept_weights(film.target.parent.parent):  # for this video alone
        with contextlib.suppress(OSError):  # gone already, or on a disk that is read-only now
            film.weights.unlink()


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False
