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
    ) -> None:
        """counters: an array of one `metrics.SAMPLER`. stopping: whether not to wait for room in the channel.

        wait_s: how long to wait before looking again whether the learner has caught up.
        """
        self._envs, self._exploration, self._noise = envs, exploration, exploration.noise
        self._writer, self._weights, self._pacing, self._stopping = writer, weights, pacing, stopping
        self._counters, self._env_steps = counters, counters["env_steps"]
        self._count, self._n_step, self._wait_s = len(envs), n_step, wait_s
        self._layout = layout = RowLayout(envs.spaces.observation_size, envs.spaces.action_size)
        self._rows = np.zeros((self._count, layout.width), np.float32)
        self._rows[:, layout.discount] = gamma
        self._multi_step = MultiStep(layout, self._count, n_step, gamma)
        self._actor: Actor | None = None

    def turn(self) -> None:
        """Step every environment that is idle once, or wait a little if the learner is behind."""
        if not self._pacing.sampler_may_step():
            self._wait_for_learner()
            return
        envs, rows, layout, counters = self._envs, self._rows, self._layout, self._counters
        if (newest := self._weights.newest()) is not None:
            self._actor = make_actor(newest.tensors, newest.metadata, self._count)
            counters["policy_published_at"] = newest.published_at
        if self._actor is None:  # no version yet: the random warm-up
            actions = self._exploration.uniform_actions()
        else:
            actions = self._actor.sample(envs.observations, next(self._noise))
        # Environments that are in a step keep what it began with: their rows are completed when it ends.
        idle = envs.idle
        rows[idle, layout.observation] = envs.observations[idle]
        rows[idle, layout.action] = actions[idle]
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
        waited_s = self._writer.write(complete, self._stopping)
        if waited_s:
            counters["ring_wait_s"] += waited_s
        if not self._env_steps[0]:
            counters["first_step_at"] = time.monotonic()
        self._env_steps[0] += steps
        for _, episode_return, _ in episodes:
            # A sum with a NaN in it would stay one, and next to 1e300 all others are nothing.
            if is_usable(episode_return):
                counters["return_sum"] += episode_return
                counters["episodes"] += 1

    def finish(self, deliver: bool) -> None:
        """Write what multi-step transitions hold back; close the channel and the environments.

        deliver: whether the rows must still reach a learner that continues.
        """
        self._writer.write(self._multi_step.flush(), self._stopping)
        self._counters["policy_published_at"] = 0.0  # a sampler that does not act has no policy lag
        self._writer.close(deliver=deliver)
        self._envs.close()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the next step depends on besides environments and weights, for a sampler that continues."""
        return self._exploration.state() | self._multi_step.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue as the sampler that gave this state would."""
        self._exploration.restore(state)
        self._multi_step.restore(state)

    def _wait_for_learner(self) -> None:
        began = time.monotonic()
        if self._pacing.has_all_steps():
            # The run ends when the learner has all its steps.
            self._writer.write(self._multi_step.flush(), self._stopping)
        if self._wait_s:
            time.sleep(self._wait_s)  # leaves the core to the learner
        self._counters["ratio_wait_s"] += time.monotonic() - began
