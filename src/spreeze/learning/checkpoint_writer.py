"""Saves what a learner holds while it continues to learn.

A checkpoint is ordered by its number. The learner's turn starts it: the state is copied behind the updates that are
under way, and a thread writes it, then the rows of the replay that are new since the last time. When all is on the
disk the learner reports it, and the supervisor, which ordered the checkpoint, makes it valid. Nobody waits.
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

from spreeze.algorithms.algorithm import Algorithm
from spreeze.channels.weights import write_weights
from spreeze.config import LearnerRole
from spreeze.host.files import reason_of
from spreeze.host.hardware import usable_cores
from spreeze.host.own_files import make_own_folder
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.replay import Replay
from spreeze.learning.restore_rows import RestoredRows
from spreeze.learning.transfers import Readback
from spreeze.runs.checkpoint_format import StateFile, describe, run_of, state_path
from spreeze.runs.replay_log import Extent, ReplayLog

CHUNK_BYTES = 1 << 23  # copied and written at once: 10 to 20 ms
# The share of a core that saving takes while updates run: saving has minutes, and updates need the cores. Where rows
# come so fast that they would be overwritten before they are saved, there are more cores, and the share grows.
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
    """Why a checkpoint could not be written."""

    number: int
    role: LearnerRole
    failure: str


class CheckpointWriter:
    """Makes one checkpoint at a time."""

    def __init__(
        self,
        folder: Path,
        algorithm: Algorithm,
        replay: Replay | None,
        normaliser: Normaliser | None,
        restored: RestoredRows | None = None,
        after: int = 0,
        role: LearnerRole = "all",
    ) -> None:
        """replay: None where its rows are not saved.

        restored: what valid checkpoints have on disk, after a restart; after: the number of the newest of them.
        """
        self._folder, self._algorithm, self._normaliser = folder, algorithm, normaliser
        self._replay, self._role = replay, role
        self._restored = restored or RestoredRows()
        self._log: ReplayLog | None = None  # opened by the first checkpoint that can be written
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

    def begin(
        self, number: int, oldest_row: int, counters: Mapping[str, float], updates_continue: bool = True
    ) -> None:
        """Start a checkpoint, unless it has been started before or another one is under way.

        oldest_row: the first row that valid checkpoints need. counters: those of the learner now.
        updates_continue: whether the state changes before it is written. Else it is not copied.
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
        state = named_state(self._algorithm)
        if updates_continue or self._algorithm.device.type != "cpu":
            self._readback.start(state)
        else:
            # A copy of gigabytes, to memory that is touched for the first time, takes longer than to write them.
            self._write_in_background({name: tensor.numpy() for name, tensor in state.items()})

    def turn(self) -> Saved | NotSaved | None:
        """Continue; return what was saved once it is, or why it could not be."""
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
            self._thread.join(0.1)  # the process has nothing else to do
            if (result := self.turn()) is not None:
                return result
        return None

    def _write_in_background(self, arrived: Mapping[str, NDArray[Any]]) -> None:
        # What has arrived stays as it is until the next checkpoint begins.
        tensors = {**arrived, **self._random}
        if self._normaliser is not None:
            tensors |= self._normaliser.statistics()
        self._thread = threading.Thread(target=self._write, args=(tensors,), daemon=True)
        self._thread.start()

    def _write(self, tensors: dict[str, NDArray[Any]]) -> None:
        try:
            if not all(np.isfinite(array).all() for array in tensors.values()):
                raise FloatingPointError("losses or weights are not finite")  # checkpoints that are kept stay good
            make_own_folder(self._folder, run_of(self._folder))
            path = state_path(self._folder, self._begun, self._role)
            write_weights(path, tensors, self._about, run_of(self._folder))
            extents = self._write_rows()
            self._result = Saved(
                self._begun,
                self._role,
                describe(path),
                extents,
                0 if self._replay is None else self._replay.width,
                self._counters,
            )
        except Exception as error:  # a full disk, a deleted folder: training continues without
            self._result = NotSaved(self._begun, self._role, reason_of(error))

    def _write_rows(self) -> tuple[Extent, ...]:
        if self._replay is None:
            return ()
        if self._log is None:
            there = self._restored
            self._log = ReplayLog(
                self._folder / "replay", self._replay.width, there.extents, there.others, there.next_row
            )
        end = int(self._counters["replay_written"])
        # Somebody has deleted its files, or the replay was emptied: what the replay holds now is all there is.
        if not self._log.is_whole() or self._log.next_row > end:
            self._log = ReplayLog(self._folder / "replay", self._replay.width)
        self._log.forget(self._oldest_row)
        # Rows that the replay does not hold any more need no saving; those that were saved before are there.
        at = max(self._log.next_row, end - self._replay.capacity, self._replay.first_row)
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


def report(saved: Saved | NotSaved) -> dict[str, Any]:
    """Return what a learner sends to the supervisor."""
    return asdict(saved)


def named_state(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return the tensors of an algorithm that a checkpoint holds, by their names in its file."""
    return {f"state.{index}": tensor.detach().reshape(-1) for index, tensor in enumerate(algorithm.state())}
