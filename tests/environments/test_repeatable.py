"""Episodes that are played again: the same rows from there on, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.environments.repeatable import RepeatableBatch

STREAM = (4, 0, 1)


def play(envs: EnvBatch, steps: int, seed: int) -> list[bytes]:
    """Step with the same random actions each time; return every row and every end of an episode."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        actions = rng.uniform(-1, 1, (len(envs), envs.spaces.action_size)).astype(np.float32)
        ends = envs.step(actions)
        rows = (envs.next_observations, envs.rewards, envs.terminated, envs.observations)
        seen.append(b"".join(array.tobytes() for array in rows) + repr(ends).encode())
    return seen


@pytest.mark.parametrize(("name", "limit"), [("Pendulum-v1", 30), ("Hopper-v5", None), ("HalfCheetah-v5", 50)])
def test_episodes_continue_bit_by_bit_where_they_were(name: str, limit: int | None) -> None:
    spec = EnvSpec(name, max_episode_steps=limit)
    envs = RepeatableBatch(spec, 3, STREAM)
    play(envs, 45, seed=0)
    state = envs.state()
    assert state["steps"].sum() == len(state["actions"])
    expected = play(envs, 60, seed=1)
    others = RepeatableBatch(spec, 3, STREAM)
    assert others.restore(state)
    assert play(others, 60, seed=1) == expected
    assert [others.so_far(i) for i in range(3)] == [envs.so_far(i) for i in range(3)]
    for each in (envs, others):
        each.close()


def test_episodes_have_seeds_of_their_own() -> None:
    envs = RepeatableBatch(EnvSpec("Pendulum-v1", max_episode_steps=1), 2, STREAM)
    starts = [envs.observations.copy()]
    for _ in range(5):
        play(envs, 1, seed=0)
        starts.append(envs.observations.copy())
    assert len(np.unique(np.concatenate(starts), axis=0)) == 12
    others = RepeatableBatch(EnvSpec("Pendulum-v1"), 2, (*STREAM[:2], 2))
    assert not np.array_equal(others.observations, starts[0])
    for each in (envs, others):
        each.close()


def test_a_state_that_is_not_reached_again_is_told() -> None:
    envs = RepeatableBatch(EnvSpec("Pendulum-v1"), 2, STREAM)
    play(envs, 5, seed=0)
    state = envs.state()
    state["actions"][3] += 0.5
    other = RepeatableBatch(EnvSpec("Pendulum-v1"), 2, STREAM)
    assert not other.restore(state)
    for each in (envs, other):
        each.close()
