"""Frames: the newest picture of the policy in its environment, in shared memory.

Writers: one, the viewer. Readers: any number; the dashboard is one.
Guaranteed: what is read is whole, and never older than what was read before. A frame that is overwritten before it
was read is lost, which is intended: only the newest counts.
When it is full: cannot be; a frame overwrites the one before. One that is larger than its room is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment, order_stores

MAX_FRAME_BYTES = 1 << 20  # a JPEG of 640 x 480 has about 30 KB

_HEADER = np.dtype(
    [
        # A seqlock: odd while a frame is written, twice the number of frames otherwise.
        ("sequence", "i8"),
        ("byte_count", "i8"),
        ("version", "i8"),
        ("episode_return", "f8"),
        ("episode_steps", "i8"),
        ("published_at", "f8"),
    ]
)


class Frame(NamedTuple):
    """A picture, and what it shows."""

    number: int
    """Counts from 1."""
    jpeg: bytes
    version: int
    """Of the weights that play."""
    episode_return: float
    """So far."""
    episode_steps: int
    published_at: float
    """`time.monotonic()` when the weights were published."""


class FramesChannel:
    """Room for one frame."""

    def __init__(self, make_segment: MakeSegment = SharedSegment) -> None:
        self._segment = make_segment("frames", _HEADER.itemsize + MAX_FRAME_BYTES)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def close(self) -> None:
        """Close the descriptor."""
        self._segment.close()

    def writer(self) -> FrameWriter:
        """Open the viewer's end."""
        return FrameWriter(*self._arrays())

    def reader(self) -> FrameReader:
        """Open a reader's end."""
        return FrameReader(*self._arrays())

    def _arrays(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        header = self._segment.array(_HEADER, (1,))
        return header, self._segment.array(np.uint8, (MAX_FRAME_BYTES,), _HEADER.itemsize)


class FrameWriter:
    """The viewer's end. Makes the sequence odd first and even last."""

    def __init__(self, header: NDArray[Any], room: NDArray[np.uint8]) -> None:
        self._header, self._room = header, room

    def write(
        self, jpeg: bytes, version: int, episode_return: float, episode_steps: int, published_at: float
    ) -> bool:
        """Replace the frame; False if it is too large."""
        if len(jpeg) > len(self._room):
            return False
        sequence = int(self._header["sequence"][0])
        sequence += sequence % 2  # a viewer that was killed may have left it odd
        self._header["sequence"] = sequence + 1
        order_stores()
        self._room[: len(jpeg)] = np.frombuffer(jpeg, np.uint8)
        self._header["byte_count"] = len(jpeg)
        self._header["version"] = version
        self._header["episode_return"] = episode_return
        self._header["episode_steps"] = episode_steps
        self._header["published_at"] = published_at
        order_stores()
        self._header["sequence"] = sequence + 2
        return True


class FrameReader:
    """A reader's end. Never waits: while a frame is written, there is none."""

    def __init__(self, header: NDArray[Any], room: NDArray[np.uint8]) -> None:
        self._header, self._room = header, room
        self._seen = 0

    def newest(self) -> Frame | None:
        """Return the frame if it was not read before and is whole."""
        before = int(self._header["sequence"][0])
        if before == self._seen or before % 2:
            return None
        order_stores()
        header = self._header[0].copy()
        jpeg = self._room[: int(header["byte_count"])].tobytes()
        order_stores()
        if int(self._header["sequence"][0]) != before:
            return None
        self._seen = before
        return Frame(
            before // 2,
            jpeg,
            int(header["version"]),
            float(header["episode_return"]),
            int(header["episode_steps"]),
            float(header["published_at"]),
        )
