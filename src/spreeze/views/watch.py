"""`spreeze watch`: shows the policy of a run in a window, on a local page, or writes it to a video.

In: the folder of a running or finished run. Out: pictures, in real time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spreeze.config.env_spec import EnvSpec
from spreeze.errors import ConfigError, NotRenderable, RunFailed, RunFolderError, SpreezeError, one_line
from spreeze.host.capture_output import capture_output
from spreeze.host.output_files import require_writable
from spreeze.host.own_files import list_own
from spreeze.policy.file import Policy, load_policy
from spreeze.policy.fit import require_fit
from spreeze.policy.which import Chosen, Which, choose_weights
from spreeze.runs.journal_reader import RunReader
from spreeze.runs.run_folder import read_run_config
from spreeze.views import video
from spreeze.views.rendering import RenderMode, Stage, has_screen, jpeg, open_stage
from spreeze.views.watch_page import WatchPage

MAX_FPS = 30.0  # of the page; further steps are taken, but not drawn


@dataclass(frozen=True)
class WatchRequest:
    """What to show, and how."""

    which: Which = None
    episodes: int | None = None
    seed: int = 0
    record: Path | None = None
    open: bool = False


class PolicySource:
    """Where policies come from: one file, or a running run that publishes newer ones."""

    def __init__(self, path: Path, request: WatchRequest) -> None:
        self._folder = path if path.is_dir() else path.parent.parent
        root = path if path.is_dir() else None  # of a file that the user has named, links are followed
        self._newest: Path | None = None
        if request.which is not None or path.is_file() or not _is_running(path):
            self.chosen = choose_weights(path, request.which)
        else:
            self._newest = path / "weights"
            newest = self._newest_file()
            self.chosen = choose_weights(path) if newest is None else Chosen(newest)
        self._file = self.chosen.file
        self._policy = load_policy(self._file, root)
        # From here on the environment may change the working directory.
        self._folder = self._folder.absolute()
        self._newest = None if self._newest is None else self._newest.absolute()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._folder

    def policy(self) -> Policy:
        """Return the policy of the next episode."""
        while (file := self._newest_file()) is not None and file != self._file:
            try:
                self._policy, self._file = load_policy(file, self._folder), file
            except RunFolderError:
                if os.path.lexists(file):
                    self._file = file  # damaged: the previous one continues to play until there is a newer one
                continue  # deleted meanwhile, because there are newer ones
        return self._policy

    def _newest_file(self) -> Path | None:
        if self._newest is None:
            return None
        with contextlib.suppress(OSError):  # it cannot be read, or is a link
            return max(list_own(self._newest, self._folder, "policy-*.safetensors"), default=None)
        return None


def watch_run(path: Path, request: WatchRequest) -> None:
    """Show the policy of a run."""
    if (request.episodes is not None and request.episodes < 1) or request.seed < 0:
        raise ConfigError(
            f"--episodes must be at least 1 and --seed at least 0, not {request.episodes} and {request.seed}"
        )
    if request.record is not None:
        _require_video(request.record)
    if not path.exists():
        raise RunFolderError(f"there is no run folder or policy file '{path}'")
    source = PolicySource(path, request)
    config = read_run_config(source.folder)
    source.chosen.say_why()
    env = EnvSpec.of(config)
    try:
        if request.record is not None:
            _record(env, source, request, request.record.absolute(), str(request.record))
        elif (stage := _window(env, source)) is not None:
            _show_in_window(stage, config.env, source, request)
        else:
            _show_on_page(_open(env, source), config.env, source, request)
    except SpreezeError:
        raise
    except Exception as error:
        raise RunFailed(f"{config.env} raised {type(error).__name__}: {one_line(error)}") from error


def _require_video(path: Path) -> None:
    if path.suffix.lower() != ".mp4":
        raise ConfigError(f"--record {path} must be an .mp4 file")
    if not video.is_installed():
        raise ConfigError(f"--record needs a package: {video.INSTALL}")
    require_writable(path, "--record")


def _is_running(run: Path) -> bool:
    reader = RunReader(run)
    reader.refresh()
    return reader.state in ("starting", "running")


def _seeds(request: WatchRequest, default_episodes: int | None) -> Iterator[int]:
    rng = np.random.default_rng(request.seed)
    left = request.episodes or default_episodes
    while left is None or left > 0:
        yield int(rng.integers(2**31))
        left = None if left is None else left - 1


# --- window, page, video -----------------------------------------------------------------------------------------


def _record(env: EnvSpec, source: PolicySource, request: WatchRequest, path: Path, shown: str) -> None:
    stage = _open(env, source)
    made = video.record(stage, source.policy(), _seeds(request, 1), path)
    stage.close()
    returns = ", ".join(f"{episode_return:.1f}" for episode_return in made.returns)
    print(f"{shown}: {made.frames} pictures, {made.frames / made.fps:.1f} s, return {returns}")


def _open(env: EnvSpec, source: PolicySource, mode: RenderMode = "rgb_array") -> Stage:
    with capture_output(Path(os.devnull)):
        stage = open_stage(env, mode)
    try:
        require_fit(source.policy().spaces, stage.spaces, env.name, source.folder)
    except SpreezeError:
        stage.close()
        raise
    return stage


def _window(env: EnvSpec, source: PolicySource) -> Stage | None:
    """Return a stage in a window, or None without a screen or if the environment cannot open one."""
    if not has_screen():
        return None
    try:
        return _open(env, source, "human")
    except NotRenderable as error:
        print(f"no window: {error}", file=sys.stderr)
        return None


def _show_in_window(stage: Stage, name: str, source: PolicySource, request: WatchRequest) -> None:
    print("Ctrl-C ends it", flush=True)
    for seed in _seeds(request, None):
        stage.begin(source.policy(), seed)
        for _ in _paced(stage):
            pass  # an environment in a window draws itself at every step
        _print_episode(stage, name)
    stage.close()


def _show_on_page(stage: Stage, name: str, source: PolicySource, request: WatchRequest) -> None:
    with WatchPage(f"Spreeze: {name}") as page:
        print(f"watch it at {page.url}   Ctrl-C ends it", flush=True)
        if request.open:
            webbrowser.open(page.url)
        for seed in _seeds(request, None):
            page.wait_for_browser()  # plays only while a browser shows the page
            stage.begin(source.policy(), seed)
            stage.draw_plainly_if_slow()
            shown_at = 0.0
            for now in _paced(stage):
                if now - shown_at >= 1.0 / MAX_FPS or stage.is_over:
                    shown_at = now
                    page.show(jpeg(video.captioned(stage)))
            _print_episode(stage, name)
    stage.close()


def _paced(stage: Stage) -> Iterator[float]:
    """Play an episode in real time; yield the time at its beginning and after each step."""
    due_at = time.monotonic()
    yield due_at
    while not stage.is_over:
        due_at = max(due_at + 1.0 / stage.fps, time.monotonic() - 0.5)  # after a pause, do not catch up
        time.sleep(max(0.0, due_at - time.monotonic()))  # plays in real time
        stage.step()
        yield time.monotonic()


def _print_episode(stage: Stage, name: str) -> None:
    print(
        f"{name}, version {stage.version}: return {stage.episode_return:.1f} in {stage.episode_steps} steps",
        flush=True,
    )
