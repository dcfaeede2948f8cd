"""Steps environments that wait side by side: each in a thread of its own, so that nobody waits for another's step.

In: an `EnvSpec` and their number. Out: `Environments` of which each step gives actions to those that are idle, and
returns once one or more have finished theirs. Environments are made, reset, stepped and closed in their own threads.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import flatten_checked, without_time_limit
from spreeze.environments.make import check_registered, make_env
from spreeze.environments.mujoco import stop_mujoco_timers
from spreeze.environments.spaces import spaces_of
from spreeze.environments.stepped import Stepped

# After the first result, so that one pass through the policy serves several: 2.5% of a step of 20 ms.
GATHER_S = 0.0005
WAIT_S = 0.1  # for a result, at most: the caller then shows that it is alive
MAX_SEEN_S = 1.0  # between two looks: if more has passed, this process was stopped, and environments with it
CLOSE_S = 2.0  # less than the time that the supervisor gives a process to end
CLOSE_STUCK_S = 0.5  # for `close` of environments that are still in a step by then

Env = gymnasium.Env[Any, Any]
Call = Literal["make", "reset", "step"]


class _Result(NamedTuple):
    env: int
    value: Any
    error: BaseException | None


class _EnvThread:
    """The thread of one environment: makes it, calls it, and closes it at the end."""

    def __init__(self, index: int, make: Callable[[], Env], results: queue.SimpleQueue[_Result]) -> None:
        self.env: Env | None = None
        self._index, self._make, self._results = index, make, results
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()  # taken once and never released: `close` is called once
        self.thread = threading.Thread(target=self._run, name=f"environment {index}", daemon=True)
        self.thread.start()
        self.call(self._make_own)

    def call(self, function: Callable[[], Any]) -> None:
        """Call a function in this thread, after those before it; its result goes to the queue of results."""
        self._calls.put(function)

    def end(self) -> None:
        """Close the environment after the calls before, and end the thread."""
        self._calls.put(None)

    def close_env(self) -> None:
        """Close the environment, in whichever thread this is."""
        if self.env is not None and self._closing.acquire(blocking=False):
            with contextlib.suppress(Exception):  # an error while closing has no consequence
                self.env.close()

    def _make_own(self) -> Env:
        self.env = self._make()
        return self.env

    def _run(self) -> None:
        while (function := self._calls.get()) is not None:
            try:
                result = _Result(self._index, function(), None)
            except BaseException as error:  # raised where the environments are stepped, also if it is a SystemExit
                result = _Result(self._index, None, error)
            self._results.put(result)
        self.close_env()


class ThreadedEnvs(Stepped):
    """Environments in a thread each; each starts a new episode when one ends, while the others continue."""

    def __init__(
        self,
        spec: EnvSpec,
        count: int,
        seeds: Sequence[int],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the environments, all at once; `beat` is called after each. They are reset by the first steps."""
        self._name, self._hang_s = spec.name, spec.hang_s
        check_registered(spec)  # imports its modules, in the main thread
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._running: dict[int, tuple[Call, float]] = {}
        """The call that each environment is in, and when it began on the clock of `_now`."""
        self._seen_s, self._looked_at = 0.0, time.monotonic()
        self._threads: list[_EnvThread] = []
        try:
            envs = self._make(spec, count, beat)
            super().__init__(spaces_of(envs[0], spec.name), count)
        except BaseException:
            self.close()
            raise
        stop_mujoco_timers()
        inner = [without_time_limit(env) for env in envs]
        self._envs, self._steps = envs, [env.step for env, _ in inner]
        self._limits = np.array([limit for _, limit in inner], np.int64)
        self._resting: set[int] = set()
        self._to_reset: dict[int, int | None] = {}
        """Environments that need a reset, and their seeds."""
        self._is_outdated = np.zeros(count, np.bool_)  # the call that is under way began before a `reset`
        self.reset(seeds)

    def _make(self, spec: EnvSpec, count: int, beat: Callable[[], None]) -> list[Env]:
        with warnings.catch_warnings():  # what threads do to the filters at the same time is undone here
            for i in range(count):
                self._threads.append(_EnvThread(i, partial(make_env, spec), self._results))
            for _ in range(count):
                result = self._results.get()
                if result.error is not None:
                    raise result.error
                beat()
        return [thread.env for thread in self._threads if thread.env is not None]

    def step(self, actions: NDArray[Any]) -> list[tuple[int, float, int]]:
        """Give those that are idle their actions, and wait until an environment has finished a step or a reset.

        Returns (environment, return, length) of each episode that ended. Returns without any step after `WAIT_S`.
        """
        env_actions = self._range.to_env(actions)
        for i in self._idle:
            self._begin(i, "step", partial(self._steps[i], env_actions[i]))
        for i in [i for i in self._to_reset if i not in self._running and i not in self._resting]:
            self._begin_reset(i)
        self.ended[:] = False
        stepped: list[int] = []
        idle: list[int] = []
        finished: list[tuple[int, float, int]] = []
        for result in self._wait():
            i, (call, _) = result.env, self._running.pop(result.env)
            if result.error is not None:
                result.error.add_note(f"in the {call} of environment {i} of {len(self)}, in a thread of its own")
                raise result.error
            if self._is_outdated[i]:
                self._is_outdated[i] = False
            elif call == "reset":
                self.observations[i] = self._flatten(result.value[0])
                idle.append(i)
            elif self._take(i, result.value):
                stepped.append(i)
                finished += self._end_episode(i)
                self._to_reset[i] = None
            else:
                stepped.append(i)
                idle.append(i)
        self._offer([i for i in idle if i not in self._resting], stepped)
        return finished

    def _take(self, i: int, result: tuple[Any, Any, Any, Any, Any]) -> bool:
        """Record a step; return whether it ended the episode."""
        observation, reward, terminated, truncated, _ = result
        self.next_observations[i] = self.observations[i] = self._flatten(observation)
        # As `EnvBatch` does: what is no number raises, and sums are taken in float64.
        exact = np.fromiter([reward], np.float64, 1)[0]
        self.rewards[i] = exact
        self._returns[i] += exact
        self._lengths[i] += 1
        self.terminated[i] = terminated
        self.ended[i] = bool(terminated or truncated or self._lengths[i] >= self._limits[i])
        return bool(self.ended[i])

    def rest(self, i: int) -> None:
        """Leave an environment out of steps and resets until the next `reset`."""
        self._resting.add(i)
        self._offer([idle for idle in self._idle if idle != i], np.asarray(self.stepped).tolist())

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every environment: at once, or after the call that is under way."""
        self._resting.clear()
        self._to_reset = dict(enumerate(seeds))
        for i in self._running:
            self._is_outdated[i] = True
        for i in range(len(self)):
            if i not in self._running:
                self._begin_reset(i)
        self._offer([], [])

    def close(self) -> None:
        """Close all environments; those that are still in a step after a while are closed all the same."""
        for thread in self._threads:
            thread.end()
        _join([thread.thread for thread in self._threads], CLOSE_S)
        stuck = [thread for thread in self._threads if thread.thread.is_alive()]
        # A robot must not be left running, and a closed connection mostly ends the step that waits for it.
        closers = [threading.Thread(target=thread.close_env, daemon=True) for thread in stuck]
        for closer in closers:
            closer.start()
        _join(closers, CLOSE_STUCK_S)

    def _offer(self, idle: list[int], stepped: list[int]) -> None:
        self._idle, self.idle, self.stepped = idle, np.array(idle, np.intp), np.array(stepped, np.intp)

    def _begin_reset(self, i: int) -> None:
        seed = self._to_reset.pop(i)
        self._returns[i], self._lengths[i] = 0.0, 0
        self._begin(i, "reset", partial(self._envs[i].reset, seed=seed))

    def _begin(self, i: int, call: Call, function: Callable[[], Any]) -> None:
        self._running[i] = (call, self._seen_s)
        self._threads[i].call(function)

    def _wait(self) -> list[_Result]:
        """Return the results that are there, after a wait for the first."""
        if not self._running:
            return []
        try:
            results = [self._results.get(timeout=WAIT_S)]
        except queue.Empty:
            results = []
        now = time.monotonic()
        self._seen_s += min(now - self._looked_at, MAX_SEEN_S)
        self._looked_at = now
        until = now + GATHER_S
        with contextlib.suppress(queue.Empty):
            while results and len(results) < len(self._running):
                results.append(self._results.get(timeout=max(0.0, until - time.monotonic())))
        self._require_progress({result.env for result in results})
        return results

    def _require_progress(self, finished: set[int]) -> None:
        for i, (call, began_s) in self._running.items():
            if self._seen_s - began_s > self._hang_s and i not in finished:
                raise TimeoutError(
                    f"environment {i} of {len(self)} has been in its {call} for {self._hang_s:g} s (--hang-s)"
                )

    def _flatten(self, observation: Any) -> NDArray[np.float32]:
        return flatten_checked(self._name, self.spaces.observation, observation)


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
