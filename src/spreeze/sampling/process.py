"""A sampler: steps its environments with the newest policy and writes every transition into its channel.

Samplers are started and dismissed during a run: one that is dismissed ends after its step, with all its rows written.
"""

from __future__ import annotations

import gc

import numpy as np

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.pacing import RatioGate
from spreeze.environments.backend import make_envs
from spreeze.environments.stepped import Environments
from spreeze.host.priority import lower_priority
from spreeze.sampling.exploration import Exploration, noise_scale
from spreeze.sampling.loop import RATIO_WAIT_S, Sampler

NICENESS = 5


def run(brief: Brief, _messages: MessageWriter) -> None:
    """Sample until dismissed or stopped."""
    control = brief.channels.control
    control.beat(brief.slot)
    sampler = open_sampler(brief, make_own_envs(brief))
    if not brief.config.learning.min_updates_per_step:
        # Nothing keeps these samplers off any core, and learner and evaluator need theirs more.
        lower_priority(NICENESS)
    # What was made until now stays for good: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    while not control.dismissed(brief.slot):
        control.beat(brief.slot)
        sampler.turn()
    sampler.finish(deliver=not control.stopping())


def seed_stream(brief: Brief) -> list[int]:
    """Return what the random numbers of a sampler derive from.

    No two environments of a run play the same episodes, nor those of a sampler that had the same channel before.
    """
    return [brief.config.seed, brief.index, brief.generation]


def make_own_envs(brief: Brief) -> Environments:
    """Make the environments of a sampler."""
    count, control = int(brief.config.sampling.envs_per_sampler), brief.channels.control
    seeds = np.random.SeedSequence(seed_stream(brief)).generate_state(count).tolist()
    envs = make_envs(brief.env, count, seeds, lambda: control.beat(brief.slot))
    if brief.config.sampling.stagger_episodes == "yes":
        envs.stagger()
    return envs


def open_sampler(brief: Brief, envs: Environments, wait_s: float = RATIO_WAIT_S) -> Sampler:
    """Open the channels of a sampler. wait_s: before it looks again whether the learner has caught up."""
    config, channels, control = brief.config, brief.channels, brief.channels.control
    brief.spaces.require_same(envs.spaces)
    rng = np.random.Generator(np.random.SFC64([*seed_stream(brief), 1]))

    def stopping() -> bool:
        control.beat(brief.slot)  # a sampler that waits for room, because the learner is busy or away, does not hang
        return control.stopping()

    return Sampler(
        envs,
        Exploration(noise_scale(config.sampling, brief.index, len(envs)), envs.spaces.action_size, rng),
        channels.transitions[brief.index].writer(),
        channels.weights.reader(),
        RatioGate(config, channels.metrics, control),
        channels.metrics.samplers[brief.index : brief.index + 1],
        stopping,
        n_step=int(config.learning.n_step),
        gamma=float(config.learning.gamma),
        wait_s=wait_s,
    )
