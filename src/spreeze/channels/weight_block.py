"""Shared memory with room for two versions of the weights, as bytes of their files: the newest and the one before.

Writers: one, the learner. Readers: any number.
Guaranteed: what is read is whole, and of the version that was asked for. A learner that is killed while it writes
leaves the version before as it was. Nobody waits: of a version that is not there, or no longer, nothing is read.
When it is full: cannot be; a version overwrites the one before the last. One larger than its room is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import SharedSegment, order_stores

_SLOTS = 2
_HEADER = np.dtype(
    [
        # 0 while a version is written. Versions only rise: who reads the same one before and after has it whole.
        ("version", "i8"),
        ("byte_count", "i8"),
    ]
)


class WeightBlock:
    """The memory. Created by the supervisor, sized once the policy is known, opened by each process for itself."""

    def __init__(self) -> None:
        self._segment = SharedSegment("weight-block")
        self._room_bytes = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return (self._segment.fd,)

    def allocate(self, room_bytes: int) -> None:
        """Make room for versions of at most this size; what nobody has written to costs nothing."""
        self._room_bytes = -(-room_bytes // 8) * 8  # numbers of the second header are aligned too
        self._segment.allocate(_SLOTS * (_HEADER.itemsize + self._room_bytes))

    def close(self) -> None:
        """Let go of the descriptor."""
        self._segment.close()

    def holds(self, version: int) -> bool:
        """Say whether this version can be read."""
        return int(self._slot(version)[0]["version"][0]) == version

    def write(self, version: int, content: bytes) -> None:
        """Put a version in the place of the one before the last."""
        header, room = self._slot(version)
        if len(content) > len(room):
            raise ValueError(f"weights of {len(content)} bytes do not fit the {len(room)} bytes that were planned")
        header["version"] = 0
        order_stores()
        room[: len(content)] = np.frombuffer(content, np.uint8)
        header["byte_count"] = len(content)
        order_stores()
        header["version"] = version

    def read(self, version: int) -> bytes | None:
        """Return the bytes of a version; None if it is not there, or was overwritten while it was copied."""
        header, room = self._slot(version)
        if int(header["version"][0]) != version:
            return None
        order_stores()
        content = room[: int(header["byte_count"][0])].tobytes()
        order_stores()
        return content if int(header["version"][0]) == version else None

    def _slot(self, version: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        at = version % _SLOTS * (_HEADER.itemsize + self._room_bytes)
        header = self._segment.array(_HEADER, (1,), at)
        return header, self._segment.array(np.uint8, (self._room_bytes,), at + _HEADER.itemsize)
