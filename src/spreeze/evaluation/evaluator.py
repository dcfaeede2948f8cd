"""Evaluates one version of the policy after the other, keeps the best, and reports each score.

In: versions of the weights. Out: evaluations, as messages, and the run folder's `best/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from spreeze.channels.brief import Brief
from spreeze.channels.control import Messages
from spreeze.channels.weights import WeightsFile, kept_weights, version_path, write_weights
from spreeze.environments.backend import make_envs
from spreeze.environments.make import spec_for_evaluator
from spreeze.evaluation.best import Best
from spreeze.evaluation.enough import Spread, blocks_of, is_enough
from spreeze.evaluation.progress import Progress
from spreeze.evaluation.scores import Scores, score
from spreeze.host.write_failures import WriteFailures
from spreeze.policy.actor import make_actor
from spreeze.runs.records import Evaluation


class Evaluator:
    """Environments and seeds of its own, so that no evaluation depends on what samplers do."""

    def __init__(self, brief: Brief, messages: Messages, beat: Callable[[], None] = lambda: None) -> None:
        """beat: called for each environment that is made."""
        self._brief, self._messages = brief, messages
        self.evaluations = 0
        """How many were made. The seeds of the next one derive from it."""
        self._episodes, control = brief.config.evaluation.eval_episodes, brief.channels.control
        env = spec_for_evaluator(brief.env)

        def made_another() -> None:
            control.beat(brief.slot)
            beat()

        # A serial run that is resumed would not know how good the best one was, and not repeat itself; in threads,
        # all episodes take as long as one.
        is_sequential = not (brief.config.serial or env.has_threads)
        blocks = blocks_of(self._episodes) if is_sequential else [self._episodes]
        seeds = self._seeds()
        self._batches = [make_envs(env, count, seeds[:count], made_another) for count in blocks]
        brief.spaces.require_same(self._batches[0].spaces)
        self._best, self._spread = Best(brief.run_dir / "best"), Spread()
        self._progress = Progress(messages, self._episodes)
        self._videos = WriteFailures(str(kept_weights(brief.run_dir)), "there is no video of these versions")

    def evaluate(
        self, weights: WeightsFile, stopping: Callable[[], bool], plays_all: bool = False
    ) -> Evaluation | None:
        """Score a version and report it; None if asked to stop before all episodes have ended.

        plays_all: whether all episodes are played, also of a version that is clearly not the best (`enough.py`).
        """
        brief = self._brief
        scores = self._play(weights, stopping, plays_all)
        if scores is None:
            return None
        evaluation = Evaluation(
            wall_s=round(time.monotonic() - brief.started_at, 3),
            env_steps=int(weights.metadata["env_steps"]),
            updates=int(weights.metadata["updates"]),
            version=weights.version,
            mean_return=scores.mean,
            std_return=scores.std,
            returns=scores.returns,
            lengths=scores.lengths,
        )
        self._spread.add(scores.returns)
        warnings = [self._best.offer(weights, evaluation)]
        self.evaluations += 1
        if (every := brief.config.watching.video_every) and self.evaluations % every == 0:
            warnings.append(self._keep(weights))  # before the supervisor orders a video of it
        self._messages.send("evaluation", **asdict(evaluation))
        for warning in filter(None, warnings):
            self._messages.record_event("warning", warning)
        return evaluation

    def close(self) -> None:
        """Close the environments."""
        for envs in self._batches:
            envs.close()

    def _play(self, weights: WeightsFile, stopping: Callable[[], bool], plays_all: bool) -> Scores | None:
        seeds, target = self._seeds(), self._brief.config.limits.target_return
        returns: tuple[float, ...] = ()
        lengths: tuple[int, ...] = ()
        progress = self._progress
        progress.begin(weights.version)

        def is_over() -> bool:
            progress.turn()
            return stopping()

        for envs in self._batches:
            actor = make_actor(weights.tensors, weights.metadata, len(envs))
            scores = score(actor, envs, seeds[len(returns) : len(returns) + len(envs)], is_over, progress.ended)
            if scores is None:
                return None
            returns, lengths = returns + scores.returns, lengths + scores.lengths
            if not plays_all and is_enough(returns, self._spread, self._best.mean_return, target):
                break
        return Scores(returns, lengths)

    def _seeds(self) -> list[int]:
        # The last word keeps these seeds apart from every sampler's.
        stream = [self._brief.config.seed, self.evaluations, 2]
        drawn: list[int] = np.random.default_rng(stream).integers(2**31, size=self._episodes).tolist()
        return drawn

    def _keep(self, weights: WeightsFile) -> str | None:
        """Keep a version for a video; return a warning about the disk, if there is one."""
        try:
            path = version_path(kept_weights(self._brief.run_dir), weights.version)
            write_weights(path, weights.tensors, weights.metadata, self._brief.run_dir)
        except OSError as error:
            return self._videos.failed(error)
        return self._videos.succeeded()
