"""Real writer processes around one reader, and what the reader measures of a transport.

In: a transport, the size of a row, how many writers. Out: rates, latencies, CPU seconds; or an error if a row was
lost, doubled, reordered or changed.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from transport_ends import BLOCK_ROWS, Channel, TransportName, open_channel, words_of

from session import CpuMeter, RunCrashed
from spreeze.adapt.defaults import ring_capacity_rows
from spreeze.channels.transitions import Rows, TransitionReader, TransitionWriter

SEQUENCE, STAMP_HIGH, STAMP_LOW = 0, 1, 2  # columns of a row that are not noise
SETTLE_S = 0.1  # page faults, buffers that fill, the CPU's clock
GUARD_S = 60.0  # for a writer's answer, or for rows that are under way: what takes longer is lost
REPLAY_BYTES = 64 * 2**20  # more than caches hold: what a learner keeps, it keeps in memory
EMPTY_LOOKS = 2000


@dataclass(frozen=True)
class Order:
    """What to write: for so many seconds, blocks of so many rows, flat out or at a rate."""

    seconds: float
    rows_per_write: int
    rows_hz: float | None
    """Rows a second, each with the moment of its writing; None: as fast as it goes."""
    first_after_s: float = 0.0
    """So that writers at a rate do not all write at the same moment."""


class Sender:
    """Writes rows of noise that are numbered from 0 on, and adds up all their bits."""

    def __init__(self, writer: TransitionWriter, row_bytes: int, seed: int) -> None:
        self._writer, self._width = writer, row_bytes // 4
        self._random, self._parent = np.random.default_rng(seed), os.getppid()
        self.rows = self.checksum = 0

    def obey(self, order: Order) -> None:
        self.rows = self.checksum = 0
        # Noise as float32 values, not as any bits: all transports see what they would see in a run.
        block = self._random.random((order.rows_per_write, self._width), np.float32)
        if order.rows_hz is None:
            self._send_flat_out(block, order.seconds)
        else:
            self._send_at_rate(block, order, order.rows_hz)

    def _send_flat_out(self, block: Rows, seconds: float) -> None:
        words, order_in_block = words_of(block), np.arange(len(block), dtype=np.uint32)
        words[:, SEQUENCE] = 0
        noise, blocks, ends_at = int(words.sum(dtype=np.uint64)), 0, time.monotonic() + seconds
        while time.monotonic() < ends_at:
            np.add(order_in_block, self.rows, out=words[:, SEQUENCE])
            self._writer.write(block, self._is_left_alone)
            self.rows += len(block)
            blocks += 1
        self.checksum = noise * blocks + self.rows * (self.rows - 1) // 2

    def _send_at_rate(self, block: Rows, order: Order, rows_hz: float) -> None:
        words, began_at = words_of(block), time.monotonic() + order.first_after_s
        for i in range(max(1, int(order.seconds * rows_hz))):
            time.sleep(max(0.0, began_at + i / rows_hz - time.monotonic()))
            now_ns = time.monotonic_ns()
            words[0, SEQUENCE], words[0, STAMP_HIGH], words[0, STAMP_LOW] = i, now_ns >> 32, now_ns & 0xFFFFFFFF
            self._writer.write(block, self._is_left_alone)
            self.rows += 1
            self.checksum += int(words.sum(dtype=np.uint64))

    def _is_left_alone(self) -> bool:
        return os.getppid() != self._parent


def serve(channels: Sequence[Channel], index: int, row_bytes: int, orders: Connection) -> None:
    """Be a writer: obey orders until there are no more."""
    # A forked process has the others' ends too: with them open, a writer would not notice that the reader is gone.
    for other in (*channels[:index], *channels[index + 1 :]):
        other.close()
    writer = channels[index].writer()
    sender = Sender(writer, row_bytes, seed=index)
    while (order := orders.recv()) is not None:
        cpu_before_s = time.process_time()
        sender.obey(order)
        orders.send({"rows": sender.rows, "checksum": sender.checksum % 2**32})
        orders.recv()  # all of it has been read: a queue's own thread has nothing more to do either
        orders.send({"cpu_s": time.process_time() - cpu_before_s})
    writer.close(deliver=False)


@dataclass
class Received:
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

    writers: Sequence[Connection]
    readers: Sequence[TransitionReader]
    replay: Rows
    row_bytes: int

    def measure(self, order: Order) -> dict[str, Any]:
        """Have all writers write, take what they write, check it, and return the figures."""
        taker = Taker(self.readers, self.replay, order.rows_hz is not None)
        for i, writer in enumerate(self.writers):
            apart_s = 0.0 if order.rows_hz is None else i / (order.rows_hz * len(self.writers))
            writer.send(replace(order, first_after_s=apart_s))
        began_at = time.monotonic()
        _look_until(taker, began_at + SETTLE_S)
        rows, cpu_s, window_from = taker.rows, taker.cpu_s, time.monotonic()
        _look_until(taker, began_at + order.seconds)
        rows, cpu_s, window_s = taker.rows - rows, taker.cpu_s - cpu_s, time.monotonic() - window_from
        self._drain(taker)
        for writer in self.writers:
            writer.send(None)
        writer_cpu_s = sum(_answer(writer)["cpu_s"] for writer in self.writers)
        figures: dict[str, Any] = {
            "rows": taker.rows,
            "rows_hz": rows / window_s,
            "mb_s": rows * self.row_bytes / window_s / 1e6,
            "reader_cpu_s": 1e6 * cpu_s / max(1, rows),
            "writer_cpu_s": 1e6 * writer_cpu_s / max(1, taker.rows),
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
                if self.writers[i].poll():
                    said[i] = _answer(self.writers[i])
            if time.monotonic() > guard:
                counts = [one.rows for one in taker.received]
                raise RunCrashed(f"after {GUARD_S:.0f} s, {counts} rows have come; writers say {said}")
        for i, one in enumerate(taker.received):
            if (one.rows, one.checksum % 2**32, one.misplaced) != (said[i]["rows"], said[i]["checksum"], 0):
                raise RunCrashed(f"writer {i} says {said[i]}, and {one} has come: rows were lost or changed")

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
    for name, rows_per_block in (("blocks", int(ring_capacity_rows(row_bytes).value)), ("rows", 1)):
        taker = Taker([], replay, is_stamped=False)
        block = np.random.default_rng(0).random((rows_per_block, row_bytes // 4), np.float32)
        received, cpu_before_s, ends_at = Received(), time.thread_time(), time.monotonic() + seconds
        while time.monotonic() < ends_at:
            taker.take(received, block)
        modes[name] = {"reader_cpu_s": 1e6 * (time.thread_time() - cpu_before_s) / taker.rows}
    return {"modes": modes}


@contextmanager
def open_rig(transport: TransportName, row_bytes: int, writers: int) -> Iterator[Rig]:
    """Start writers, each with a channel of its own; end them all in any case."""
    context = multiprocessing.get_context("fork")  # channels need no other way to their writers
    with ExitStack() as stack:
        channels = [open_channel(transport, row_bytes) for _ in range(writers)]
        for channel in channels:
            stack.callback(channel.close)
        pipes = [context.Pipe() for _ in channels]
        for i, (_, theirs) in enumerate(pipes):
            process = context.Process(target=serve, args=(channels, i, row_bytes, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join, GUARD_S)
            stack.callback(process.kill)
        ours = [one for one, _ in pipes]
        yield Rig(ours, [channel.reader() for channel in channels], _make_replay(row_bytes), row_bytes)


def _make_replay(row_bytes: int) -> Rows:
    # Filled, not only asked for: else the first rows would pay for the kernel's finding of the memory.
    return np.full((max(1, REPLAY_BYTES // row_bytes), row_bytes // 4), 1.0, np.float32)


def _answer(writer: Connection) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = writer.recv()
    except EOFError:
        raise RunCrashed("a writer ended before its time") from None
    return answer


def _look_until(taker: Taker, moment: float) -> None:
    while time.monotonic() < moment:
        taker.look()
