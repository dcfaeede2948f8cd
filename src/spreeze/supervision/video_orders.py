"""The supervisor's side of videos: orders them, each recorded by a process of its own (`views/recorder.py`).

In: weights files. Out: videos in the run folder's `videos/`, one after the other.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from spreeze.channels import Channels
from spreeze.channels.brief import Brief, VideoOrder
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import Spaces
from spreeze.channels.weights import WeightsChannel, kept_weights
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.host.installed import is_installed
from spreeze.host.own_files import is_own_file, list_own, remove_own, remove_own_folder
from spreeze.supervision import launch
from spreeze.supervision.launch import Child
from spreeze.supervision.run_log import RunLog

NO_VIDEO = 'there is no video: it needs PyAV, pip install "spreeze[video]"'
# While a training takes all cores, a picture may take a second; nothing waits for it.
VIDEO_LIMIT_S = 600.0
# At the end the user does: a video ends early after the one, and its process is taken to hang after the other.
LAST_VIDEO_WORK_S, LAST_VIDEO_LIMIT_S = 45.0, 60.0
POLL_S = 0.02


class VideoOrders:
    """Has videos made, one after the other. Nothing waits for them before the end of the run."""

    def __init__(self, env: EnvSpec, config: Config, spaces: Spaces, run_dir: Path, log: RunLog) -> None:
        self.run_dir = run_dir.absolute()
        self._videos, self._shown_dir = self.run_dir / "videos", run_dir / "videos"
        self._env, self._config, self._spaces, self._log = env, config, spaces, log
        self._waiting: VideoOrder | None = None
        self._at_work: tuple[VideoOrder, Child, Channels, float] | None = None
        self._is_able: bool | None = None
        self._has_shown_wait = False
        self._has_warned = False

    def order(self, weights: Path, name: str, is_last: bool = False) -> None:
        """Order a video. One that still waits for its turn is left out: a training may order too many.

        is_last: whether the run has ended, and only waits for this.
        """
        max_work_s = LAST_VIDEO_WORK_S if is_last else VIDEO_LIMIT_S
        order = VideoOrder(weights, self._videos / name, self._config.seed, max_work_s, is_awaited=is_last)
        if self._is_able is None:
            self._is_able = is_installed("av")
            if not self._is_able:
                self._log.record_event("video", NO_VIDEO)
        if not self._is_able:
            _discard(order)
            return
        if self._waiting is not None:
            self._log.record_event(
                "video", f"{self._waiting.target.name} is left out: the one before it takes longer"
            )
            _discard(self._waiting)
        self._waiting = order

    def turn(self) -> None:
        """Let go of what is ready, and begin with the next."""
        if self._at_work is not None:
            order, child, _, deadline = self._at_work
            has_ended = child.process.poll() is not None  # asked first: its last words are there then
            self._record_events(child)
            if not has_ended and time.monotonic() < deadline:
                return
            self._let_go(order, child)
        if self._waiting is not None:
            order, self._waiting = self._waiting, None
            self._begin(order)

    def wait(self) -> None:
        """Wait for all that was ordered, at most LAST_VIDEO_LIMIT_S for each."""
        self.turn()
        if self._at_work is not None and not self._has_shown_wait:
            self._has_shown_wait = True
            self._log.display.note(
                f"Recording a video, for at most {LAST_VIDEO_LIMIT_S:.0f} s; Ctrl-C or --no-video leaves it out"
            )
        while self._at_work is not None:
            order, child, channels, deadline = self._at_work
            self._at_work = order, child, channels, min(deadline, time.monotonic() + LAST_VIDEO_LIMIT_S)
            time.sleep(POLL_S)  # for another process's work
            self.turn()

    def close(self) -> None:
        """Give up what is not ready."""
        if self._waiting is not None:
            _discard(self._waiting)
            self._waiting = None
        self._end_work()
        remove_own_folder(kept_weights(self.run_dir), self.run_dir)  # an evaluation may have come too late

    def _end_work(self) -> None:
        if self._at_work is None:
            return
        order, child, channels, _ = self._at_work
        child.kill()
        child.close()
        channels.close()
        _discard(order)
        with contextlib.suppress(OSError):
            for half in list_own(self._videos, self.run_dir, f".{order.target.name}.*"):
                remove_own(half, self.run_dir)
        self._at_work = None

    def _begin(self, order: VideoOrder) -> None:
        channels: Channels | None = None
        try:
            # Channels of its own, of which it needs none: those of the run may be closed by now.
            channels = Channels((), WeightsChannel(self.run_dir / "weights"), MetricsChannel(), ControlChannel())
            child = launch.start("recorder", 0, 0, channels, self.run_dir / "logs" / "recorder.log", 1)
        except OSError as error:  # no descriptor, process or disk is left: the run needs them more
            if channels is not None:
                channels.close()
            _discard(order)
            self._warn(f"{order.target.name} cannot be recorded: {error}")
            return
        self._at_work = order, child, channels, time.monotonic() + VIDEO_LIMIT_S
        child.send_brief(
            Brief(
                index=0,
                slot=0,
                config=self._config,
                env=self._env,
                spaces=self._spaces,
                run_dir=self.run_dir,
                started_at=time.monotonic(),
                channels=channels,
                video=order,
            )
        )

    def _let_go(self, order: VideoOrder, child: Child) -> None:
        failure: str | None = None
        if child.process.poll() is None:
            failure = "it took too long"
        elif child.process.returncode != 0:
            failure = child.raised.reason if child.raised is not None else child.describe_exit()
        self._end_work()
        if failure is not None:
            self._warn(f"{order.target.name} could not be recorded: {failure}")
        elif is_own_file(order.target, self.run_dir):
            self._log.display.note(f"  video {self._shown_dir / order.target.name}")

    def _record_events(self, child: Child) -> None:
        for _, message in child.receive():
            if message.pop("kind") == "event":
                self._log.record_event(message.pop("event"), message.pop("reason"), **message)

    def _warn(self, reason: str) -> None:
        """Warn of the first video that fails: the next ones mostly do for the same reason, and are only events."""
        self._log.record_event("video" if self._has_warned else "warning", reason)
        self._has_warned = True


def _discard(order: VideoOrder) -> None:
    if order.weights.parent == kept_weights(order.target.parent.parent):  # for this video alone
        with contextlib.suppress(OSError):  # gone already, or on a disk that is read-only now
            remove_own(order.weights, order.target.parent.parent)
