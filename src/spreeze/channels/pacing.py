"""Keeps the ratio of updates to environment steps within its bounds, from both sides.

Let S be the environment steps sampled, U the updates, W the warm-up, and lo and hi the bounds:
    a sampler may step      while  lo (S - W - slack) <= U
    the learner may update  while  S' >= W  and  U < hi (S' - W) + 1,   S' the rows it has consumed
slack is at least one vector step more than the samplers hold back for transitions over several steps, and has room
for the rows that a learner without its replay collects again before it updates.
Of a split learner, the critics' side is the learner here. The actor's side waits for the critics' first update and is
never more than exchange_updates ahead of them: more updates with the same critics would not improve the actor, and a
side that waits leaves the core to the others.
Both cannot wait for ever: the learner consumes rows also while it waits, so that S' becomes S less what samplers hold
back, which is below the slack; if it waits for the ratio then U >= hi (S' - W) + 1 > lo (S - W - slack) because
hi >= lo, and samplers may step; if it waits for the warm-up then S' < W, so that S - W - slack < 0.
"""

from __future__ import annotations

import math
import sys

from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.config import Config, LearnerRole

# Vector steps that each sampler may be ahead: with less, samplers would wait for every single update.
SLACK_VECTOR_STEPS = 2


class RatioGate:
    """Decides whether a sampler may step and how many updates a learner may launch, from the counters alone."""

    def __init__(
        self,
        config: Config,
        metrics: MetricsChannel,
        control: ControlChannel,
        role: LearnerRole = "all",
    ) -> None:
        learning, sampling = config.learning, config.sampling
        own = metrics.actor if role == "actor" else metrics.learner
        self._follows = role == "actor"
        self._lead = learning.updates_per_exchange
        if learning.min_updates_per_step == "auto" or learning.max_updates_per_step == "auto":
            raise ValueError("the ratio needs a resolved config")
        self._control = control
        held_back = 0 if learning.n_step == "auto" else learning.n_step - 1
        self._slack_steps = SLACK_VECTOR_STEPS + held_back
        self._low = learning.min_updates_per_step
        self._high = learning.max_updates_per_step
        self._warmup = sampling.warmup_steps
        self._max_env_steps = math.inf if config.limits.max_env_steps is None else config.limits.max_env_steps
        self._max_updates = math.inf if config.limits.max_updates is None else config.limits.max_updates
        self._steps_of_each, self._offset = metrics.samplers["env_steps"], metrics.learner["steps_offset"]
        self._ahead = metrics.learner["steps_ahead"]
        self._updates = metrics.learner["updates"]
        self._consumed, self._stored = own["rows_consumed"], own["rows_stored"]

    def sampler_may_step(self) -> bool:
        """Return whether samplers are within the lower bound, and the run within its environment steps."""
        if not self._low and self._max_env_steps == math.inf:
            return True  # free-running: reading the counters would cost 4 microseconds
        env_steps = self._env_steps()
        if env_steps >= self._max_env_steps:
            return False
        slack = self._slack_steps * self._control.envs_at_work + int(self._ahead[0])
        return self._low * (env_steps - self._warmup - slack) <= int(self._updates[0])

    def has_all_steps(self) -> bool:
        """Return whether the run has made all its environment steps."""
        return self._max_env_steps < math.inf and self._env_steps() >= self._max_env_steps

    def _env_steps(self) -> int:
        """Return S; after a restart from a checkpoint it counts from the checkpoint's."""
        return int(self._steps_of_each.sum()) + int(self._offset[0])

    def updates_allowed(self, launched: int) -> int:
        """Return how many updates a learner may start after this many: none before the end of the warm-up."""
        consumed = int(self._consumed[0])
        if consumed < self._warmup or not self._stored[0]:
            return 0
        if self._follows:
            of_critics = int(self._updates[0])
            # Not before the first: the run would publish and score a policy that no critic has taught anything.
            most: float = of_critics + self._lead if of_critics else 0
        elif self._high is not None:
            most = min(self._max_updates, self._high * (consumed - self._warmup) + 1)
        else:
            most = self._max_updates
        return sys.maxsize if most == math.inf else max(0, math.ceil(most) - launched)
