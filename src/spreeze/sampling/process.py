"""A sampler: steps its environments with the newest policy and writes every transition into its channel.

Samplers are started and dismissed during a run: one that is dismissed ends after its step, with all its rows written.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable

import numpy as np

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.pacing import RatioGate
from spreeze.environments.backend import make_envs
from spreeze.environments.stepped import Environments, Watcher
from spreeze.host.cores import take_own_core
from spreeze.host.lifetime import parent_has_ended
from spreeze.host.priority import lower_priority
from spreeze.sampling.clock import StepClock
from spreeze.sampling.exploration import make_exploration
from spreeze.sampling.loop import RATIO_WAIT_S, Clock, Sampler, Scores
from spreeze.sampling.robot import Robot
from spreeze.sampling.training_scores import TrainingScores

NICENESS = 5


def run(brief: Brief, messages: MessageWriter) -> None:
    """Sample until dismissed or stopped."""
    control = brief.channels.control
    control.beat(brief.slot)
    if brief.env.is_realtime:
        _run_robot(brief, messages)
        return
    sampler = open_sampler(brief, make_own_envs(brief))
    if not brief.config.learning.min_updates_per_step:
        # Nothing keeps these samplers off any core, and learner and evaluator need theirs more.
        lower_priority(NICENESS)
    _sample(brief, sampler, lambda: control.dismissed(brief.slot))
    sampler.finish(deliver=not control.stopping())


def _sample(brief: Brief, sampler: Sampler, is_over: Callable[[], bool]) -> None:
    # What was made until now stays for good: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    while not is_over():
        brief.channels.control.beat(brief.slot)
        sampler.turn()


def _run_robot(brief: Brief, messages: MessageWriter) -> None:
    """Sample likewise; close the environment first, whatever happens, and only then deliver the last rows."""
    control, record = brief.channels.control, brief.channels.metrics.clock
    robot = Robot(
        record,
        lambda: control.dismissed(brief.slot) or parent_has_ended(),
        lambda: control.beat(brief.slot),
        take_own_core,
    )
    robot.heed_signals()
    sampler: Sampler | None = None
    try:
        envs = make_own_envs(brief, robot)
        clock = StepClock(float(brief.config.sampling.realtime or math.inf), record, robot.is_over)
        scores = TrainingScores(brief.started_at, brief.config.evaluation.eval_episodes, messages)
        sampler = open_sampler(brief, envs, clock=clock, scores=scores)
        _sample(brief, sampler, robot.is_over)
    except Exception:
        if not robot.is_over():
            raise
        # Else it was closed while it was in a step.
    finally:
        robot.close()
    if sampler is not None and not parent_has_ended():
        sampler.deliver(deliver=not control.stopping())


def seed_stream(brief: Brief) -> list[int]:
    """Return what the random numbers of a sampler derive from.

    No two environments of a run play the same episodes, nor those of a sampler that had the same channel before.
    """
    return [brief.config.seed, brief.index, brief.generation]


def make_own_envs(brief: Brief, watcher: Watcher | None = None) -> Environments:
    """Make the environments of a sampler."""
    count, control = int(brief.config.sampling.envs_per_sampler), brief.channels.control
    seeds = np.random.SeedSequence(seed_stream(brief)).generate_state(count).tolist()
    envs = make_envs(brief.env, count, seeds, lambda: control.beat(brief.slot), watcher)
    if brief.config.sampling.stagger_episodes == "yes":
        envs.stagger()
    return envs


def open_sampler(
    brief: Brief,
    envs: Environments,
    wait_s: float = RATIO_WAIT_S,
    clock: Clock | None = None,
    scores: Scores | None = None,
) -> Sampler:
    """Open the channels of a sampler.

    wait_s: before it looks again whether the learner has caught up. clock, scores: of one real robot.
    """
    config, channels, control = brief.config, brief.channels, brief.channels.control
    brief.spaces.require_same(envs.spaces)
    rng = np.random.Generator(np.random.SFC64([*seed_stream(brief), 1]))

    def stopping() -> bool:
        control.beat(brief.slot)  # a sampler that waits for room, because the learner is busy or away, does not hang
        return control.stopping() or parent_has_ended()

    return Sampler(
        envs,
        make_exploration(config.sampling, brief.index, len(envs), envs.spaces, brief.policy_kind, rng),
        channels.transitions[brief.index].writer(),
        channels.weights.reader(),
        RatioGate(config, channels.metrics, control),
        channels.metrics.samplers[brief.index : brief.index + 1],
        stopping,
        n_step=int(config.learning.n_step),
        gamma=float(config.learning.gamma),
        wait_s=wait_s,
        clock=clock,
        scores=scores,
    )
