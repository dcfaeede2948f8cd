"""Ways to run updates: each does as many as it says, and on a GPU goes where the eager ones go, or is not used."""

from __future__ import annotations

import sys
import time
from typing import Any

import making
import numpy as np
import pytest
import torch
from torch import Tensor

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.kernels.operations import PLAIN, Operations
from spreeze.algorithms.sac import Sac
from spreeze.algorithms.td3 import Td3
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.learning import updates as updates_module
from spreeze.learning.replay import Replay
from spreeze.learning.updates import (
    GUARD_TOLERANCE,
    UPDATES_PER_LAUNCH,
    AdvancingUpdates,
    EagerUpdates,
    Engine,
    GraphUpdates,
    Updates,
    _Compiler,
    make_updates,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LAYOUT = RowLayout(17, 6)
GUARD_S = 300.0  # ends a test that would hang; nothing is asserted about time
CRITIC_LOSS = [figure.name for figure in Sac.figures].index("critic_loss")
ENGINES: tuple[Engine, ...] = ("auto", "eager", "graph", "fused")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fused() -> Operations:
    pytest.importorskip("triton")
    from spreeze.algorithms.kernels.fused import FUSED

    return FUSED


class Events(list[tuple[str, str]]):
    """The events that were recorded, in order."""

    def __call__(self, kind: str, reason: str, **_details: object) -> None:
        self.append((kind, reason))


def make(kind: type[ActorCritic], **shared: Any) -> Any:
    shared = {"tau": 0.02, "device": CUDA, "seed": 1, **shared}
    return making.make(kind, LAYOUT.observation_size, LAYOUT.action_size, (64, 64), **shared)


def make_sac(device: torch.device) -> Sac:
    sac: Sac = make(Sac, device=device)
    return sac


def random_rows(count: int, seed: int = 0) -> Rows:
    rows = np.random.default_rng(seed).standard_normal((count, LAYOUT.width)).astype(np.float32)
    rows[:, LAYOUT.action] = np.tanh(rows[:, LAYOUT.action])
    rows[:, LAYOUT.terminated] = rows[:, LAYOUT.terminated] > 1.5
    rows[:, LAYOUT.discount] = 0.99
    return rows


def make_replay(device: torch.device, rows: Rows | None = None) -> Replay:
    replay = Replay(LAYOUT, 10_000, device)
    replay.add(random_rows(5000) if rows is None else rows)
    replay.flush()
    return replay


def updates_of(algorithm: Sac) -> int:
    """Updates that the algorithm has had, by the optimisers' own count."""
    steps = {int(optimiser.steps.item()) for optimiser in algorithm.optimisers.values()}
    assert len(steps) == 1
    return steps.pop()


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def share_of_the_way(mine: list[Tensor], theirs: list[Tensor], start: list[Tensor]) -> float:
    """How far apart parameters are, as a share of how far they moved; the largest of all networks."""
    for there, origin in zip(theirs, start, strict=True):
        assert not torch.equal(there, origin)
    return max(
        float((here - there).norm() / (there - origin).norm())
        for here, there, origin in zip(mine, theirs, start, strict=True)
    )


# --- eager ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 8, sys.maxsize])
def test_eager_launch_is_one_update(most: int) -> None:
    algorithm = make_sac(CPU)
    updates = EagerUpdates(algorithm, make_replay(CPU))
    for count in (1, 2, 3):
        assert updates.launch(16, most) == 1
        assert updates_of(algorithm) == count


def test_eager_updates_report_the_losses_of_the_last_one() -> None:
    algorithm, twin, replay = make_sac(CPU), make_sac(CPU), make_replay(CPU)
    updates = EagerUpdates(algorithm, replay)
    torch.manual_seed(5)
    for _ in range(3):
        updates.launch(32, 8)
    torch.manual_seed(5)
    expected = [twin.report(twin.update(replay.draw(32))) for _ in range(3)]
    assert updates.figures.shape == (len(Sac.figures),)
    assert torch.equal(updates.figures, expected[-1])
    assert not torch.equal(updates.figures, expected[-2])
    assert torch.equal(algorithm.actor.flat, twin.actor.flat)


def test_eager_updates_keep_no_graph_of_autograd() -> None:
    # One that lives on belongs to its stream, and breaks the next capture of a CUDA graph.
    updates = EagerUpdates(make_sac(CPU), make_replay(CPU))
    updates.launch(16, 1)
    assert updates._terms
    assert [name for name, term in updates._terms.items() if term.grad_fn is not None] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_cpu_updates_are_eager_whatever_is_asked_for(engine: Engine) -> None:
    events = Events()
    updates = make_updates(engine, make_sac(CPU), make_replay(CPU), events)
    assert isinstance(updates, EagerUpdates)
    updates.launch(16, 8)
    assert events == []


# --- captured ---------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("batch_size", [64, 256, 2048])
@pytest.mark.parametrize(("name", "limit"), [("plain", 0.05), ("fused", GUARD_TOLERANCE)])
def test_captured_updates_go_where_the_eager_ones_go(
    name: str, limit: float, batch_size: int, request: pytest.FixtureRequest
) -> None:
    operations = PLAIN if name == "plain" else request.getfixturevalue("fused")
    algorithm, replay = make_sac(CUDA), make_replay(CUDA)
    EagerUpdates(algorithm, replay).launch(64, 1)  # so that the state is not the first one
    before, random_state = copies(algorithm.state()), torch.cuda.get_rng_state()
    is_tf32 = torch.backends.cuda.matmul.allow_tf32

    deviation = GraphUpdates(algorithm, replay, operations).deviation(batch_size)

    assert 0 <= deviation < limit
    for now, then in zip(algorithm.state(), before, strict=True):
        assert torch.equal(now, then)
    assert torch.equal(torch.cuda.get_rng_state(), random_state)
    assert torch.backends.cuda.matmul.allow_tf32 == is_tf32


@pytest.mark.gpu
def test_deviation_is_large_where_updates_differ() -> None:
    algorithm, replay = make_sac(CUDA), make_replay(CUDA)
    for dense in WRONG.values():
        wrong = PLAIN._replace(name="wrong", dense=dense)
        assert GraphUpdates(algorithm, replay, wrong).deviation(256) > GUARD_TOLERANCE


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("most", "count"), [(1, 1), (2, 1), (7, 1), (8, 8), (9, 8), (1000, 8), (sys.maxsize, UPDATES_PER_LAUNCH)]
)
def test_captured_launch_is_as_many_updates_as_it_says(most: int, count: int) -> None:
    algorithm, replay = make_sac(CUDA), make_replay(CUDA)
    updates = GraphUpdates(algorithm, replay, PLAIN)
    updates.deviation(64)
    seen = copies(algorithm.parameters())
    for launch in (1, 2, 3):
        assert updates.launch(64, most) == count
        assert updates_of(algorithm) == launch * count
        for now, then in zip(algorithm.parameters(), seen, strict=True):
            assert now.isfinite().all()
            assert not torch.equal(now, then)
        seen = copies(algorithm.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "limit"), [("plain", 0.1), ("fused", GUARD_TOLERANCE)])
def test_graphs_of_several_batch_sizes_work_alternately(
    name: str, limit: float, request: pytest.FixtureRequest
) -> None:
    operations = PLAIN if name == "plain" else request.getfixturevalue("fused")
    algorithm, twin, replay = make_sac(CUDA), make_sac(CUDA), make_replay(CUDA)
    updates, eager = GraphUpdates(algorithm, replay, operations), EagerUpdates(twin, replay)
    updates.deviation(256)
    start, launched = copies(algorithm.parameters()), 0
    # The second size is captured without a warm-up, and has other tiles than the first; then both are used again.
    for turn, (batch_size, most) in enumerate([(256, 8), (2048, 1), (256, 1), (2048, 8), (256, 8), (2048, 1)]):
        torch.manual_seed(turn)  # both draw the same rows and the same noise
        count = updates.launch(batch_size, most)
        torch.manual_seed(turn)
        for _ in range(count):
            eager.launch(batch_size, 1)
        launched += count
        assert updates_of(algorithm) == updates_of(twin) == launched
        assert updates.figures.tolist() == pytest.approx(eager.figures.tolist(), rel=0.05, abs=0.02)
    assert launched == 8 + 1 + 1 + 8 + 8 + 1
    assert share_of_the_way(algorithm.parameters(), twin.parameters(), start) < limit


@pytest.mark.gpu
def test_captured_draw_sees_rows_that_come_later() -> None:
    first = random_rows(1)
    first[:, LAYOUT.reward] = 1.0
    replay = make_replay(CUDA, first)
    replay.draw(4096)  # loads its kernels, which a capture cannot
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch = replay.draw(4096)
    graph.replay()
    assert set(batch.reward.tolist()) == {1.0}

    later = random_rows(9, seed=1)
    later[:, LAYOUT.reward] = np.arange(2, 11)
    replay.add(later)
    graph.replay()
    assert set(batch.reward.tolist()) == {1.0}  # added, but not yet sent
    replay.flush()
    graph.replay()
    assert set(batch.reward.tolist()) == {float(reward) for reward in range(1, 11)}


@pytest.mark.gpu
def test_captured_updates_learn_from_rows_that_come_later() -> None:
    rows = random_rows(10)
    rows[:, LAYOUT.terminated] = 1  # the target is the reward
    rows[:, LAYOUT.reward] = 0
    replay, algorithm = make_replay(CUDA, rows[:1]), make_sac(CUDA)
    updates = GraphUpdates(algorithm, replay, PLAIN)
    updates.deviation(256)
    updates.launch(256, 8)
    assert updates.figures[CRITIC_LOSS] < 10
    rows[:, LAYOUT.reward] = 1000
    replay.add(rows)
    replay.flush()
    updates.launch(256, 8)
    # Ten rows of eleven are wrong by a thousand, for both critics.
    assert updates.figures[CRITIC_LOSS] > 0.8 * 1000**2


# --- the fastest that is ready ----------------------------------------------------------------------------------


def without_bias(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    return PLAIN.dense(x, weight, torch.zeros_like(bias), relu)


def through_closed_relus(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    output = PLAIN.dense(x, weight, bias, False)
    return output + (output.relu() - output).detach() if relu else output


# Not a gradient of half the size: Adam's steps would be the same.
WRONG = {"bias left out": without_bias, "gradient through closed ReLUs": through_closed_relus}


def launch_until_recorded(updates: Updates, events: Events, count: int) -> int:
    """Launch until there are so many events; return how many updates that were."""
    launched, guard = 0, time.monotonic() + GUARD_S
    while len(events) < count and time.monotonic() < guard:
        launched += updates.launch(256, 8)
        torch.cuda.synchronize()  # or thousands of launches would queue up meanwhile
    assert len(events) == count, events
    return launched


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["auto", "fused"])
def test_updates_start_captured_and_go_on_with_fused_kernels(engine: Engine, fused: Operations) -> None:
    algorithm, replay, events = make_sac(CUDA), make_replay(CUDA), Events()
    updates = make_updates(engine, algorithm, replay, events)
    assert isinstance(updates, AdvancingUpdates)

    launched = updates.launch(256, 8)
    assert launched == 8
    ((event, reason),) = events
    assert event == "kernels"
    assert "plain" in reason
    assert algorithm.operations is PLAIN

    launched += launch_until_recorded(updates, events, 2)
    event, reason = events[1]
    assert event == "kernels"
    assert "fused" in reason
    assert isinstance(updates._last, GraphUpdates)
    assert updates._last.operations is fused
    assert algorithm.operations is PLAIN  # what the next batch size will be compared with
    for most, count in ((8, 8), (1, 1), (8, 8)):
        assert updates.launch(256, most) == count
        launched += count
    assert updates_of(algorithm) == launched
    assert updates.figures.isfinite().all()
    assert all(tensor.isfinite().all() for tensor in algorithm.state())
    assert len(events) == 2


@pytest.mark.gpu
def test_another_batch_size_is_prepared_while_updates_run(fused: Operations) -> None:
    algorithm, replay, events = make_sac(CUDA), make_replay(CUDA), Events()
    updates = make_updates("auto", algorithm, replay, events)
    assert not updates.is_steady
    launched = updates.launch(256, 8) + launch_until_recorded(updates, events, 2)
    assert updates.is_steady

    guard = time.monotonic() + GUARD_S
    assert not updates.ready(2048)  # other tiles: they have to be compiled
    while not updates.ready(2048):
        assert time.monotonic() < guard
        launched += updates.launch(256, 8)
        torch.cuda.synchronize()
    for batch_size in (2048, 256, 2048):
        assert updates.ready(batch_size)
        launched += updates.launch(batch_size, 8)
    assert updates_of(algorithm) == launched
    assert isinstance(updates, AdvancingUpdates)
    assert isinstance(updates._last, GraphUpdates)
    assert updates._last.operations is fused
    assert [event for event, _ in events] == ["kernels"] * 3
    assert "2048" in events[2][1]


@pytest.mark.gpu
def test_kernels_that_are_wrong_for_one_batch_size_are_used_for_the_others(fused: Operations) -> None:
    algorithm, replay, events = make_sac(CUDA), make_replay(CUDA), Events()
    updates = make_updates("auto", algorithm, replay, events)
    assert isinstance(updates, AdvancingUpdates)
    launched = updates.launch(256, 8) + launch_until_recorded(updates, events, 2)
    updates._refused.add((fused.name, 512))
    for batch_size, expected in ((512, PLAIN), (256, fused), (512, PLAIN)):
        launched += updates.launch(batch_size, 8)
        assert isinstance(updates._last, GraphUpdates)
        assert updates._last.operations is expected
    assert updates_of(algorithm) == launched


@pytest.mark.gpu
def test_what_was_learned_does_not_change_the_verdict(fused: Operations) -> None:
    algorithm, replay = make_sac(CUDA), make_replay(CUDA)
    updates = GraphUpdates(algorithm, replay, fused)
    before = updates.deviation(256)
    for _ in range(250):
        updates.launch(256, 8)
    learned = [tensor.clone() for tensor in algorithm.state()]
    assert updates.deviation(512) < GUARD_TOLERANCE
    assert before < GUARD_TOLERANCE
    assert all(torch.equal(now, then) for now, then in zip(algorithm.state(), learned, strict=True))


@pytest.mark.gpu
def test_graph_engine_stays_with_captured_updates() -> None:
    algorithm, events = make_sac(CUDA), Events()
    updates = make_updates("graph", algorithm, make_replay(CUDA), events)
    assert isinstance(updates, AdvancingUpdates)
    assert updates._compiler is None
    for _ in range(5):
        assert updates.launch(256, 8) == 8
    assert [event for event, _ in events] == ["kernels"]
    assert algorithm.operations is PLAIN


@pytest.mark.gpu
def test_eager_engine_is_eager_on_a_gpu_too() -> None:
    algorithm, events = make_sac(CUDA), Events()
    updates = make_updates("eager", algorithm, make_replay(CUDA), events)
    assert isinstance(updates, EagerUpdates)
    assert updates.launch(256, 8) == 1
    assert updates.figures.isfinite().all()
    assert events == []


@pytest.mark.gpu
@pytest.mark.parametrize("dense", WRONG.values(), ids=WRONG)
def test_wrong_kernels_are_refused_and_updates_go_on_as_before(
    dense: Any, fused: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spreeze.algorithms.kernels.fused.FUSED", fused._replace(name="wrong", dense=dense))
    algorithm, replay, events = make_sac(CUDA), make_replay(CUDA), Events()
    updates = make_updates("auto", algorithm, replay, events)
    assert isinstance(updates, AdvancingUpdates)
    launched = updates.launch(256, 8)
    current = updates._last

    launched += launch_until_recorded(updates, events, 2)

    event, reason = events[1]
    assert event == "warning"
    assert "wrong" in reason
    assert "not used" in reason
    assert updates._last is current
    assert algorithm.operations is PLAIN
    for most, count in ((8, 8), (1, 1), (8, 8)):
        assert updates.launch(256, most) == count
        launched += count
    assert updates_of(algorithm) == launched
    assert updates.figures.isfinite().all()
    assert len(events) == 2


@pytest.mark.gpu
def test_kernels_that_do_not_compile_are_recorded_and_updates_go_on(
    fused: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dense(*_: object) -> Tensor:
        raise RuntimeError("no C compiler here")

    monkeypatch.setattr("spreeze.algorithms.kernels.fused.FUSED", fused._replace(dense=dense))
    algorithm, events = make_sac(CUDA), Events()
    updates = make_updates("auto", algorithm, make_replay(CUDA), events)
    launched = updates.launch(256, 8) + launch_until_recorded(updates, events, 2)
    event, reason = events[1]
    assert event == "kernels"
    assert "cannot be used here: RuntimeError: no C compiler here" in reason
    launched += updates.launch(256, 8)
    assert updates_of(algorithm) == launched


@pytest.mark.gpu
def test_where_no_captured_way_is_right_updates_are_eager(fused: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates_module, "GUARD_TOLERANCE", -1.0)
    algorithm, events = make_sac(CUDA), Events()
    updates = make_updates("auto", algorithm, make_replay(CUDA), events)
    launched = updates.launch(256, 8)
    assert launched == 1
    launched += launch_until_recorded(updates, events, 2)
    assert [event for event, _ in events] == ["warning", "warning"]
    assert "plain" in events[0][1]
    assert fused.name in events[1][1]
    assert updates.launch(256, 8) == 1
    assert updates_of(algorithm) == launched + 1
    assert algorithm.operations is PLAIN


@pytest.mark.gpu
def test_kernels_are_compiled_while_another_graph_is_captured(fused: Operations) -> None:
    # The first launch may be a single update, whose graph is captured while the thread that compiles runs.
    algorithm, replay = make_sac(CUDA), make_replay(CUDA)
    compiler = _Compiler(algorithm, replay)
    captured, graph = torch.zeros(1, device=CUDA), torch.cuda.CUDAGraph()
    replay.draw(256)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        captured.add_(1)
        compiler.start(256)
        assert compiler._thread is not None
        compiler._thread.join(GUARD_S)
        captured.add_(1)
    assert compiler.is_done
    assert compiler.failure == ""
    assert compiler.operations is fused
    graph.replay()
    assert captured.item() == 2


# --- every algorithm ----------------------------------------------------------------------------------------------

KINDS: tuple[type[ActorCritic], ...] = (Sac, Td3, Ddpg)
ATOMS = {"atoms": 11, "value_range": (-5.0, 5.0)}


@pytest.mark.gpu
@pytest.mark.parametrize("fields", [{}, {"actor_delay": 3}, {"layer_norm": True}, {"role": "critic"}, ATOMS])
@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_every_algorithm_are_captured_right(
    kind: type[ActorCritic], fields: dict[str, Any], fused: Operations
) -> None:
    for operations in (PLAIN, fused):
        algorithm = make(kind, **fields)
        deviation = GraphUpdates(algorithm, make_replay(CUDA), operations).deviation(256)
        assert deviation <= GUARD_TOLERANCE, operations.name
        assert algorithm.phase == 0


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_captured_updates_keep_the_actors_turn(kind: type[ActorCritic]) -> None:
    algorithm = make(kind, actor_delay=3)
    updates = GraphUpdates(algorithm, make_replay(CUDA), PLAIN)
    updates.deviation(64)
    done = 0
    for most in (1, 1, 1, 1, 8, 1, 8, 8):
        done += updates.launch(64, most)
        assert int(algorithm.optimisers["critic"].steps) == done
        assert int(algorithm.optimisers["actor"].steps) == done // 3
