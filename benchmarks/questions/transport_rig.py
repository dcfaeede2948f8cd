"""Real writer processes around one reader, and what the reader measures of a transport.

In: a transport, the size of a row, how many writers. Out: rates, latencies, CPU seconds; or an error if a row was
lost, doubled, reordered or changed.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from transport_ends import BLOCK_ROWS, Channel, TransportName, open_channel, words_of
from transport_writer import SEQUENCE, STAMP_HIGH, STAMP_LOW, Order

from session import CpuMeter, RunCrashed
from spreeze.adapt.defaults import ring_capacity_rows
from spreeze.channels.transitions import Rows, TransitionReader

WRITER_PROGRAM = Path(__file__).resolve().parent / "transport_writer.py"
SETTLE_S = 0.1  # page faults, buffers that fill, the CPU's clock
GUARD_S = 60.0  # for a writer's answer, or for rows that are under way: what takes longer is lost
REPLAY_BYTES = 64 * 2**20  # more than caches hold: what a learner keeps, it keeps in memory
EMPTY_LOOKS = 2000


@dataclass
class Received:
    """What has come from one writer."""

    rows: int = 0
    checksum: int = 0
    misplaced: int = 0
    """Rows whose number was not the next one."""


@dataclass
class Taker:
    """The reader: looks at every channel in turn, copies what is there into a replay, and checks it."""

    readers: Sequence[TransitionReader]
    replay: Rows
    is_stamped: bool
    received: list[Received] = field(init=False)
    latencies_us: list[float] = field(default_factory=list)
    rows: int = 0
    cpu_s: float = 0.0
    """Of the looks that have found something."""

    def __post_init__(self) -> None:
        self.received = [Received() for _ in self.readers]

    def look(self) -> None:
        """Take all that is there now."""
        cpu_before_s, rows_before = time.thread_time(), self.rows
        for received, reader in zip(self.received, self.readers, strict=True):
            for block in reader.read():
                self.take(received, block)
        if self.rows > rows_before:
            self.cpu_s += time.thread_time() - cpu_before_s
        else:
            os.sched_yield()  # a writer may need this core

    def take(self, received: Received, block: Rows) -> None:
        """Copy a block and look at every value of it, as a learner does to keep out what is not a number."""
        at = self.rows % len(self.replay)
        count = min(len(block), len(self.replay) - at)
        self.replay[at : at + count] = block[:count]
        self.replay[: len(block) - count] = block[count:]
        words = words_of(block)
        received.checksum += int(np.add.reduce(words, axis=None, dtype=np.uint32))
        expected = np.arange(received.rows, received.rows + len(block), dtype=np.uint32)
        received.misplaced += int(np.count_nonzero(words[:, SEQUENCE] != expected))
        if self.is_stamped:
            now_ns = time.monotonic_ns()
            written_ns = words[:, STAMP_HIGH].astype(np.int64) << 32 | words[:, STAMP_LOW].astype(np.int64)
            self.latencies_us += ((now_ns - written_ns) / 1e3).tolist()
        received.rows += len(block)
        self.rows += len(block)


@dataclass(frozen=True)
class Rig:
    """Writers that wait for orders, and the reader's ends of their channels."""

    writers: Sequence[subprocess.Popen[bytes]]
    readers: Sequence[TransitionReader]
    replay: Rows
    row_bytes: int

    def measure(self, order: Order) -> dict[str, Any]:
        """Have all writers write, take what they write, check it, and return the figures."""
        taker = Taker(self.readers, self.replay, order.rows_hz is not None)
        for i, writer in enumerate(self.writers):
            apart_s = 0.0 if order.rows_hz is None else i / (order.rows_hz * len(self.writers))
            _tell(writer, Order(order.seconds, order.rows_a_write, order.rows_hz, apart_s))
        began_at = time.monotonic()
        _look_until(taker, began_at + SETTLE_S)
        rows, cpu_s, window_from = taker.rows, taker.cpu_s, time.monotonic()
        _look_until(taker, began_at + order.seconds)
        rows, cpu_s, window_s = taker.rows - rows, taker.cpu_s - cpu_s, time.monotonic() - window_from
        self._drain(taker)
        writer_cpu_s = [self._finish(writer) for writer in self.writers]
        figures: dict[str, Any] = {
            "rows": taker.rows,
            "rows_hz": rows / window_s,
            "mb_s": rows * self.row_bytes / window_s / 1e6,
            "reader_cpu_s": 1e6 * cpu_s / max(1, rows),
            "writer_cpu_s": 1e6 * sum(writer_cpu_s) / max(1, taker.rows),
        }
        if order.rows_hz is not None:
            figures |= {
                "latency_median_us": statistics.median(taker.latencies_us),
                "latency_99_us": float(np.percentile(taker.latencies_us, 99)),
                "empty_look_us": self._empty_look_us(),
            }
        return figures

    def _drain(self, taker: Taker) -> None:
        """Take what is still under way, and compare it with what each writer says it has written."""
        said: dict[int, dict[str, Any]] = {}
        guard = time.monotonic() + GUARD_S
        while len(said) < len(self.writers) or any(taker.received[i].rows < said[i]["rows"] for i in said):
            taker.look()
            for i in set(range(len(self.writers))) - set(said):
                if _has_answered(self.writers[i]):
                    said[i] = _answer(self.writers[i])
            if time.monotonic() > guard:
                counts = [one.rows for one in taker.received]
                raise RunCrashed(f"after {GUARD_S:.0f} s, {counts} rows have come; writers say {said}")
        for i, one in enumerate(taker.received):
            if (one.rows, one.checksum % 2**32, one.misplaced) != (said[i]["rows"], said[i]["checksum"], 0):
                raise RunCrashed(f"writer {i} says {said[i]}, and {one} has come: rows were lost or changed")

    def _finish(self, writer: subprocess.Popen[bytes]) -> float:
        _tell(writer, None)
        return float(_answer(writer)["cpu_s"])

    def _empty_look_us(self) -> float:
        """Return what it costs to find that one channel has nothing."""
        cpu_before_s = time.thread_time()
        for _ in range(EMPTY_LOOKS):
            for reader in self.readers:
                for _block in reader.read():
                    raise RunCrashed("rows have come that nobody has written")
        return 1e6 * (time.thread_time() - cpu_before_s) / (EMPTY_LOOKS * len(self.readers))


def measure_transport(
    transport: TransportName, row_bytes: int, writers: int, seconds: float, paced_hz: float
) -> dict[str, Any]:
    """Measure one transport in all modes with the same processes; say who else used the cores meanwhile."""
    meter = CpuMeter()
    with open_rig(transport, row_bytes, writers) as rig:
        modes = {
            "blocks": rig.measure(Order(SETTLE_S + seconds, BLOCK_ROWS, None)),
            "rows": rig.measure(Order(SETTLE_S + seconds, 1, None)),
            "paced": rig.measure(Order(SETTLE_S + seconds, 1, paced_hz / writers)),
        }
    return {"modes": modes, "others_cores": round(meter.read().others_cores, 3)}


def measure_taking_alone(row_bytes: int, seconds: float) -> dict[str, Any]:
    """Measure the reader's copy and check of rows that are in its own memory: what no transport can be below.

    In blocks as large as a full ring gives, and one by one.
    """
    modes, replay = {}, _make_replay(row_bytes)
    for name, rows_a_block in (("blocks", int(ring_capacity_rows(row_bytes).value)), ("rows", 1)):
        taker = Taker([], replay, is_stamped=False)
        block = np.random.default_rng(0).random((rows_a_block, row_bytes // 4), np.float32)
        received, cpu_before_s, ends_at = Received(), time.thread_time(), time.monotonic() + seconds
        while time.monotonic() < ends_at:
            taker.take(received, block)
        modes[name] = {"reader_cpu_s": 1e6 * (time.thread_time() - cpu_before_s) / taker.rows}
    return {"modes": modes}


@contextmanager
def open_rig(transport: TransportName, row_bytes: int, writers: int) -> Iterator[Rig]:
    """Start writers, each with a channel of its own; end them all in any case."""
    with ExitStack() as stack:
        channels = [open_channel(transport, row_bytes) for _ in range(writers)]
        for channel in channels:
            stack.callback(channel.close)
        processes = [stack.enter_context(_writing(channel, row_bytes, i)) for i, channel in enumerate(channels)]
        for process in processes:
            _answer(process)
        yield Rig(processes, [channel.reader() for channel in channels], _make_replay(row_bytes), row_bytes)
        for process in processes:
            _tell(process, None)
            process.wait(GUARD_S)


def _make_replay(row_bytes: int) -> Rows:
    # Filled, not only asked for: else the first rows would pay for the kernel's finding of the memory.
    return np.full((max(1, REPLAY_BYTES // row_bytes), row_bytes // 4), 1.0, np.float32)


@contextmanager
def _writing(channel: Channel, row_bytes: int, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, str(WRITER_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=channel.descriptors,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # as samplers have it
    )
    try:
        _tell(process, (channel, row_bytes, seed))
        yield process
    finally:
        process.kill()  # does nothing to one that ended
        process.communicate()


def _tell(writer: subprocess.Popen[bytes], order: object) -> None:
    assert writer.stdin is not None
    pickle.dump(order, writer.stdin)
    writer.stdin.flush()


def _has_answered(writer: subprocess.Popen[bytes]) -> bool:
    assert writer.stdout is not None
    return bool(select.select([writer.stdout], [], [], 0)[0])


def _answer(writer: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert writer.stdout is not None
    line = writer.stdout.readline()
    if not line:
        raise RunCrashed(f"a writer ended with exit code {writer.wait(GUARD_S)}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _look_until(taker: Taker, moment: float) -> None:
    while time.monotonic() < moment:
        taker.look()
