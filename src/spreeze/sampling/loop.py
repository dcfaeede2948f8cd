"""A sampler's loop: choose actions with the newest policy, step the environments, write the transitions.

In: environments, the newest weights, the learner's pace. Out: rows and counters. It opens nothing itself, so that the
same loop runs in a process with shared memory and in the learner's own process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.rejected_rows import is_usable
from spreeze.channels.transitions import RowLayout, TransitionWriter
from spreeze.channels.weights import WeightsFile
from spreeze.environments.stepped import Environments
from spreeze.policy.actor import Actor, make_actor
from spreeze.sampling.exploration import Exploration
from spreeze.sampling.multi_step import MultiStep

RATIO_WAIT_S = 0.001  # a learner on a CPU makes a few hundred updates per second: a shorter wait gains nothing


class Weights(Protocol):
    """Where the policy comes from."""

    def newest(self) -> WeightsFile | None:
        """Return the newest version if it was not returned before."""
        ...


class Pacing(Protocol):
    """Keeps samplers from running ahead of the learner, and ends them with the run's last environment step."""

    def sampler_may_step(self) -> bool:
        """Return whether samplers may take another step now."""
        ...

    def has_all_steps(self) -> bool:
        """Return whether the run has made all its environment steps."""
        ...


class Clock(Protocol):
    """Starts each step of a real robot at its deadline."""

    def wait(self) -> bool:
        """Wait for the start of the next step; return False if there is to be none."""
        ...

    def restart(self) -> None:
        """Let the next step be the first of an episode."""
        ...


class Scores(Protocol):
    """Scores the policy by the episodes of one environment."""

    def acts(self, policy: WeightsFile | None) -> None:
        """Record which version has chosen an action; None for one that was drawn at random."""
        ...

    def ended(self, episode_return: float, length: int) -> None:
        """Record that an episode has ended."""
        ...


class Sampler:
    """Several environments that step together, and the policy that acts in them."""

    def __init__(
        self,
        envs: Environments,
        exploration: Exploration,
        writer: TransitionWriter,
        weights: Weights,
        pacing: Pacing,
        counters: NDArray[Any],
        stopping: Callable[[], bool],
        n_step: int,
        gamma: float,
        wait_s: float = RATIO_WAIT_S,
        clock: Clock | None = None,
        scores: Scores | None = None,
    ) -> None:
        """counters: an array of one `metrics.SAMPLER`. stopping: whether not to wait for room in the channel.

        wait_s: how long to wait before looking again whether the learner has caught up. clock: what starts each step,
        where steps are not to follow one another as fast as possible. scores: what is told of episodes, where nobody
        else evaluates.
        """
        self._envs, self._exploration, self._noise = envs, exploration, exploration.noise
        self._writer, self._weights, self._pacing, self._stopping = writer, weights, pacing, stopping
        self._counters, self._env_steps = counters, counters["env_steps"]
        self._count, self._n_step, self._wait_s, self._clock = len(envs), n_step, wait_s, clock
        self._scores = scores
        self._policy: WeightsFile | None = None
        self._layout = layout = RowLayout.of(envs.spaces)
        self._rows = np.zeros((self._count, layout.width), np.float32)
        self._rows[:, layout.discount] = gamma
        self._actions: NDArray[Any] = layout.records(self._rows)["action"]  # a view, in the action's own type
        self._multi_step = MultiStep(layout, self._count, n_step, gamma)
        self._actor: Actor | None = None

    def turn(self) -> None:
        """Step every environment that is idle once, or wait a little if the learner is behind."""
        if not self._pacing.sampler_may_step():
            self._wait_for_learner()
            return
        envs, rows, layout, counters = self._envs, self._rows, self._layout, self._counters
        if self._clock is None:
            self._take_newest_policy()
        if self._actor is None:  # no version yet: the random warm-up
            actions = self._exploration.uniform_actions()
        else:
            actions = self._actor.sample(envs.observations, next(self._noise))
        if self._scores is not None:
            self._scores.acts(self._policy)
        # Environments that are in a step keep what it began with: their rows are completed when it ends.
        idle = envs.idle
        rows[idle, layout.observation] = envs.observations[idle]
        self._actions[idle] = actions[idle]
        if self._clock is not None:
            # The action is ready: there is time until its deadline to load the policy of the next one.
            self._take_newest_policy()
            if not self._clock.wait():
                return
        episodes = envs.step(actions)
        stepped = envs.stepped
        rows[stepped, layout.reward] = envs.rewards[stepped]
        rows[stepped, layout.next_observation] = envs.next_observations[stepped]
        rows[stepped, layout.terminated] = envs.terminated[stepped]
        complete = rows[stepped]
        steps = len(complete)
        if not steps:
            return
        if self._n_step > 1:
            complete = self._multi_step.add(complete, envs.ended, stepped)
        if self._clock is not None and envs.ended.any():
            self._clock.restart()  # a reset has no deadline
        waited_s = self._writer.write(complete, self._stopping)
        if waited_s:
            counters["ring_wait_s"] += waited_s
        if not self._env_steps[0]:
            counters["first_step_at"] = time.monotonic()
        self._env_steps[0] += steps
        for _, episode_return, length in episodes:
            if self._scores is not None:
                self._scores.ended(episode_return, length)
            # A sum with a NaN in it would stay one, and next to 1e300 all others are nothing.
            if is_usable(episode_return):
                counters["return_sum"] += episode_return
                counters["episodes"] += 1

    def finish(self, deliver: bool) -> None:
        """Write what multi-step transitions hold back; close the channel and the environments.

        deliver: whether the rows must still reach a learner that continues.
        """
        self.deliver(deliver)
        self._envs.close()

    def deliver(self, deliver: bool) -> None:
        """Do the same, but leave the environments open, or as somebody else has closed them."""
        self._writer.write(self._multi_step.flush(), self._stopping)
        self._counters["policy_published_at"] = 0.0  # a sampler that does not act has no policy lag
        self._writer.close(deliver=deliver)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the next step depends on besides environments and weights, for a sampler that continues."""
        return self._exploration.state() | self._multi_step.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue as the sampler that gave this state would."""
        self._exploration.restore(state)
        self._multi_step.restore(state)

    def _take_newest_policy(self) -> None:
        if (newest := self._weights.newest()) is not None:
            self._actor, self._policy = make_actor(newest.tensors, newest.metadata, self._count), newest
            self._counters["policy_published_at"] = newest.published_at

    def _wait_for_learner(self) -> None:
        began = time.monotonic()
        if self._pacing.has_all_steps():
            # The run ends when the learner has all its steps.
            self._writer.write(self._multi_step.flush(), self._stopping)
        if self._wait_s:
            time.sleep(self._wait_s)  # leaves the core to the learner
        self._counters["ratio_wait_s"] += time.monotonic() - began
