"""Weights through shared memory, as the bytes of their files, to measure what going through files costs.

The first version, every eighth and the last get a file too: those are the user's. The memory has room for two
versions. A learner that is killed while it writes leaves the one before as it was; a reader gets a whole version or
none, and nobody waits. A version that is larger than its room is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels import weights
from spreeze.channels.memory import SharedSegment, order_stores
from spreeze.host.files import write_with_folders

FILE_EVERY = 8  # versions: the user has a file every two seconds
_SLOTS = 2
# The version is 0 while one is written. Versions only rise: who reads the same before and after has it whole.
_HEADER = np.dtype([("version", "i8"), ("byte_count", "i8")])


class WeightBlock:
    def __init__(self) -> None:
        self._segment, self._room_bytes = SharedSegment("weight-block"), 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._segment.fd,)

    def allocate(self, room_bytes: int) -> None:
        self._room_bytes = -(-room_bytes // 8) * 8  # numbers of the second header are aligned too
        self._segment.allocate(_SLOTS * (_HEADER.itemsize + self._room_bytes))

    def close(self) -> None:
        self._segment.close()

    def holds(self, version: int) -> bool:
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
        room = self._segment.array(np.uint8, (self._room_bytes,), at + _HEADER.itemsize)
        return self._segment.array(_HEADER, (1,), at), room


class MemoryWeightsChannel(weights.WeightsChannel):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.block = WeightBlock()

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (*super().descriptors, *self.block.descriptors)

    def allocate(self, tensor_bytes: int) -> None:
        self.block.allocate(8 + weights.MAX_HEADER_BYTES + tensor_bytes)

    def close(self) -> None:
        super().close()
        self.block.close()

    def writer(self) -> MemoryWeightsWriter:
        return MemoryWeightsWriter(self.folder, self.open_version(), self.block)

    def reader(self) -> MemoryWeightsReader:
        return MemoryWeightsReader(self.folder, self.open_version(), self.block)


class MemoryWeightsWriter(weights.WeightsWriter):
    def __init__(self, folder: Path, version: NDArray[np.int64], block: WeightBlock) -> None:
        super().__init__(folder, version)
        self._block, self._published, self._is_due = block, 0, False
        self._without_file: tuple[int, bytes] | None = None

    def publish(self, tensors: weights.Tensors, metadata: Mapping[str, str]) -> int:
        """Announce the next version, also where its file was due and cannot be written: that raises OSError."""
        version = int(self._version[0])
        # In an earlier session of the run, versions after the newest file may have been seen that had none.
        version += 1 if not version or self._block.holds(version) else FILE_EVERY
        content = weights.encode_version(tensors, metadata, version)
        self._block.write(version, content)
        order_stores()
        self._version[0] = version
        self._without_file = version, content
        self._is_due |= self._published % FILE_EVERY == 0
        self._published += 1
        if self._is_due:  # still, after a disk that was full: the next version is tried
            self.close()
        return version

    def close(self) -> None:
        """Give the newest version a file, if it has none."""
        if self._without_file is None:
            return
        version, content = self._without_file
        write_with_folders({weights.version_path(self._folder, version): content}, weights.run_of(self._folder))
        self._without_file, self._is_due = None, False
        with contextlib.suppress(OSError):
            for old in sorted(self._folder.glob("policy-*.safetensors"))[: -weights.KEPT_VERSIONS]:
                old.unlink(missing_ok=True)


class MemoryWeightsReader(weights.WeightsReader):
    def __init__(self, folder: Path, version: NDArray[np.int64], block: WeightBlock) -> None:
        super().__init__(folder, version)
        self._block = block

    def load(self, version: int) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        content = self._block.read(version)  # what an earlier session of the run has left is a file
        return super().load(version) if content is None else weights.decode_weights(content)
