"""Saves what a learner holds while it goes on learning, and brings it back.

A checkpoint is ordered by its number. The learner's turn starts it: the state is copied behind the updates that are
under way, and a thread writes it, then the rows of the replay that are new since the last time. When all is on the
disk the learner reports it, and whoever ordered the checkpoint makes it valid (`checkpoint`). Nobody waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.channels.weights import read_weights, write_weights
from spreeze.config import LearnerRole
from spreeze.errors import CheckpointError
from spreeze.host.files import reason_of
from spreeze.host.hardware import usable_cores
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.replay import Replay
from spreeze.learning.transfers import Readback
from spreeze.runs.checkpoint_format import Manifest, StateFile, describe, state_path
from spreeze.runs.replay_log import Extent, ReplayLog, read_rows

CHUNK_BYTES = 1 << 23  # copied and written at once: 10 to 20 ms
MAX_OTHER_STATE_BYTES = 1 << 24
FILL_ROWS = 1 << 16
# Of a core that saving takes while updates run: it has minutes, and they need the cores. Where rows come so fast that
# they would be overwritten before they are saved, there are more cores, and more of one is little.
SHARE_OF_EACH_CORE, MAX_SHARE = 0.02, 0.1


@dataclass(frozen=True)
class Saved:
    """What a learner has written for a checkpoint."""

    number: int
    role: LearnerRole
    state: StateFile
    extents: tuple[Extent, ...]
    row_width: int
    counters: Mapping[str, float]


@dataclass(frozen=True)
class NotSaved:
    """Why there is no such checkpoint."""

    number: int
    role: LearnerRole
    failure: str


class CheckpointWriter:
    """Makes one checkpoint at a time."""

    def __init__(
        self,
        folder: Path,
        algorithm: ActorCritic,
        replay: Replay | None,
        normaliser: Normaliser | None,
        extents: tuple[Extent, ...] = (),
        after: int = 0,
        role: LearnerRole = "all",
    ) -> None:
        """replay: None where its rows are not saved.

        extents: of the checkpoints that are valid, after a restart; after: the number of the newest of them.
        """
        self._folder, self._algorithm, self._normaliser = folder, algorithm, normaliser
        self._replay, self._role = replay, role
        folder.mkdir(parents=True, exist_ok=True)
        self._log = None if replay is None else ReplayLog(folder / "replay", replay.width, extents)
        self._readback = Readback()
        self._thread: threading.Thread | None = None
        self._begun = after
        self._about: dict[str, str] = {}
        self._counters: dict[str, float] = {}
        self._oldest_row = 0
        self._random: dict[str, NDArray[np.uint8]] = {}
        self._hurries = threading.Event()
        self._result: Saved | NotSaved | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is under way."""
        return self._readback.is_under_way or self._thread is not None

    def begin(self, number: int, oldest_row: int, counters: Mapping[str, float]) -> None:
        """Start a checkpoint, unless it has been started before or another one is under way.

        oldest_row: the first row that valid checkpoints need. counters: where the learner stands now.
        """
        if number <= self._begun or self.is_busy:
            return
        self._begun, self._oldest_row, self._counters = number, oldest_row, dict(counters)
        if self._replay is not None:
            self._replay.mark()
            self._counters["replay_written"] = self._replay.written
        self._about = {"phase": str(self._algorithm.phase), "part": self._role}
        self._random = {"random.cpu": torch.get_rng_state().numpy()}
        if self._algorithm.device.type == "cuda":
            self._random["random.cuda"] = torch.cuda.get_rng_state(self._algorithm.device).numpy()
        self._readback.start(_named_state(self._algorithm))

    def turn(self) -> Saved | NotSaved | None:
        """Carry on; return what was saved once it is, or why it could not be."""
        arrived = self._readback.take()
        if arrived is not None:
            self._write_in_background(arrived)
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread.join()
        self._thread, result = None, self._result
        return result

    def finish(self, beat: Callable[[], object]) -> Saved | NotSaved | None:
        """Wait for a checkpoint that is under way, now at full speed."""
        self._hurries.set()
        arrived = self._readback.take(wait=True)
        if arrived is not None:
            self._write_in_background(arrived)
        while self._thread is not None:
            beat()
            self._thread.join(0.1)  # it is what the process is still there for
            if (result := self.turn()) is not None:
                return result
        return None

    def _write_in_background(self, arrived: Mapping[str, NDArray[Any]]) -> None:
        tensors = {name: array.copy() for name, array in arrived.items()} | self._random
        if self._normaliser is not None:
            tensors |= self._normaliser.statistics()
        self._thread = threading.Thread(target=self._write, args=(tensors,), daemon=True)
        self._thread.start()

    def _write(self, tensors: dict[str, NDArray[Any]]) -> None:
        try:
            if not all(np.isfinite(array).all() for array in tensors.values()):
                raise FloatingPointError("losses or weights are not finite")  # what is kept stays good
            path = state_path(self._folder, self._begun, self._role)
            write_weights(path, tensors, self._about)
            extents = self._write_rows()
            self._result = Saved(
                self._begun,
                self._role,
                describe(path),
                extents,
                0 if self._replay is None else self._replay.width,
                self._counters,
            )
        except Exception as error:  # a full disk, a folder that is gone: training goes on without
            self._result = NotSaved(self._begun, self._role, reason_of(error))

    def _write_rows(self) -> tuple[Extent, ...]:
        if self._replay is None or self._log is None:
            return ()
        end = int(self._counters["replay_written"])
        # Somebody has deleted its files, or the ring began anew: what it holds is all there is.
        if not self._log.is_whole() or self._log.next_row > end:
            self._log = ReplayLog(self._folder / "replay", self._replay.width)
        self._log.forget(self._oldest_row)
        # What the ring does not hold any more needs no saving; what was saved before is there.
        at = max(self._log.next_row, end - self._replay.capacity)
        chunk = torch.empty(
            max(1, min(CHUNK_BYTES // (4 * self._replay.width), self._replay.capacity // 16)),
            self._replay.width,
            pin_memory=self._algorithm.device.type == "cuda",
        )
        share = min(MAX_SHARE, SHARE_OF_EACH_CORE * usable_cores())
        while at < end:
            began = time.monotonic()
            rows = chunk[: min(len(chunk), end - at)]
            lost = self._replay.copy_out(at, rows)  # too old to matter
            self._log.append(at + lost, rows[lost:].numpy())
            at += len(rows)
            if not self._hurries.is_set():
                self._hurries.wait((time.monotonic() - began) * (1 / share - 1))
        self._log.sync()
        return self._log.extents(end - self._replay.capacity)


def restore(
    folder: Path,
    manifest: Manifest,
    algorithm: ActorCritic,
    replay: Replay | None,
    normaliser: Normaliser | None,
    beat: Callable[[], object] = lambda: None,
    role: LearnerRole = "all",
) -> None:
    """Bring an algorithm and its replay to where they were. Raises CheckpointError; sizes are checked before use.

    beat: called again and again, because a large replay takes its time.
    """
    path = state_path(folder, manifest.number, role)
    expected = _named_state(algorithm)
    expected_bytes = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    try:
        # Beside the networks: random numbers, statistics of observations, and names.
        arrays, about = read_weights(path, 2 * expected_bytes + MAX_OTHER_STATE_BYTES)
        found = {name: torch.from_numpy(arrays[name].copy()) for name in expected}
        for name, tensor in expected.items():
            if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
                raise ValueError(f"it is of other networks: {name} has another shape or type")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("it holds a NaN or an infinity")
        phase = int(about["phase"])
        random = {name: torch.from_numpy(arrays[name].copy()) for name in arrays if name.startswith("random.")}
        torch.set_rng_state(random["random.cpu"])
        if normaliser is not None:
            normaliser.restore(arrays)
    except torch.OutOfMemoryError:
        raise  # nothing is wrong with the file
    except (OSError, KeyError, IndexError, ValueError, OverflowError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path} cannot be used: {reason_of(error)}") from None
    for name, tensor in expected.items():
        tensor.copy_(found[name])
    algorithm.phase = phase % algorithm.actor_delay
    if algorithm.device.type == "cuda" and "random.cuda" in random:
        torch.cuda.set_rng_state(random["random.cuda"], algorithm.device)
    if replay is not None and manifest.extents:
        _restore_rows(folder, manifest, replay, beat)


def _restore_rows(folder: Path, manifest: Manifest, replay: Replay, beat: Callable[[], object]) -> None:
    last = manifest.extents[-1]
    written = int(manifest.counters.get("replay_written", -1))
    if manifest.row_width != replay.width:
        raise CheckpointError(f"{folder} holds rows of another environment")
    if last.first_row + last.rows > written:
        raise CheckpointError(f"{folder} is damaged: it counts {written} rows, and holds more")
    oldest_row = max(0, written - replay.capacity)
    needed = [extent for extent in manifest.extents if extent.first_row + extent.rows > oldest_row]
    if not needed or not needed[-1].rows:
        raise CheckpointError(f"{folder} is damaged: it holds none of the rows that it counts")
    at = oldest_row
    for first_row, rows in read_rows(folder / "replay", needed, replay.width):
        beat()
        # Rows that were overwritten while they were being saved: others stand in for them.
        if first_row > at:
            _fill(replay, at, first_row, rows)
        replay.put_back(first_row, rows)
        at = first_row + len(rows)
    _fill(replay, at, written, rows)


def _fill(replay: Replay, at: int, until: int, rows: NDArray[np.float32]) -> None:
    block = np.resize(rows, (min(max(0, until - at), FILL_ROWS), rows.shape[1]))
    while at < until:
        replay.put_back(at, block[: until - at])
        at += len(block)


def report(saved: Saved | NotSaved) -> dict[str, Any]:
    """Return what a learner sends to the supervisor."""
    return asdict(saved)


def _named_state(algorithm: ActorCritic) -> dict[str, Tensor]:
    return {f"state.{index}": tensor.detach().reshape(-1) for index, tensor in enumerate(algorithm.state())}
