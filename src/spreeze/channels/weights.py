"""Weights, from the learner to everyone who plays: one safetensors file for each version.

Writers: one, the learner. Before it begins, the supervisor sets the version number of a run that is resumed.
Readers: any number: samplers, evaluator, viewer, the user.
Guaranteed: a file is complete once it has its name, and a version number in shared memory never names a file
that is not there yet. Versions rise; a reader may skip some. A file carries a checksum: one that was damaged, deleted
or cannot be opened is skipped, and its reader continues with what it has until the next version.
When there are many: all but the newest few are deleted. A reader that is too late takes the newest instead.
When the disk is full: the version is not published, and the next one gets its number.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import MakeSegment, SharedSegment
from spreeze.host.files import open_regular, read_bounded, write_with_folders
from spreeze.host.json_text import json_text
from spreeze.host.own_files import list_own, remove_own

Tensors = Mapping[str, NDArray[np.float32]]

KEPT_VERSIONS = 8  # at four versions per second, a reader has two seconds to open the newest one
MAX_FILE_BYTES = 1 << 30  # a network of three layers of 8,192 has half of that
MAX_HEADER_BYTES = 1 << 20  # names, shapes and metadata: a few KB
_CHECKSUM = "checksum"  # in the metadata, of all else
# What safetensors calls the types of NumPy.
_TYPES = {
    **{f"<{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "fiu" for size in (2, 4, 8)},
    **{"|i1": "I8", "|u1": "U8", "|b1": "BOOL"},
}


@dataclass(frozen=True)
class WeightsFile:
    """One version of the weights, as read from its file."""

    tensors: dict[str, NDArray[np.float32]]
    metadata: dict[str, str]
    version: int
    published_at: float
    """`time.monotonic()` at publication: how stale the policy is, on the clock that all processes share."""


class WeightsChannel:
    """Where versions are published. Created by the supervisor and sent to all processes."""

    def __init__(self, folder: Path, make_segment: MakeSegment = SharedSegment) -> None:
        self.folder = folder
        self._segment = make_segment("weights", 8)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return self._segment.descriptors

    def allocate(self, tensor_bytes: int) -> None:
        """Make room for versions whose tensors have at most this size; files need none."""

    def close(self) -> None:
        """Let go of the descriptor."""
        self._segment.close()

    def resume_from_newest(self) -> None:
        """Announce the newest version that an earlier session of the run has left."""
        self.open_version()[0] = max(map(_number_of, _versions_in(self.folder)), default=0)

    def go_back_to(self, version: int) -> None:
        """Continue with the number after this one, and delete later versions. 0: there is none."""
        with contextlib.suppress(OSError):
            for path in _versions_in(self.folder):
                if _number_of(path) > version:
                    remove_own(path, run_of(self.folder))
        self.open_version()[0] = max(0, version)

    def take_over(self, version: int, content: bytes) -> None:
        """Announce a version that the learner of another machine has published; content: of its file.

        Raises OSError where it cannot be written.
        """
        write_with_folders({version_path(self.folder, version): content}, run_of(self.folder))
        self.open_version()[0] = version
        with contextlib.suppress(OSError):  # versions may have been skipped, or the learner has gone back to one
            for path in _versions_in(self.folder):
                if not version - KEPT_VERSIONS < _number_of(path) <= version:
                    remove_own(path, run_of(self.folder))

    def writer(self) -> WeightsWriter:
        """Open the learner's end."""
        return WeightsWriter(self.folder, self.open_version())

    def reader(self) -> WeightsReader:
        """Open a reader's end."""
        return WeightsReader(self.folder, self.open_version())

    def open_version(self) -> NDArray[np.int64]:
        """Open the number of the newest version, which all processes share."""
        return self._segment.array(np.int64, (1,))


class WeightsWriter:
    """Publishes versions 1, 2, 3, ... Deletes what a writer that was killed had begun to write."""

    def __init__(self, folder: Path, version: NDArray[np.int64]) -> None:
        self._folder, self._run, self._version = folder, run_of(folder), version
        with contextlib.suppress(OSError):
            for left in list_own(folder, self._run, ".policy-*"):
                remove_own(left, self._run)

    def publish(self, tensors: Tensors, metadata: Mapping[str, str]) -> int:
        """Write the next version and announce it; return its number. A folder that was deleted is made again.

        Raises OSError where it cannot be written: then nothing is announced, and no part of a file is left.
        """
        version = int(self._version[0]) + 1
        content = encode_version(tensors, metadata, version)
        write_with_folders({version_path(self._folder, version): content}, self._run)
        self._version[0] = version
        with contextlib.suppress(OSError):  # the new one is there, which is what counts
            remove_own(version_path(self._folder, version - KEPT_VERSIONS), self._run)
        return version

    def close(self) -> None:
        """Nothing is left to do: every version has its file."""


class WeightsReader:
    """Loads a version when there is a newer one than last time."""

    def __init__(self, folder: Path, version: NDArray[np.int64]) -> None:
        self._folder, self._run, self._version = folder, run_of(folder), version
        self._looked_at = 0
        self._shapes: dict[str, tuple[int, ...]] = {}

    def newest(self) -> WeightsFile | None:
        """Return the newest version if it has not been returned yet. Without one it costs one memory read.

        None also where it cannot be used: what was returned before stays good until the next version is there.
        """
        while (version := int(self._version[0])) != self._looked_at:
            found = self._read(version)
            if found is None and version != int(self._version[0]):
                continue  # it was deleted because newer ones are there: take the newest
            self._looked_at = version
            return found
        return None

    def _read(self, version: int) -> WeightsFile | None:
        try:
            tensors, metadata = self.load(version)
            published_at = float(metadata["published_at"])
        except (OSError, ValueError, KeyError):
            return None
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != (self._shapes or shapes) or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            return None
        self._shapes = shapes
        return WeightsFile(tensors, metadata, version, published_at)

    def load(self, version: int) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Load tensors and metadata of a version; raises as `read_weights` does."""
        path = version_path(self._folder, version)
        return read_weights(path, must_have_checksum=True, root=self._run)


def run_of(folder: Path) -> Path:
    """Return the run folder of a folder of versions, its `weights`."""
    return folder.parent


def _versions_in(folder: Path) -> list[Path]:
    return list_own(folder, run_of(folder), "policy-*.safetensors")


def version_path(folder: Path, version: int) -> Path:
    """Return the file of a version."""
    return folder / f"policy-{version:08d}.safetensors"


def _number_of(path: Path) -> int:
    text = path.stem.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def kept_weights(run_dir: Path) -> Path:
    """Return where versions are kept that a video is wanted of: weights/ may lose them before it is made."""
    return run_dir / "videos" / ".weights"


def write_weights(
    path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str], root: Path | None = None
) -> None:
    """Write a weights file aside and rename it, so that no reader ever sees half of one. Makes its folder.

    root: the run folder that it lies in, of which no link is followed.
    """
    write_with_folders({path: _pieces(tensors, metadata)}, path.parent if root is None else root)


def encode_version(tensors: Tensors, metadata: Mapping[str, str], version: int) -> bytes:
    """Return what the file of a version holds: its number and the moment too."""
    return encode_weights(tensors, {**metadata, "version": str(version), "published_at": str(time.monotonic())})


def encode_weights(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return what a weights file holds."""
    return b"".join(_pieces(tensors, metadata))


def _pieces(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Return what a weights file holds: its header, and the memory of each tensor.

    The library's `save` copies all tensors three times. For the state of a learner that has gigabytes this took most
    of the time of a checkpoint.
    """
    # The buffer is written as it lies: a transposed view would be stored with its elements mixed up.
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    checksum = _checksum(whole, metadata)
    # As the library orders them: the widest type first, so that all tensors are aligned.
    order = sorted(whole, key=lambda name: (-whole[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": {**metadata, _CHECKSUM: checksum}}
    end = 0
    for name in order:
        tensor, begin = whole[name], end
        end += tensor.nbytes
        header[name] = {"dtype": _TYPES[tensor.dtype.str], "shape": tensor.shape, "data_offsets": (begin, end)}
    text = json_text(header, is_compact=True).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *(_memory_of(whole[name]) for name in order)]


def _memory_of(tensor: NDArray[Any]) -> memoryview:
    return tensor.reshape(-1).view(np.uint8).data


def read_weights(
    path: Path, most_bytes: int = MAX_FILE_BYTES, must_have_checksum: bool = False, root: Path | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read a weights file: its tensors and its metadata. No code of the file is run.

    root: the run folder that it lies in, of which no link is followed; None for a file that the user has named.
    Raises OSError where it cannot be read or has more than most_bytes, ValueError where it holds something else.
    """
    # Not mapped into memory: a file that somebody cuts meanwhile would end this process.
    content = read_bounded(path, most_bytes, root)
    tensors, metadata = _decode(content)
    checksum = metadata.pop(_CHECKSUM, None)
    if (checksum is None and must_have_checksum) or checksum not in (None, _checksum(tensors, metadata)):
        raise ValueError("its checksum differs")
    return tensors, metadata


def read_metadata(path: Path, root: Path | None) -> dict[str, str]:
    """Read the metadata of a weights file alone: not its tensors, and so unchecked; root: as of `read_weights`.

    Raises OSError where it cannot be read, ValueError where it holds something else.
    """
    with open_regular(path, root) as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if header_bytes > MAX_HEADER_BYTES:
            raise ValueError("its header is longer than it may be")
        header = file.read(header_bytes)
    try:
        return {str(name): str(text) for name, text in json.loads(header)["__metadata__"].items()}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise ValueError("it has no metadata") from None


def decode_weights(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return tensors and metadata of bytes that nobody but the learner can have changed: unlike those of a file."""
    tensors, metadata = _decode(content)
    del metadata[_CHECKSUM]
    return tensors, metadata


def _decode(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    from safetensors.numpy import load

    header_bytes = int.from_bytes(content[:8], "little")
    if header_bytes > min(MAX_HEADER_BYTES, len(content) - 8):
        raise ValueError("its header is longer than it may be")
    try:
        # It checks that shapes, offsets and the length of the file agree; what it makes is as large as the file.
        tensors = load(content)
        return tensors, dict(json.loads(content[8 : 8 + header_bytes]).get("__metadata__") or {})
    except Exception as error:  # somebody else's library about somebody else's file
        raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None


def _checksum(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    checksum = zlib.crc32(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        checksum = zlib.crc32(f"{name} {tensor.dtype.str} {tensor.shape}".encode(), checksum)
        checksum = zlib.crc32(_memory_of(np.ascontiguousarray(tensor)), checksum)
    return f"{checksum:08x}"
