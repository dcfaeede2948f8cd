"""Writes episodes as a video: H.264 in an mp4, in real time, with the return so far in a corner.

Needs PyAV, which comes with the extra "video".
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from spreeze.host.files import aside_of
from spreeze.host.own_files import create_own, remove_own, replace_own
from spreeze.policy.file import Policy
from spreeze.views.rendering import Picture, Stage

INSTALL = 'PyAV is not installed: pip install "spreeze[video]"'
MAX_VIDEO_S = 60.0  # of one episode: environments without a time limit would never end
CODEC, PIXELS = "h264", "yuv420p"  # formats that browsers play


def is_installed() -> bool:
    """Return whether videos can be written."""
    return importlib.util.find_spec("av") is not None


@dataclass(frozen=True)
class Recording:
    """What a video shows."""

    path: Path
    frames: int
    """Of each episode, its first picture and one after each step."""
    fps: float
    returns: tuple[float, ...]


class VideoWriter:
    """A video that is being written: to a temporary file, renamed at the end, so that none is seen incomplete."""

    def __init__(self, path: Path, fps: float, root: Path | None = None) -> None:
        """root: the run folder that it is made in, of which no link is followed."""
        import av  # only here: it is an extra

        self._path, self._aside, self._root = path, aside_of(path), path.parent if root is None else root
        self._file = os.fdopen(create_own(self._aside, self._root), "wb")
        self._container: Any = av.open(self._file, "w", format="mp4")  # a file, because FFmpeg would follow a link
        self._rate = Fraction(fps).limit_denominator(1000)
        self._stream: Any = None
        self._frame: Any = av.VideoFrame
        self.frames = 0

    def add(self, picture: Picture) -> None:
        """Add the next picture, of the same size as the first."""
        # The codec halves the colours' resolution, which takes even sides: an odd one loses its last pixels.
        picture = np.ascontiguousarray(picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2])
        if self._stream is None:
            self._stream = self._container.add_stream(CODEC, rate=self._rate)
            self._stream.height, self._stream.width = picture.shape[:2]
            self._stream.pix_fmt = PIXELS
            self._stream.options = {"preset": "veryfast", "crf": "23"}
            self._stream.thread_count = 1  # training runs at the same time
        frame = self._frame.from_ndarray(picture, format="rgb24")
        frame.pts, frame.time_base = self.frames, 1 / self._rate
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._stream is not None:
                self._container.mux(self._stream.encode())  # what the codec still holds
            self._container.close()
            self._file.close()
            if kind is None and self._stream is not None:
                replace_own(self._aside, self._path, self._root)
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(FileNotFoundError):
                remove_own(self._aside, self._root)


def record(
    stage: Stage,
    policy: Policy,
    seeds: Iterable[int],
    path: Path,
    beat: Callable[[], None] = lambda: None,
    max_work_s: float = float("inf"),
    root: Path | None = None,
) -> Recording:
    """Play an episode for each seed and write them to one video, at most MAX_VIDEO_S of each.

    max_work_s: the video ends early when recording has taken this long. root: the run folder that it is made in.
    """
    deadline = time.monotonic() + max_work_s
    returns = []
    with VideoWriter(path, stage.fps, root) as video:
        for seed in seeds:
            stage.begin(policy, seed)
            if not video.frames:
                stage.draw_plainly_if_slow()
            video.add(captioned(stage))
            while not stage.is_over and stage.episode_steps < MAX_VIDEO_S * stage.fps:
                beat()
                if time.monotonic() > deadline:
                    break
                stage.step()
                video.add(captioned(stage))
            returns.append(stage.episode_return)
    return Recording(path, video.frames, stage.fps, tuple(returns))


def captioned(stage: Stage) -> Picture:
    """Return the stage's picture with return, step and version in a corner."""
    image = Image.fromarray(stage.picture())
    draw = ImageDraw.Draw(image)
    text = f"return {stage.episode_return:.1f}   step {stage.episode_steps}   version {stage.version}"
    font = ImageFont.load_default()
    left, top, right, bottom = draw.textbbox((6, 5), text, font=font)
    draw.rectangle((left - 4, top - 3, right + 4, bottom + 3), fill=(20, 20, 20))
    draw.text((6, 5), text, fill=(255, 255, 255), font=font)
    return np.asarray(image)
