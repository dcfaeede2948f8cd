"""A sampler: steps its environments with the newest policy and writes every transition into its channel.

Samplers come and go during a run: one that is asked to leave ends after its step, with all its rows written.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.pacing import RatioGate
from spreeze.channels.transitions import RowLayout
from spreeze.config import SamplingConfig
from spreeze.environments.backend import make_envs
from spreeze.host.priority import lower_priority
from spreeze.policy.actor import Actor, make_actor
from spreeze.sampling.multi_step import MultiStep

NOISE_STEPS = 64
GOLDEN_RATIO = (5**0.5 - 1) / 2
NICENESS = 5
RATIO_WAIT_S = 0.001  # a learner on a CPU makes a few hundred updates a second: looking more often tells nothing new


def run(brief: Brief, _messages: MessageWriter) -> None:
    """Sample until told to stop."""
    config, control = brief.config, brief.channels.control
    control.beat(brief.slot)
    count = int(config.sampling.envs_per_sampler)
    # A stream of seeds for each sampler, so that no two environments of a run play the same episodes; nor those of a
    # sampler that had the same channel before.
    stream = [config.seed, brief.index, brief.generation]
    seeds = np.random.SeedSequence(stream).generate_state(count).tolist()
    envs = make_envs(brief.env, count, seeds, lambda: control.beat(brief.slot))
    brief.spaces.require_same(envs.spaces)
    layout = RowLayout(envs.spaces.observation_size, envs.spaces.action_size)
    rng = np.random.Generator(np.random.SFC64([*stream, 1]))
    writer = brief.channels.transitions[brief.index].writer()
    weights = brief.channels.weights.reader()
    counters = brief.channels.metrics.samplers[brief.index : brief.index + 1]
    env_steps = counters["env_steps"]
    gate = RatioGate(config, brief.channels.metrics, control)
    if not config.learning.min_updates_per_step:
        # Nothing holds these samplers back from any core, and learner and evaluator need theirs more.
        lower_priority(NICENESS)
    rows = np.zeros((count, layout.width), np.float32)
    gamma = float(config.learning.gamma)
    rows[:, layout.discount] = gamma
    several = MultiStep(layout, count, int(config.learning.n_step), gamma)
    ended = np.zeros(count, bool)
    actor: Actor | None = None
    noise = _noise((count, layout.action_size), rng)
    scale = _noise_scale(config.sampling, brief.index, count)

    def stopping() -> bool:
        control.beat(brief.slot)  # who waits for room, because the learner is busy or away, does not hang
        return control.stopping()

    # What was made until now stays for good: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    while not control.dismissed(brief.slot):
        control.beat(brief.slot)
        if not gate.sampler_may_step():
            # The learner is behind the wanted ratio. Sleeping leaves it the core.
            started = time.monotonic()
            if gate.has_all_steps():
                writer.write(several.flush(), stopping)  # the run ends when all its steps have arrived
            time.sleep(RATIO_WAIT_S)
            counters["ratio_wait_s"] += time.monotonic() - started
            continue
        if (newer := weights.newest()) is not None:
            actor = make_actor(newer.tensors, newer.metadata, count)
            counters["policy_published_at"] = newer.published_at
        if actor is None:  # no version yet: the random warm-up
            actions = rng.uniform(-1.0, 1.0, (count, layout.action_size)).astype(np.float32)
        else:
            actions = actor.sample(envs.observations, next(noise) * scale)
        rows[:, layout.observation] = envs.observations
        finished = envs.step(actions)
        rows[:, layout.action] = actions
        rows[:, layout.reward] = envs.rewards
        rows[:, layout.next_observation] = envs.next_observations
        rows[:, layout.terminated] = envs.terminated
        if config.learning.n_step == 1:
            waited_s = writer.write(rows, stopping)
        else:
            ended[:] = False
            ended[[i for i, _, _ in finished]] = True
            waited_s = writer.write(several.add(rows, ended), stopping)
        if waited_s:
            counters["ring_wait_s"] += waited_s
        if not env_steps[0]:
            counters["first_step_at"] = time.monotonic()
        env_steps[0] += count
        for _, episode_return, _ in finished:
            if math.isfinite(episode_return):  # a sum with a NaN in it would stay one
                counters["return_sum"] += episode_return
                counters["episodes"] += 1
    writer.write(several.flush(), stopping)
    counters["policy_published_at"] = 0.0  # what does not act has no lag
    writer.close(deliver=not control.stopping())
    envs.close()


def _noise_scale(sampling: SamplingConfig, index: int, count: int) -> NDArray[np.float32]:
    """Return how much noise each environment explores with, spread evenly over all samplers (Horgan et al. 2018)."""
    low, high = float(sampling.exploration), float(sampling.exploration_high)
    # Multiples of the golden ratio leave no gap, however many there will be.
    places = (np.arange(index * count, (index + 1) * count) * GOLDEN_RATIO) % 1.0
    return (low + (high - low) * places).astype(np.float32)[:, None]


def _noise(shape: tuple[int, int], rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
    """Yield standard normal noise, drawn for many steps at once: each call costs more than its numbers do."""
    while True:
        yield from rng.standard_normal((NOISE_STEPS, *shape), dtype=np.float32)
