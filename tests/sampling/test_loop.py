"""A sampler's loop in this process: real environments, a real actor and real pacing; rows go into a list."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from waiting_envs import Walk

from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.pacing import RatioGate
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import make_envs
from spreeze.policy.actor import make_actor, random_actor
from spreeze.sampling.exploration import Exploration, noise_scale
from spreeze.sampling.loop import Clock, Sampler

ENVS, SEEDS, GAMMA = 2, [11, 12], 0.9
LAYOUT = RowLayout(3, 1)  # of Pendulum-v1
EPISODE_STEPS = 200
NOISE = {"exploration": 0.5, "exploration_high": 1.0}


class ListWriter:
    """Keeps the blocks that it is given."""

    def __init__(self) -> None:
        self.blocks: list[Rows] = []
        self.delivered: bool | None = None

    def write(self, rows: Rows, stopping: Callable[[], bool]) -> float:
        assert not stopping()
        self.blocks.append(rows.copy())
        return 0.0

    def close(self, deliver: bool) -> None:
        self.delivered = deliver

    @property
    def rows(self) -> Rows:
        return np.concatenate(self.blocks)


class Bench:
    """A sampler and what it was given."""

    def __init__(self, folder: Path, env: EnvSpec | None = None, clock: Clock | None = None, **fields: Any) -> None:
        chosen = {"min_updates_per_step": 0.0, "max_updates_per_step": None, "n_step": 1, **NOISE}
        config = Config("Pendulum-v1").replace(**{**chosen, **fields})
        self.writer, self.weights, self.metrics = ListWriter(), WeightsChannel(folder), MetricsChannel()
        self.counters = self.metrics.samplers[:1]
        self.envs = make_envs(env or EnvSpec(config.env), ENVS, SEEDS)
        action_size = self.envs.spaces.action_size
        scale = noise_scale(config.sampling, 0, ENVS)
        self.exploration = Exploration(scale, action_size, np.random.default_rng(5))
        self.same_noise = Exploration(scale, action_size, np.random.default_rng(5)).noise
        (folder / "weights").mkdir(exist_ok=True)
        self.sampler = Sampler(
            self.envs,
            self.exploration,
            self.writer,
            self.weights.reader(),
            RatioGate(config, self.metrics, ControlChannel()),
            self.counters,
            lambda: False,
            n_step=int(config.learning.n_step),
            gamma=GAMMA,
            clock=clock,
        )

    def turn(self, times: int) -> Rows:
        """Return what was written in so many turns, (turns, envs, width)."""
        before = len(self.writer.blocks)
        for _ in range(times):
            self.sampler.turn()
        return np.stack(self.writer.blocks[before:])


def test_without_a_policy_actions_are_random_and_rows_follow_one_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    rows = bench.turn(5)
    assert rows.shape == (5, ENVS, LAYOUT.width)
    assert len(np.unique(rows[..., LAYOUT.action])) == 5 * ENVS
    assert np.abs(rows[..., LAYOUT.action]).max() <= 1
    np.testing.assert_array_equal(rows[:-1, :, LAYOUT.next_observation], rows[1:, :, LAYOUT.observation])
    assert (rows[..., LAYOUT.reward] < 0).all()
    assert not rows[..., LAYOUT.terminated].any()
    np.testing.assert_array_equal(rows[..., LAYOUT.discount], np.float32(GAMMA))
    assert int(bench.counters["env_steps"][0]) == 5 * ENVS
    assert bench.counters["first_step_at"][0] > 0
    assert bench.counters["policy_published_at"][0] == 0


def test_from_its_publication_on_the_policy_acts_with_noise(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    tensors = {**random_actor(3, 1, (8,), seed=0), "action_low": np.array([-2], np.float32)}
    bench.weights.writer().publish({**tensors, "action_high": np.array([2], np.float32)}, {"policy": "gaussian"})
    rows = bench.turn(4)
    assert bench.counters["policy_published_at"][0] > 0
    actor = make_actor(tensors, {"policy": "gaussian"}, ENVS)
    for step in rows:
        observations = np.ascontiguousarray(step[:, LAYOUT.observation])
        np.testing.assert_array_equal(step[:, LAYOUT.action], actor.sample(observations, next(bench.same_noise)))


def test_episodes_that_end_are_counted_with_their_return(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    rows = bench.turn(EPISODE_STEPS + 3)
    assert int(bench.counters["episodes"][0]) == ENVS
    returns = rows[:EPISODE_STEPS, :, LAYOUT.reward].sum(dtype=np.float64)
    assert bench.counters["return_sum"][0] == pytest.approx(returns, rel=1e-5)
    # The row of an episode's end leads to its own last observation, not to the first one of the next episode.
    end, begin = rows[EPISODE_STEPS - 1, :, LAYOUT.next_observation], rows[EPISODE_STEPS, :, LAYOUT.observation]
    assert not np.array_equal(end, begin)


class BadBeginning(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives one reward in the first episode, and later ones as the task has them."""

    def __init__(self, reward: float) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self._reward: float | None = reward

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = reward if self._reward is None else self._reward
        self._reward = None if truncated else self._reward
        return observation, reward, terminated, truncated, info


@pytest.mark.filterwarnings(
    "ignore:overflow encountered in cast"
)  # to float32: the learner says which rows it rejects
@pytest.mark.parametrize("reward", [math.inf, math.nan, -1e20, 1e30])
def test_return_that_cannot_be_used_does_not_hide_later_ones(tmp_path: Path, reward: float) -> None:
    bench = Bench(tmp_path, EnvSpec("BadBeginning()", factory=lambda: BadBeginning(reward)))
    bench.turn(EPISODE_STEPS)
    assert (bench.counters["episodes"][0], bench.counters["return_sum"][0]) == (0, 0.0)
    rows = bench.turn(EPISODE_STEPS)
    assert int(bench.counters["episodes"][0]) == ENVS
    returns = rows[:, :, LAYOUT.reward].sum(dtype=np.float64)
    assert bench.counters["return_sum"][0] == pytest.approx(returns, rel=1e-5)


def test_transitions_over_several_steps_are_complete_at_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n_step=3)
    for _ in range(7):
        bench.sampler.turn()
    assert len(bench.writer.rows) == (7 - 2) * ENVS
    bench.sampler.finish(deliver=True)
    rows = bench.writer.rows
    assert len(rows) == 7 * ENVS
    lengths, counts = np.unique(rows[:, LAYOUT.discount], return_counts=True)
    np.testing.assert_allclose(lengths, [GAMMA**3, GAMMA**2, GAMMA], rtol=1e-6)
    assert counts.tolist() == [5 * ENVS, ENVS, ENVS]
    assert bench.writer.delivered is True
    assert bench.counters["policy_published_at"][0] == 0


def test_with_the_last_step_of_the_run_it_writes_what_it_holds_back_and_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n_step=3, max_env_steps=4 * ENVS)
    for _ in range(6):
        bench.sampler.turn()
    assert int(bench.counters["env_steps"][0]) == len(bench.writer.rows) == 4 * ENVS
    assert bench.counters["ratio_wait_s"][0] > 0


def test_it_waits_while_the_learner_is_behind(tmp_path: Path) -> None:
    bench = Bench(tmp_path, min_updates_per_step=1.0, warmup_steps=4)
    for _ in range(10):
        bench.sampler.turn()
    assert int(bench.counters["env_steps"][0]) == 3 * ENVS  # the last one began within the warm-up
    bench.metrics.learner["updates"] = 100
    assert len(bench.turn(2)) == 2


@pytest.mark.parametrize("n_step", [1, 3])
def test_rows_are_whole_where_environments_step_at_their_own_pace(tmp_path: Path, n_step: int) -> None:
    paces = iter([0.0, 0.003])
    spec = EnvSpec(
        "Walk()",
        factory=lambda: Walk(step_s=next(paces), noise=0.0),
        max_episode_steps=20,
        has_threads=True,
    )
    bench = Bench(tmp_path, spec, n_step=n_step)
    while int(bench.counters["episodes"][0]) < 6 * ENVS:
        bench.sampler.turn()
    assert 1 in {len(block) for block in bench.writer.blocks}  # not all of them stepped together
    bench.sampler.finish(deliver=True)
    rows, layout = bench.writer.rows, RowLayout(3, 2)
    assert len(rows) == int(bench.counters["env_steps"][0])
    of_one_step = rows[rows[:, layout.discount] == np.float32(GAMMA)]
    before, action, after = (
        of_one_step[:, it] for it in (layout.observation, layout.action, layout.next_observation)
    )
    np.testing.assert_allclose(after[:, :2], before[:, :2] + 2 * action, atol=1e-4)
    np.testing.assert_allclose(of_one_step[:, layout.reward], after.sum(axis=1), atol=1e-4)
    # Nothing is there twice: an observation belongs to one environment and one time.
    assert len(np.unique(rows[:, layout.observation], axis=0)) == len(rows)


class SteppedClock:
    """Says what is there when a step is to start, and allows some of them."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.may_start = True
        self.published: list[float] = []
        self.restarts_at: list[int] = []

    def wait(self) -> bool:
        assert self.bench is not None
        self.published.append(float(self.bench.counters["policy_published_at"][0]))
        return self.may_start

    def restart(self) -> None:
        self.restarts_at.append(len(self.published))


def test_with_a_clock_a_new_policy_is_loaded_while_the_deadline_is_awaited(tmp_path: Path) -> None:
    clock = SteppedClock()
    clock.bench = bench = Bench(tmp_path, clock=clock)
    tensors = {**random_actor(3, 1, (8,), seed=0), "action_low": np.array([-2], np.float32)}
    bench.weights.writer().publish({**tensors, "action_high": np.array([2], np.float32)}, {"policy": "gaussian"})
    first, second = bench.turn(2)
    assert clock.published[0] > 0  # there before the first step, whose action was chosen before
    twin = Exploration(noise_scale(Config("x").replace(**NOISE).sampling, 0, ENVS), 1, np.random.default_rng(5))
    np.testing.assert_array_equal(first[:, LAYOUT.action], twin.uniform_actions())
    observations = np.ascontiguousarray(second[:, LAYOUT.observation])
    actor = make_actor(tensors, {"policy": "gaussian"}, ENVS)
    np.testing.assert_array_equal(second[:, LAYOUT.action], actor.sample(observations, next(twin.noise)))


def test_there_is_no_step_that_the_clock_does_not_start_and_a_reset_starts_the_clock_again(tmp_path: Path) -> None:
    clock = SteppedClock()
    clock.bench = bench = Bench(tmp_path, clock=clock)
    clock.may_start = False
    bench.sampler.turn()
    assert not bench.writer.blocks
    assert bench.counters["env_steps"][0] == 0
    clock.may_start = True
    bench.turn(EPISODE_STEPS + 1)
    assert clock.restarts_at == [1 + EPISODE_STEPS]
