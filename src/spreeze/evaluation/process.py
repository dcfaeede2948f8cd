"""The evaluator: scores versions of the policy with environments and seeds of its own, and keeps the best."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.channels.weights import WeightsFile, kept_weights, version_path, write_weights
from spreeze.environments.backend import make_envs
from spreeze.environments.make import spec_for_evaluation
from spreeze.evaluation.best import Best
from spreeze.evaluation.scores import score
from spreeze.host.hardware import usable_cores
from spreeze.host.write_failures import WriteFailures
from spreeze.policy.actor import make_actor
from spreeze.runs.records import Evaluation

POLL_S = 0.02  # versions come a few times a second
# The evaluator takes at most this share of the machine: on two cores, more would slow down the learner; on ten and
# more, it may evaluate all the time.
MAX_MACHINE_SHARE = 0.1


def run(brief: Brief, messages: MessageWriter) -> None:
    """Evaluate the newest version, again and again, until told to stop."""
    config, control = brief.config, brief.channels.control
    control.beat(brief.slot)
    # The third word keeps these seeds apart from every sampler's.
    seeds = np.random.Generator(np.random.PCG64([config.seed, 0, 2]))
    episodes = config.evaluation.eval_episodes
    env = spec_for_evaluation(brief.env)
    envs = make_envs(env, episodes, _draw(seeds, episodes), lambda: control.beat(brief.slot))
    brief.spaces.require_same(envs.spaces)
    weights = brief.channels.weights.reader()
    best = Best(brief.run_dir / "best")
    videos = WriteFailures(str(kept_weights(brief.run_dir)), "there is no video of these versions")
    due_at, evaluations = 0.0, 0
    max_duty = min(1.0, MAX_MACHINE_SHARE * usable_cores())

    while not control.stopping():
        control.beat(brief.slot)
        now = time.monotonic()
        newest = weights.newest() if now >= due_at else None
        if newest is None:
            time.sleep(POLL_S)  # for the next version; others need the core
            continue

        def stopping() -> bool:
            control.beat(brief.slot)
            return control.stopping()

        actor = make_actor(newest.tensors, newest.metadata, episodes)
        scores = score(actor, envs, _draw(seeds, episodes), stopping)
        if scores is None:
            break
        evaluation = Evaluation(
            wall_s=round(time.monotonic() - brief.started_at, 3),
            env_steps=int(newest.metadata["env_steps"]),
            updates=int(newest.metadata["updates"]),
            version=newest.version,
            mean_return=scores.mean,
            std_return=scores.std,
            returns=scores.returns,
            lengths=scores.lengths,
        )
        warnings = [best.offer(newest, evaluation)]
        evaluations += 1
        if (every := config.watching.video_every) and evaluations % every == 0:
            warnings.append(_keep(newest, brief.run_dir, videos))  # before the supervisor orders a video of it
        messages.send("evaluation", **asdict(evaluation))
        for warning in filter(None, warnings):
            messages.record_event("warning", warning)
        spent_s = time.monotonic() - now
        due_at = now + max(config.evaluation.eval_interval_s, spent_s / max_duty)
    envs.close()


def _keep(weights: WeightsFile, run_dir: Path, failures: WriteFailures) -> str | None:
    """Keep a version for a video; return a warning about the disk, if there is one."""
    try:
        write_weights(version_path(kept_weights(run_dir), weights.version), weights.tensors, weights.metadata)
    except OSError as error:
        return failures.failed(error)
    return failures.succeeded()


def _draw(seeds: np.random.Generator, count: int) -> list[int]:
    drawn: list[int] = seeds.integers(2**31, size=count).tolist()
    return drawn
