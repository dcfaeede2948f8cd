"""The learner of a serial run: it makes the updates that are allowed, and then it is the samplers' turn.

In: a brief, and rings that no sampler fills meanwhile. Out: the updates that a learner with its own process makes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch

from spreeze.channels.brief import Brief
from spreeze.channels.control import Messages
from spreeze.learning.learner import Learner
from spreeze.learning.lock_step import LockStepActor, LockStepCritic
from spreeze.learning.split_process import ROLES


class OwnRandom:
    """PyTorch's random numbers as one learner has them: neither another side nor an environment changes them."""

    def __init__(self) -> None:
        self._state = torch.get_rng_state()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Use them within the block."""
        others = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(others)


class WholeLearner:
    """A learner on one device."""

    def __init__(self, brief: Brief, messages: Messages) -> None:
        self._threads = torch.get_num_threads()
        self._random = OwnRandom()
        with self._random():
            self._learner = Learner(brief, messages, idle_wait_s=0.0)

    def learn(self, is_over: Callable[[], bool]) -> None:
        """Make all updates that are allowed, or those until the run is over, but at least one of them."""
        with self._random():
            while self._learner.learn() and not is_over():
                pass

    def publish(self) -> None:
        """Publish the policy, and report figures when it is time."""
        self._learner.publish()
        self._learner.report()

    def save(self, number: int, oldest_row: int) -> None:
        """Write a checkpoint."""
        with self._random():
            self._learner.save(number, oldest_row)

    def finish(self, beat: Callable[[], None]) -> None:
        """Publish the last version and write the last checkpoint. beat: called meanwhile."""
        with self._random():
            self._learner.finish(beat)

    def close(self) -> None:
        """Let PyTorch compute with as many threads as before."""
        torch.set_num_threads(self._threads)


class SplitLearner:
    """Two sides in lock step, which so make the same updates as one."""

    def __init__(self, briefs: Sequence[Brief], messages: Sequence[Messages]) -> None:
        self._threads = torch.get_num_threads()
        self._randoms = [OwnRandom() for _ in ROLES]
        self._learners: list[Learner] = []
        for random, brief, outbox, role in zip(self._randoms, briefs, messages, ROLES, strict=True):
            with random():
                self._learners.append(Learner(brief, outbox, role, idle_wait_s=0.0))
        self._critic, self._actor = LockStepCritic(self._learners[0]), LockStepActor(self._learners[1])

    def learn(self, is_over: Callable[[], bool]) -> None:
        """Make all updates that are allowed, or those until the run is over, but at least one of them."""
        of_critic, of_actor = self._randoms
        while True:
            with of_critic():
                if not self._critic.begin():
                    return
            with of_actor():
                self._actor.follow()
            with of_critic():
                self._critic.end()
            if is_over():
                return

    def publish(self) -> None:
        """Publish the policy, and report figures when it is time."""
        for learner in self._learners:
            learner.publish()
            learner.report()

    def save(self, number: int, oldest_row: int) -> None:
        """Write a checkpoint."""
        for random, learner in zip(self._randoms, self._learners, strict=True):
            with random():
                learner.save(number, oldest_row)

    def finish(self, beat: Callable[[], None]) -> None:
        """Publish the last version and write the last checkpoint. beat: called meanwhile."""
        for random, learner in zip(self._randoms, self._learners, strict=True):
            with random():
                learner.finish(beat)

    def close(self) -> None:
        """Let PyTorch compute with as many threads as before."""
        torch.set_num_threads(self._threads)
