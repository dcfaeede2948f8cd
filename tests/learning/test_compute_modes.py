from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from spreeze.algorithms.kernels.cpu import CPU
from spreeze.algorithms.kernels.operations import PLAIN
from spreeze.channels.metrics import LEARNER
from spreeze.config import Config
from spreeze.learning.compute_modes import TRIAL_ROUNDS, TRIAL_UPDATES, ComputeModes

ALL_UPDATES = TRIAL_ROUNDS * TRIAL_UPDATES * 2  # with one thread there are two modes


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Bench:
    def __init__(self, updates_critic: bool = True) -> None:
        self.algorithm: Any = SimpleNamespace(
            device=torch.device("cpu"), operations=None, updates_critic=updates_critic, phase=0
        )
        self.counters = np.zeros(1, LEARNER)
        self.events: list[tuple[str, dict[str, object]]] = []
        learning = Config("Pendulum-v1").replace(learner_threads=1).learning
        self.modes = ComputeModes(learning, self.algorithm, self.counters, self.record_event)

    def record_event(self, kind: str, _reason: str, **details: object) -> None:
        self.events.append((kind, details))


def test_the_fastest_mode_is_used_and_recorded() -> None:
    bench = Bench()
    assert bench.algorithm.operations is PLAIN
    used = set()
    for _ in range(ALL_UPDATES):
        assert not bench.modes.is_chosen
        used.add(bench.algorithm.operations.name)
        bench.modes.record(1.0 if bench.algorithm.operations is CPU else 2.0)
    assert bench.modes.is_chosen
    assert used == {PLAIN.name, CPU.name}
    assert bench.algorithm.operations is CPU
    assert bench.events == [("choice", {"setting": "update_engine", "value": CPU.name})]


def test_on_the_actors_side_only_its_own_steps_are_timed() -> None:
    bench = Bench(updates_critic=False)
    bench.algorithm.phase = 1
    for _ in range(2 * ALL_UPDATES):
        bench.modes.record(1.0)
    assert not bench.modes.is_chosen


def test_without_times_the_first_mode_stays_and_nothing_is_recorded() -> None:
    bench = Bench()
    for _ in range(ALL_UPDATES):
        bench.modes.record_untimed()
    assert bench.modes.is_chosen
    assert bench.algorithm.operations is PLAIN
    assert bench.events == []


def test_ordered_threads_are_used_and_0_orders_nothing() -> None:
    bench = Bench()
    assert int(bench.counters["learner_threads"][0]) == 1
    bench.modes.use_threads(0)
    assert int(bench.counters["learner_threads"][0]) == torch.get_num_threads() == 1
    bench.modes.use_threads(2)
    assert int(bench.counters["learner_threads"][0]) == torch.get_num_threads() == 2
