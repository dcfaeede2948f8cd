"""Transitions over several steps, held against sums written out by hand and against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze.channels.transitions import RowLayout, Rows
from spreeze.sampling.multi_step import MultiStep

LAYOUT = RowLayout(observation_size=1, action_size=1)
GAMMA = 0.5


def row(episode: int, step: int, terminated: bool = False) -> list[float]:
    """A step of an episode: it observes its number, and is rewarded with it."""
    number = 100.0 * episode + step
    return [number, -number, number, number + 1, float(terminated), GAMMA]


def steps(rows: list[list[float]]) -> Rows:
    return np.array(rows, np.float32)


def test_rewards_on_the_way_are_added_up_and_the_value_is_of_where_they_lead() -> None:
    several = MultiStep(LAYOUT, 1, 3, GAMMA)
    still = np.array([False])
    assert len(several.add(steps([row(0, 0)]), still)) == 0
    assert len(several.add(steps([row(0, 1)]), still)) == 0
    (first,) = several.add(steps([row(0, 2)]), still)
    np.testing.assert_allclose(first, [0, 0, 0 + 0.5 * 1 + 0.25 * 2, 3, 0, 0.5**3])
    (second,) = several.add(steps([row(0, 3)]), still)
    np.testing.assert_allclose(second, [1, -1, 1 + 0.5 * 2 + 0.25 * 3, 4, 0, 0.5**3])


@pytest.mark.parametrize("terminated", [True, False])
def test_at_the_end_of_an_episode_transitions_are_shorter(terminated: bool) -> None:
    several = MultiStep(LAYOUT, 1, 3, GAMMA)
    several.add(steps([row(0, 0)]), np.array([False]))
    ended = several.add(steps([row(0, 1, terminated)]), np.array([True]))
    np.testing.assert_allclose(ended, [[0, 0, 0.5, 2, terminated, 0.25], [1, -1, 1, 2, terminated, 0.5]])
    assert len(several.add(steps([row(1, 0)]), np.array([False]))) == 0  # nothing reaches into the next episode


def test_what_is_under_way_can_be_had_as_it_is() -> None:
    several = MultiStep(LAYOUT, 2, 4, GAMMA)
    several.add(steps([row(0, 0), row(5, 0)]), np.array([False, True]))
    several.add(steps([row(0, 1), row(6, 0)]), np.array([False, False]))
    flushed = several.flush()
    np.testing.assert_allclose(sorted(flushed.tolist()), [[0, 0, 0.5, 2, 0, 0.25], [1, -1, 1, 2, 0, 0.5], row(6, 0)])
    assert len(several.flush()) == 0


def expected(episodes: list[list[list[float]]], n: int) -> list[list[float]]:
    """What a plain loop makes of whole episodes."""
    made = []
    for episode in episodes:
        for begin in range(len(episode)):
            part = episode[begin : begin + n]
            total = sum(GAMMA**i * step[2] for i, step in enumerate(part))
            made.append([part[0][0], part[0][1], total, part[-1][3], part[-1][4], GAMMA ** len(part)])
    return made


@given(
    n=st.integers(1, 5),
    lengths=st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_every_step_begins_one_transition_whatever_the_episodes(n: int, lengths: list[list[int]]) -> None:
    envs = [
        [[row(10 * env + k, t, t == length - 1) for t in range(length)] for k, length in enumerate(own)]
        for env, own in enumerate(lengths)
    ]
    streams = [[(step, t == len(episode) - 1) for episode in env for t, step in enumerate(episode)] for env in envs]
    count = min(map(len, streams))
    several = MultiStep(LAYOUT, len(envs), n, GAMMA)
    made = [
        several.add(steps([stream[t][0] for stream in streams]), np.array([stream[t][1] for stream in streams]))
        for t in range(count)
    ]
    made.append(several.flush())
    whole = [expected(_until(env, count), n) for env in envs]
    np.testing.assert_allclose(
        sorted(np.concatenate(made).tolist()), sorted(r for rows in whole for r in rows), rtol=1e-6
    )


@settings(deadline=None)
@given(
    n=st.integers(1, 4),
    turns=st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3), max_size=30),
)
def test_environments_that_step_at_their_own_pace_are_as_each_alone(
    n: int, turns: list[list[tuple[bool, bool]]]
) -> None:
    together, alone = MultiStep(LAYOUT, 3, n, GAMMA), [MultiStep(LAYOUT, 1, n, GAMMA) for _ in range(3)]
    expected_rows: list[list[float]] = []
    made: list[list[float]] = []
    taken = [0, 0, 0]
    for turn in turns:  # whether each environment steps, and whether that ends its episode
        stepped = np.array([env for env, (steps_now, _) in enumerate(turn) if steps_now], np.intp)
        ended = np.array([steps_now and ends for steps_now, ends in turn])
        new = np.array([row(env, taken[env]) for env in stepped], np.float32).reshape(-1, LAYOUT.width)
        made += together.add(new, ended, stepped).tolist()
        for env, own in zip(stepped.tolist(), new, strict=True):
            expected_rows += alone[env].add(own[None], ended[env : env + 1]).tolist()
            taken[env] += 1
        assert sorted(made) == sorted(expected_rows)
    expected_rows += [flushed for each in alone for flushed in each.flush().tolist()]
    assert sorted(made + together.flush().tolist()) == sorted(expected_rows)


def test_what_is_held_back_can_be_restored_also_from_the_single_position_of_older_checkpoints() -> None:
    still = np.array([False, False])
    first, second = MultiStep(LAYOUT, 2, 3, GAMMA), MultiStep(LAYOUT, 2, 3, GAMMA)
    first.add(steps([row(0, 0), row(1, 0)]), still)
    state = first.state()
    second.restore({**state, "at": state["at"][:1]})
    for t in (1, 2):
        new = steps([row(0, t), row(1, t)])
        np.testing.assert_array_equal(first.add(new, still), second.add(new, still))


def _until(episodes: list[list[list[float]]], count: int) -> list[list[list[float]]]:
    """The first steps only: the last episode may be cut."""
    kept: list[list[list[float]]] = []
    for episode in episodes:
        kept.append(episode[:count])
        count -= len(kept[-1])
    return [episode for episode in kept if episode]
