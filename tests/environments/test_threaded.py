"""Environments in threads of their own, held against the same environments one at a time."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from waiting_envs import Gated, Walk

from spreeze.config.env_spec import EnvSpec
from spreeze.config.groups import Backend
from spreeze.environments import threaded
from spreeze.environments.backend import choose_backend, choose_serial_backend, make_envs
from spreeze.environments.batch import EnvBatch
from spreeze.environments.stepped import Environments
from spreeze.environments.threaded import ThreadedEnvs
from spreeze.errors import EnvironmentSetupError

Taken = tuple[bytes, ...]


@pytest.fixture(autouse=True)
def gated() -> Iterator[None]:
    yield
    for env in Gated.made:
        env.open()
    Gated.made.clear()


def gated_envs(count: int, hang_s: float = 60.0) -> ThreadedEnvs:
    spec = EnvSpec("Gated()", factory=Gated, hang_s=hang_s)
    envs = ThreadedEnvs(spec, count, range(count))
    order = {thread.env: i for i, thread in enumerate(envs._threads)}
    Gated.made.sort(key=lambda env: order[env])
    return envs


def zeros(envs: Environments) -> Any:
    return np.zeros((len(envs), envs.spaces.action_size), np.float32)


def indices(which: Any) -> list[int]:
    return np.asarray(which).tolist()


def step_forever(envs: ThreadedEnvs) -> None:
    while True:
        envs.step(zeros(envs))


def step_until(envs: ThreadedEnvs, stepped: list[int]) -> None:
    """Step until these have stepped, and no others."""
    seen: list[int] = []
    while sorted(seen) != stepped:
        envs.step(zeros(envs))
        seen += indices(envs.stepped)
        assert set(seen) <= set(stepped)


def alone(spec: EnvSpec, seed: int, actions: Any) -> list[Taken]:
    """What an environment gives on its own."""
    envs, rows = EnvBatch(spec, 1, [seed]), []
    for action in actions:
        before = envs.observations[0].tobytes()
        finished = envs.step(action[None])
        rows.append(_row(before, envs, 0, finished[0][1:] if finished else None))
    return rows


def _row(before: bytes, envs: Any, i: int, episode: Any) -> Taken:
    return (
        before,
        envs.next_observations[i].tobytes(),
        envs.rewards[i].tobytes(),
        envs.terminated[i].tobytes(),
        envs.ended[i].tobytes(),
        repr(episode).encode(),
    )


@pytest.mark.parametrize("limit", [None, 4])
def test_rows_are_those_of_each_environment_alone(limit: int | None) -> None:
    seeds, steps = [11, 12, 13, 14, 15], 40
    spec = EnvSpec("Walk()", factory=Walk, kwargs={"ends": 0.1}, max_episode_steps=limit)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps + 1, len(seeds), 2)).astype(np.float32)
    envs = ThreadedEnvs(spec, len(seeds), seeds)
    rows: list[list[Taken]] = [[] for _ in seeds]
    before = [b""] * len(seeds)
    while min(map(len, rows)) < steps:
        chosen = np.stack([actions[min(len(own), steps), i] for i, own in enumerate(rows)])
        for i in indices(envs.idle):
            before[i] = envs.observations[i].tobytes()
        finished = {i: (episode_return, length) for i, episode_return, length in envs.step(chosen)}
        for i in indices(envs.stepped):
            rows[i].append(_row(before[i], envs, i, finished.get(i)))
        assert not set(finished) - set(indices(envs.stepped))
    envs.close()
    for i, seed in enumerate(seeds):
        assert rows[i][:steps] == alone(spec, seed, actions[:steps, i])


def test_nobody_waits_for_the_reset_or_the_step_of_another() -> None:
    envs = gated_envs(3)
    first, second, third = Gated.made
    third.gate.release(11)  # the others are in their first reset
    for _ in range(10):
        step_until(envs, [2])
    assert (first.steps, second.steps, third.steps) == (0, 0, 10)
    second.gate.release(2)
    step_until(envs, [1])
    first.gate.release(2)
    step_until(envs, [0])
    assert envs.observations.tolist() == [[1.0], [1.0], [10.0]]
    envs.close()


def test_each_environment_has_one_thread_from_its_making_to_its_close() -> None:
    envs = gated_envs(3)
    for env in Gated.made:
        env.gate.release(2)
    step_until(envs, [0, 1, 2])
    threads = [env.threads for env in Gated.made]
    assert all(len(own) == 1 for own in threads)
    assert len(set.union(*threads) | {threading.get_ident()}) == 4
    envs.close()
    assert [env.closed for env in Gated.made] == [1, 1, 1]
    envs.close()
    assert [env.closed for env in Gated.made] == [1, 1, 1]


@pytest.mark.parametrize("where", ["reset", "step"])
def test_what_an_environment_raises_is_raised_with_its_own_traceback(where: str) -> None:
    envs = gated_envs(2)
    Gated.made[1].raises = where
    Gated.made[0].gate.release(1)
    Gated.made[1].gate.release(2)
    with pytest.raises(ZeroDivisionError) as raised:
        step_forever(envs)
    text = "".join(traceback.format_exception(raised.value))
    assert "waiting_envs.py" in text
    assert f"in the {where} of environment 1 of 2" in text
    envs.close()
    assert [env.closed for env in Gated.made] == [1, 1]


def test_an_environment_that_cannot_be_made_is_refused_and_the_others_are_closed() -> None:
    waiting = iter([Gated, Gated])

    def make() -> Any:
        kind = next(waiting, None)
        if kind is None:
            raise RuntimeError("no licence left")
        return kind()

    with pytest.raises(EnvironmentSetupError, match="no licence left"):
        ThreadedEnvs(EnvSpec("Gated()", factory=make), 3, [0, 1, 2])
    assert [env.closed for env in Gated.made] == [1, 1]


def test_an_environment_that_is_stuck_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threaded, "CLOSE_S", 0.05)
    envs = gated_envs(2)
    Gated.made[0].gate.release(1)
    envs.step(zeros(envs))  # the second one is still in its reset
    threads = [thread.thread for thread in envs._threads]
    envs.close()  # which lets it go, as the end of a connection would
    assert [env.closed for env in Gated.made] == [1, 1]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_an_environment_that_hangs_is_told_while_others_step(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = gated_envs(2, hang_s=0.2)
    Gated.made[0].open()
    with pytest.raises(TimeoutError, match=r"environment 1 of 2 has been in its reset for 0.2 s \(--hang-s\)"):
        step_forever(envs)
    assert Gated.made[0].steps
    monkeypatch.setattr(threaded, "CLOSE_S", 0.05)
    envs.close()


def test_a_call_without_an_answer_returns_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threaded, "WAIT_S", 0.01)
    envs = gated_envs(1)
    assert envs.step(zeros(envs)) == []
    assert not indices(envs.stepped)
    assert not indices(envs.idle)
    Gated.made[0].gate.release(2)
    step_until(envs, [0])
    envs.close()


def test_reset_starts_new_episodes_also_where_a_step_is_under_way() -> None:
    envs = gated_envs(2)
    first, second = Gated.made
    second.gate.release(1)
    while not second.is_in_step.is_set():
        envs.step(zeros(envs))
    first.gate.release(3)
    step_until(envs, [0])
    step_until(envs, [0])
    assert envs.so_far(0) == (2.0, 2)
    envs.reset([5, 6])  # the second one is in its first step, whose result belongs to the episode before
    first.gate.release(2)
    second.gate.release(3)
    step_until(envs, [0, 1])
    assert [envs.so_far(i) for i in (0, 1)] == [(1.0, 1), (1.0, 1)]
    assert second.steps == 2
    envs.close()


def test_who_rests_is_neither_stepped_nor_reset() -> None:
    spec = EnvSpec("Walk()", factory=Walk, max_episode_steps=2)
    envs = ThreadedEnvs(spec, 2, [0, 1])
    ended: list[int] = []
    while 0 not in ended:
        for i, _, _ in envs.step(zeros(envs)):
            ended.append(i)
            if i == 0:
                envs.rest(0)
    for _ in range(10):
        envs.step(zeros(envs))
        assert 0 not in indices(envs.stepped)
        assert 0 not in indices(envs.idle)
    envs.reset([0, 1])
    while 0 not in indices(envs.stepped):
        envs.step(zeros(envs))
    envs.close()


def test_threads_are_used_where_they_are_asked_for() -> None:
    spec = EnvSpec("Walk()", factory=Walk)
    assert isinstance(make_envs(spec, 1, [0]), EnvBatch)
    threaded_envs = make_envs(EnvSpec("Walk()", factory=Walk, has_threads=True), 1, [0])
    assert isinstance(threaded_envs, ThreadedEnvs)
    threaded_envs.close()


def test_threads_and_what_they_cannot_be_combined_with() -> None:
    spec = EnvSpec("HalfCheetah-v5", backend="auto", has_threads=True)
    assert choose_backend(spec).value == "gymnasium"
    backends: tuple[Backend, ...] = ("mujoco", "envpool")
    for backend in backends:
        with pytest.raises(EnvironmentSetupError, match=f"--backend {backend} .* --env-threads yes .*leave one"):
            choose_backend(spec.with_backend(backend))
    with pytest.raises(EnvironmentSetupError, match=r"--env-threads yes .* --serial .*leave one"):
        choose_serial_backend(spec)


@pytest.mark.parametrize("has_threads", [False, True])
def test_staggered_episodes_end_one_after_the_other_and_short_ones_are_not_returned(has_threads: bool) -> None:
    spec = EnvSpec("Walk()", factory=Walk, max_episode_steps=8, has_threads=has_threads)
    envs = make_envs(spec, 4, [0, 1, 2, 3])
    envs.stagger()
    steps = np.zeros(4, int)
    ended_at: list[list[int]] = [[], [], [], []]
    finished: list[list[int]] = [[], [], [], []]
    while steps.min() < 24:
        for i, _, length in envs.step(zeros(envs)):
            finished[i].append(length)
        for i in np.arange(4)[envs.stepped].tolist():
            steps[i] += 1
            if steps[i] <= 24 and envs.ended[i]:
                ended_at[i].append(int(steps[i]))
                assert not envs.terminated[i]
    envs.close()
    assert ended_at == [[2, 10, 18], [4, 12, 20], [6, 14, 22], [8, 16, 24]]
    assert {length for lengths in finished for length in lengths} == {8}
    assert [len(lengths) >= count for lengths, count in zip(finished, (2, 2, 2, 3), strict=True)] == [True] * 4


def test_without_a_limit_there_is_nothing_to_stagger() -> None:
    envs = EnvBatch(EnvSpec("Walk()", factory=Walk), 2, [0, 1])
    envs.stagger()
    assert not any(envs.step(zeros(envs)) for _ in range(20))
