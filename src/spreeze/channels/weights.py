"""Weights, from the learner to everyone who plays: one safetensors file for each version.

Writers: one, the learner. Readers: any number: samplers, evaluator, viewer, the user.
Guaranteed: a file is complete once it has its name, and a version number in shared memory never names a file
that is not there yet. Versions rise; a reader may skip some.
When there are many: all but the newest few are deleted. A reader that is too late takes the newest instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.memory import SharedSegment

Tensors = Mapping[str, NDArray[np.float32]]

KEPT_VERSIONS = 8  # at four versions a second, a reader has two seconds to open the one it was told of


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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._segment = SharedSegment("weights", 8)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return (self._segment.fd,)

    def close(self) -> None:
        """Let go of the descriptor."""
        self._segment.close()

    def go_on_from_newest(self) -> None:
        """Announce the newest version that an earlier sitting of the run has left."""
        versions = [int(path.stem.rpartition("-")[2]) for path in self.folder.glob("policy-*.safetensors")]
        self._segment.array(np.int64, (1,))[0] = max(versions, default=0)

    def writer(self) -> WeightsWriter:
        """Open the learner's end."""
        return WeightsWriter(self.folder, self._segment.array(np.int64, (1,)))

    def reader(self) -> WeightsReader:
        """Open a reader's end."""
        return WeightsReader(self.folder, self._segment.array(np.int64, (1,)))


class WeightsWriter:
    """Publishes versions 1, 2, 3, ..."""

    def __init__(self, folder: Path, version: NDArray[np.int64]) -> None:
        self._folder, self._version = folder, version

    def publish(self, tensors: Tensors, metadata: Mapping[str, str]) -> int:
        """Write the next version and announce it; return its number."""
        version = int(self._version[0]) + 1
        about = {**metadata, "version": str(version), "published_at": str(time.monotonic())}
        write_weights(version_path(self._folder, version), tensors, about)
        self._version[0] = version
        version_path(self._folder, version - KEPT_VERSIONS).unlink(missing_ok=True)
        return version


class WeightsReader:
    """Loads a version when there is a newer one than last time."""

    def __init__(self, folder: Path, version: NDArray[np.int64]) -> None:
        self._folder, self._version = folder, version
        self._loaded = 0

    def newest(self) -> WeightsFile | None:
        """Return the newest version if it has not been returned yet. Without one it costs one memory read."""
        while (version := int(self._version[0])) != self._loaded:
            try:
                tensors, metadata = read_weights(version_path(self._folder, version))
            except FileNotFoundError:
                if version == int(self._version[0]):
                    raise
                continue  # it was deleted because newer ones are there: take the newest
            self._loaded = version
            return WeightsFile(tensors, metadata, version, float(metadata["published_at"]))
        return None


def version_path(folder: Path, version: int) -> Path:
    """Return the file of a version."""
    return folder / f"policy-{version:08d}.safetensors"


def kept_weights(run_dir: Path) -> Path:
    """Return where versions are kept that a video is wanted of: weights/ may lose them before it is made."""
    return run_dir / "videos" / ".weights"


def write_weights(path: Path, tensors: Tensors, metadata: Mapping[str, str]) -> None:
    """Write a weights file aside and rename it, so that no reader ever sees half of one."""
    from safetensors.numpy import save_file

    # safetensors writes the buffer as it lies: a transposed view would be stored with its elements mixed up.
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(whole, aside, metadata=dict(metadata))
    aside.replace(path)


def read_weights(path: Path) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """Read a weights file: its tensors and its metadata. No code of the file is run."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return tensors, file.metadata() or {}
