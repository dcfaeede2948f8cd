"""The learner in this process, with real channels: what it takes in, launches and counts, also if memory is short."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from spreeze.algorithms.sac import Sac
from spreeze.algorithms.spec import Figure
from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel, MessageReader, MessageWriter
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.channels.transitions import RingChannel, RowLayout, Rows
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.errors import CheckpointError
from spreeze.learning import factory
from spreeze.learning.compute_modes import compute_modes
from spreeze.learning.launches import MIN_BATCH_SIZE
from spreeze.learning.learner import Learner
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.publishing import Reporter
from spreeze.learning.replay import Replay
from spreeze.runs import replay_log
from spreeze.runs.checkpoint_format import Manifest, StateFile, manifest_path, write_manifest
from spreeze.runs.replay_log import Extent

OBS_DIM, ACT_DIM = 3, 2
LAYOUT = RowLayout(OBS_DIM, ACT_DIM)
SPACES = Spaces(
    {"kind": "box", "shape": [OBS_DIM]},
    ContinuousActions(np.full(ACT_DIM, -1, np.float32), np.ones(ACT_DIM, np.float32), (ACT_DIM,)),
)
RING_ROWS, WARMUP = 4096, 50
GUARD_S = 300.0  # ends a test that would hang; nothing is asserted about time


def out_of_memory() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@dataclass
class Bench:
    """The channels of a learner, and the other ends of them."""

    channels: Channels
    messages: MessageWriter
    reader: MessageReader
    folder: Path

    def learner(self, checkpoints: tuple[int, ...] = (), without_replay_until: int = 0, **fields: Any) -> Learner:
        chosen: dict[str, Any] = {
            "samplers": 1,
            "envs_per_sampler": 4,
            "warmup_steps": WARMUP,
            "min_updates_per_step": 0.0,
            "max_updates_per_step": None,
            "hidden": (16, 16),
            "batch_size": 256,
            "learning_rate_batch": 256,
            "replay_rows": 10_000,
            "tau": 0.02,
            "actor_delay": 1,
            "ring_rows": RING_ROWS,
            "device": "cpu",
            "learner_threads": 1,
        }
        config = Config("Pendulum-v1", "sac").replace(**{**chosen, **fields})
        self.order(int(config.learning.batch_size))
        brief = Brief(
            *(0, 0, config, EnvSpec(config.env), SPACES, self.folder, time.monotonic(), self.channels),
            checkpoints=checkpoints,
            without_replay_until=without_replay_until,
        )
        return Learner(brief, self.messages)

    def order(self, batch_size: int, threads: int = 0) -> None:
        """Order what the supervisor would order."""
        self.channels.control.order(batch_size, threads, rings=1, envs_at_work=4)

    def write(self, rows: Rows) -> None:
        self.channels.transitions[0].writer().write(rows, stopping=lambda: False)

    def counter(self, name: str) -> Any:
        return self.channels.metrics.learner[name][0]

    def figures(self) -> dict[str, float]:
        values = self.channels.metrics.learner[0]["figures"].tolist()
        return dict(zip((figure.name for figure in Sac.figures), values, strict=False))

    def events(self) -> list[tuple[str, str]]:
        messages = self.reader.read()
        assert {message["kind"] for message in messages} <= {"event"}
        return [(message["event"], message["reason"]) for message in messages]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    channels = Channels((RingChannel("test"),), WeightsChannel(tmp_path), MetricsChannel(), ControlChannel())
    channels.transitions[0].allocate(LAYOUT, RING_ROWS)
    read_fd, write_fd = os.pipe()
    reader = MessageReader(read_fd)
    yield Bench(channels, MessageWriter(write_fd), reader, tmp_path)
    reader.close()
    os.close(write_fd)
    channels.close()


def random_rows(count: int, seed: int = 0) -> Rows:
    rows = np.random.default_rng(seed).standard_normal((count, LAYOUT.width)).astype(np.float32)
    rows[:, LAYOUT.action] = np.tanh(rows[:, LAYOUT.action])
    rows[:, LAYOUT.terminated] = 0
    rows[:, LAYOUT.discount] = 0.99
    return rows


def fail_at_first(monkeypatch: pytest.MonkeyPatch, learner: Learner, times: int) -> list[int]:
    """Let the first launches of a learner run out of memory; return the batch sizes that were tried."""
    launch, tried = learner._updates.launch, list[int]()

    def failing(batch_size: int, most: int) -> int:
        tried.append(batch_size)
        if len(tried) <= times:
            raise out_of_memory()
        return launch(batch_size, most)

    monkeypatch.setattr(learner._updates, "launch", failing)
    return tried


def turn_until(learner: Learner, bench: Bench, updates: int) -> None:
    guard = time.monotonic() + GUARD_S
    while bench.counter("updates") < updates and time.monotonic() < guard:
        learner.turn()
    assert bench.counter("updates") >= updates


# --- turns ------------------------------------------------------------------------------------------------------


def test_rows_go_into_the_replay_and_updates_begin_after_the_warm_up(bench: Bench) -> None:
    learner = bench.learner()
    bench.write(random_rows(WARMUP - 1))
    learner.turn()
    assert bench.counter("rows_stored") == bench.counter("replay_rows") == WARMUP - 1
    assert bench.counter("updates") == 0
    assert bench.counter("ratio_wait_s") > 0

    bench.write(random_rows(1, seed=1))
    for updates in (1, 2, 3):
        learner.turn()
        assert bench.counter("updates") == updates
    assert bench.counter("rows_consumed") == bench.counter("replay_rows") == WARMUP
    assert bench.counter("update_frames") == 3 * 256
    assert bench.counter("batch_size") == 256
    assert bench.counter("first_update_at") > 0
    assert bench.figures()["temperature"] > 0
    assert all(map(math.isfinite, bench.figures().values()))
    assert bench.events() == []


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [({}, {"plain", "bfloat16"}), ({"layer_norm": True}, {"plain"}), ({"update_engine": "eager"}, {"plain"})],
)
def test_bfloat16_is_tried_where_a_compute_mode_has_it(fields: dict[str, Any], kinds: set[str]) -> None:
    learning = Config("Pendulum-v1").replace(**fields).learning
    modes = compute_modes(learning, torch.device("cpu"))
    assert {mode.operations.name for mode in modes} == kinds


def test_policy_is_published_while_learning_and_at_the_end(bench: Bench) -> None:
    learner, weights = bench.learner(publish_interval_s=1000.0), bench.channels.weights.reader()
    bench.write(random_rows(WARMUP))
    assert weights.newest() is None
    learner.turn()
    first = weights.newest()
    assert first is not None
    assert (first.version, first.metadata["updates"], first.metadata["env_steps"]) == (1, "1", str(WARMUP))
    assert (first.metadata["algo"], first.metadata["policy"]) == ("sac", "gaussian")
    learner.turn()
    assert weights.newest() is None  # the interval has not passed
    learner.finish()
    last = weights.newest()
    assert last is not None
    assert (last.version, last.metadata["updates"]) == (2, "2")
    assert any(not np.array_equal(last.tensors[name], first.tensors[name]) for name in first.tensors)


def test_limit_of_updates_is_exact_and_the_learner_goes_on_taking_rows(bench: Bench) -> None:
    learner = bench.learner(max_updates=3)
    bench.write(random_rows(WARMUP))
    for _ in range(6):
        learner.turn()
    assert bench.counter("updates") == 3
    bench.write(random_rows(20, seed=1))
    learner.turn()
    assert bench.counter("updates") == 3
    assert bench.counter("replay_rows") == WARMUP + 20


def test_rows_with_a_nan_never_reach_the_replay(bench: Bench) -> None:
    learner, rows = bench.learner(), random_rows(60)
    rows[10, LAYOUT.reward] = np.nan
    rows[20, LAYOUT.next_observation] = np.inf
    bench.write(rows)
    learner.turn()
    counts = [bench.counter(name) for name in ("rows_consumed", "rows_stored", "rows_rejected", "replay_rows")]
    assert counts == [60, 58, 2, 58]


def test_weights_that_are_not_finite_end_the_run_with_a_reason(bench: Bench) -> None:
    learner = bench.learner(learning_rate=1e30)
    bench.write(random_rows(WARMUP))
    with pytest.raises(FloatingPointError, match="diverge"):
        turn_until(learner, bench, updates=100)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((1.0, 2.0, 3.0), None),
        ((1.0, 2.0, np.nan), None),  # explains a loss, and is none
        ((np.nan, 2.0, 3.0), "the updates diverge, first_loss is not finite"),
        ((np.inf, 2.0, np.nan), "the updates diverge, first_loss, mean are not finite"),
    ],
)
def test_losses_that_are_not_finite_are_named(values: tuple[float, ...], says: str | None) -> None:
    figures = [Figure("first_loss", "critic"), Figure("second_loss", "actor"), Figure("mean", "critic")]
    counters = np.zeros(1, [("figures", np.float32, 8)])
    updates: Any = SimpleNamespace(figures=torch.tensor(values))
    reporter = Reporter(counters, updates, figures)
    with nullcontext() if says is None else pytest.raises(FloatingPointError, match=says):
        reporter.report()
    np.testing.assert_array_equal(counters["figures"][0, :3], np.float32(values))


def test_an_ordered_batch_size_is_used_once_the_compute_mode_is_chosen(bench: Bench) -> None:
    learner = bench.learner(update_engine="eager")  # one mode, but it is timed all the same
    bench.write(random_rows(WARMUP))
    bench.order(batch_size=128)
    learner.turn()
    assert [bench.counter(name) for name in ("batch_size", "is_steady")] == [256, 0]
    turn_until(learner, bench, updates=30)
    assert [bench.counter(name) for name in ("batch_size", "is_steady")] == [128, 1]


def test_a_learner_without_its_replay_collects_rows_before_it_updates(bench: Bench) -> None:
    learner = bench.learner(checkpoint_replay=False, max_updates=5)
    bench.write(random_rows(WARMUP))
    turn_until(learner, bench, updates=5)
    assert saved_checkpoint(bench, learner).extents == ()

    again = bench.learner(checkpoint_replay=False, checkpoints=(1,))
    assert bench.counter("updates") == 5
    assert bench.counter("replay_rows") == 0
    assert bench.counter("steps_ahead") == 2 * WARMUP  # samplers may make as many more
    assert bench.counter("steps_offset") == 0
    bench.write(random_rows(WARMUP - 1))
    again.turn()
    assert bench.counter("updates") == 5
    bench.write(random_rows(1))
    again.turn()
    assert bench.counter("updates") == 6


def saved_checkpoint(bench: Bench, learner: Learner, number: int = 1) -> Manifest:
    """End a learner with a checkpoint, as the supervisor would."""
    bench.channels.control.order_checkpoint(number, 0, at_end=True)
    learner.finish()
    (saved,) = (message for message in bench.reader.read() if message["kind"] == "checkpoint")
    extents = tuple(Extent(*extent) for extent in saved["extents"])
    manifest = Manifest(number, (StateFile(**saved["state"]),), extents, saved["row_width"], saved["counters"])
    write_manifest(bench.folder / "checkpoint", manifest)
    return manifest


@pytest.mark.parametrize("has_rest", [True, False])
def test_a_learner_is_started_again_without_the_rows_that_are_damaged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, has_rest: bool
) -> None:
    monkeypatch.setattr(replay_log, "FILE_BYTES", 4 * 40 * LAYOUT.width)
    learner = bench.learner(max_updates=5)
    bench.write(random_rows(60))
    turn_until(learner, bench, updates=5)
    manifest = saved_checkpoint(bench, learner)
    for extent in manifest.extents[: 1 if has_rest else None]:
        path = replay_log.path_of(bench.folder / "checkpoint" / "replay", extent.first_row)
        path.write_bytes(path.read_bytes()[:-1])

    again = bench.learner(checkpoints=(1,))
    lost, rest = (40, 20) if has_rest else (60, 0)
    ((kind, reason),) = bench.events()
    assert (kind, f"{lost} transitions are damaged and left out" in reason) == ("warning", True)
    assert [bench.counter(name) for name in ("updates", "replay_rows", "rows_stored")] == [5, rest, 60]
    # As many rows as lack for a warm-up come first.
    bench.write(random_rows(WARMUP - rest - 1, seed=1))
    again.turn()
    assert bench.counter("updates") == 5
    bench.write(random_rows(1, seed=2))
    again.turn()
    assert [bench.counter(name) for name in ("updates", "replay_rows")] == [6, WARMUP]


@pytest.mark.parametrize("damaged", [1, 2])
def test_only_the_newest_checkpoint_has_to_be_intact(bench: Bench, damaged: int) -> None:
    learner = bench.learner(max_updates=5)
    bench.write(random_rows(60))
    turn_until(learner, bench, updates=5)
    saved_checkpoint(bench, learner)
    learner = bench.learner(max_updates=9, checkpoints=(1,))
    turn_until(learner, bench, updates=9)
    saved_checkpoint(bench, learner, number=2)
    manifest_path(bench.folder / "checkpoint", damaged).unlink()

    with pytest.raises(CheckpointError, match="manifest-000002") if damaged == 2 else nullcontext():
        bench.learner(checkpoints=(2, 1))
        assert [bench.counter(name) for name in ("updates", "replay_rows")] == [9, 60]


def test_a_learner_restores_no_rows_of_checkpoints_that_it_is_told_to_use_without(bench: Bench) -> None:
    learner = bench.learner(max_updates=5)
    bench.write(random_rows(60))
    turn_until(learner, bench, updates=5)
    saved_checkpoint(bench, learner)
    for until, rows in ((1, 0), (0, 60)):
        bench.learner(checkpoints=(1,), without_replay_until=until)
        assert (bench.counter("updates"), bench.counter("replay_rows")) == (5, rows)
    assert bench.events() == []


# --- memory -----------------------------------------------------------------------------------------------------


def test_batch_is_halved_until_it_fits_and_learning_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = bench.learner(batch_size=512)
    tried = fail_at_first(monkeypatch, learner, times=2)
    bench.write(random_rows(WARMUP))
    learner.turn()
    assert tried == [512, 256, 128]
    events = bench.events()
    assert [event for event, _ in events] == ["warning", "warning"]
    assert ["256" in events[0][1], "128" in events[1][1]] == [True, True]
    assert all("memory" in reason for _, reason in events)
    assert [bench.counter(name) for name in ("updates", "batch_size", "update_frames")] == [1, 128, 128]

    learner.turn()
    assert tried[3:] == [128]
    assert [bench.counter(name) for name in ("updates", "batch_size", "update_frames")] == [2, 128, 256]
    assert bench.events() == []


@pytest.mark.parametrize("batch_size", [1, MIN_BATCH_SIZE])
def test_a_small_batch_that_does_not_fit_is_an_error(
    batch_size: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = bench.learner(batch_size=batch_size)
    fail_at_first(monkeypatch, learner, times=1)
    bench.write(random_rows(WARMUP))
    with pytest.raises(torch.OutOfMemoryError):
        learner.turn()
    assert bench.events() == []


def test_updates_that_ran_out_of_memory_do_not_count_towards_the_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = bench.learner(max_updates=2)
    tried = fail_at_first(monkeypatch, learner, times=1)
    bench.write(random_rows(WARMUP))
    for _ in range(4):
        learner.turn()
    assert len(tried) == 3
    assert bench.counter("updates") == 2


def test_other_errors_of_an_update_are_errors(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = bench.learner()

    def launch(*_: object) -> int:
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(learner._updates, "launch", launch)
    bench.write(random_rows(WARMUP))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        learner.turn()
    assert bench.events() == []


def replay_that_fits(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let a replay of more rows than this not fit; return the numbers that were tried."""
    tried: list[int] = []

    def make(layout: RowLayout, rows: int, device: torch.device, normaliser: Normaliser | None) -> Replay:
        tried.append(rows)
        if rows > most:
            raise out_of_memory()
        return Replay(layout, rows, device, normaliser)

    monkeypatch.setattr(factory, "Replay", make)
    return tried


def test_replay_is_halved_until_it_fits_and_learning_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = replay_that_fits(monkeypatch, most=1000)
    learner = bench.learner(replay_rows=4000)
    assert tried == [4000, 2000, 1000]
    events = bench.events()
    assert [event for event, _ in events] == ["warning", "warning"]
    assert "2000" in events[0][1]
    assert "1000" in events[1][1]
    bench.write(random_rows(1200))
    learner.turn()
    assert bench.counter("replay_rows") == 1000
    assert bench.counter("updates") == 1


def test_a_replay_smaller_than_a_batch_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = replay_that_fits(monkeypatch, most=255)
    with pytest.raises(torch.OutOfMemoryError):
        bench.learner(replay_rows=1000, batch_size=256)
    assert tried == [1000, 500]


# --- on a GPU ---------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu_memory() -> Iterator[Any]:
    """Limit what PyTorch may take of the GPU's memory, until the end of the test."""

    def limit(limit_bytes: int) -> None:
        gc.collect()  # what earlier tests left must not become room later
        torch.cuda.empty_cache()
        in_use = torch.cuda.memory_reserved()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((in_use + limit_bytes) / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_learner_on_a_gpu_counts_publishes_and_reports(engine: str, bench: Bench) -> None:
    learner = bench.learner(device="cuda", update_engine=engine, max_updates=21, publish_interval_s=0.001)
    bench.write(random_rows(1000))
    turn_until(learner, bench, updates=21)
    learner.turn()
    learner.finish()
    assert [bench.counter(name) for name in ("updates", "batch_size", "update_frames")] == [21, 256, 21 * 256]
    assert bench.counter("replay_rows") == 1000
    assert bench.figures()["temperature"] > 0
    assert all(map(math.isfinite, bench.figures().values()))
    newest = bench.channels.weights.reader().newest()
    assert newest is not None
    assert newest.metadata["updates"] == "21"
    for name, tensor in learner._publisher._algorithm.policy().items():
        assert np.array_equal(newest.tensors[name], tensor.cpu().numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_batch_that_does_not_fit_into_the_gpu_is_halved(engine: str, bench: Bench, gpu_memory: Any) -> None:
    # One layer's output of the twins takes a gigabyte.
    batch_size = 2**19
    learner = bench.learner(
        device="cuda", update_engine=engine, batch_size=batch_size, replay_rows=batch_size, hidden=(256, 256)
    )
    bench.write(random_rows(1000))
    gpu_memory(2 * 2**30)
    turn_until(learner, bench, updates=20)
    learner.finish()
    warnings = [reason for event, reason in bench.events() if event == "warning"]
    assert warnings
    assert all("memory" in reason for reason in warnings)
    assert bench.counter("batch_size") == batch_size >> len(warnings)
    assert bench.counter("batch_size") >= MIN_BATCH_SIZE
    assert all(map(math.isfinite, bench.figures().values()))


@pytest.mark.gpu
def test_replay_that_does_not_fit_into_the_gpu_is_halved(bench: Bench, gpu_memory: Any) -> None:
    gpu_memory(2**30)
    rows = 4 * 2**30 // LAYOUT.row_bytes
    learner = bench.learner(device="cuda", update_engine="eager", replay_rows=rows)
    warnings = [reason for event, reason in bench.events() if event == "warning"]
    assert warnings
    assert f"{rows >> len(warnings)}" in warnings[-1]
    bench.write(random_rows(1000))
    turn_until(learner, bench, updates=3)
    assert bench.counter("replay_rows") == 1000
