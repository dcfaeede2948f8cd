"""Plays an environment as a training would, and notes all that it gives.

In: an environment, actions and a seed. Out: what each call gave; findings, and how long calls take.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from spreeze.channels.spaces import Spaces
from spreeze.environments import returned_values
from spreeze.environments.batch import without_time_limit
from spreeze.environments.findings import Finding, Unusable, raised
from spreeze.environments.stepped import NO_LIMIT


class Duration(NamedTuple):
    """How long a call took, or calls take."""

    wall_s: float
    cpu_s: float
    """Of this process, on all its cores."""


class Entry(NamedTuple):
    """One value that an environment gave."""

    what: str
    values: NDArray[Any]


Track = list[Entry]
"""What an environment gave from a reset with a seed on."""


@dataclass
class Notebook:
    """What was seen of an environment, over all its instances."""

    findings: dict[str, Finding] = field(default_factory=dict)
    """The first of each topic."""
    steps: int = 0
    unusable_steps: int = 0
    ended_episodes: int = 0
    step_durations: list[Duration] = field(default_factory=list)
    reset_durations: list[Duration] = field(default_factory=list)

    def add(self, topic: str, finding: Finding | None) -> None:
        """Keep a finding, if there is one and the topic has none yet."""
        if finding is not None:
            self.findings.setdefault(topic, finding)

    def end_with(self, finding: Finding) -> None:
        """Keep the finding that ends the examination; it may have seemed harmless before."""
        harmless = {topic: each for topic, each in self.findings.items() if each.problem != finding.problem}
        self.findings = {**harmless, "end": finding}


class Rehearsal:
    """One instance of an environment, which is played several times."""

    def __init__(self, env: gymnasium.Env[Any, Any], spaces: Spaces, notebook: Notebook) -> None:
        self._env, self._spaces, self._notebook = env, spaces, notebook
        # As in a training. Also because Gymnasium's time limit expects what the old interface does not return.
        self._inner, self._limit = without_time_limit(env)
        # The arrays of the last observation, and what they held then.
        self._last: list[tuple[NDArray[Any], NDArray[Any]]] = []

    @property
    def has_limit(self) -> bool:
        """Whether Gymnasium knows a time limit."""
        return self._limit != NO_LIMIT

    def play(self, actions: Sequence[NDArray[Any]], seed: int, is_over: Callable[[], bool]) -> Track:
        """Take a step with each action until it is over; a new episode has the next seed."""
        track = [self._reset(seed)]
        length = 0
        for number, action in enumerate(actions, 1):
            if is_over():
                break
            entries, has_ended = self._step(action.copy(), number)  # an environment may keep or change the array
            track += entries
            length += 1
            if has_ended or length >= self._limit:
                self._notebook.ended_episodes += 1
                seed, length = seed + 1, 0
                track.append(self._reset(seed))
        return track

    def _reset(self, seed: int) -> Entry:
        try:
            began = _now()
            returned = self._env.reset(seed=seed)
            self._notebook.reset_durations.append(_since(began))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Unusable(_explain_reset(self._env, error), error) from None
        observation, info = returned_values.split_reset(returned, self._env.observation_space)
        self._notebook.add("info", returned_values.check_info(info, "reset"))
        vector = self._observe(observation, "reset")
        if what := returned_values.unusable_number(vector):
            self._notebook.add("unusable observation", _unusable(f"reset gives {what} in its observation"))
        return Entry("the observation of reset", vector)

    def _step(self, action: NDArray[Any], number: int) -> tuple[Track, bool]:
        try:
            began = _now()
            returned = self._inner.step(action)
            self._notebook.step_durations.append(_since(began))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            is_old = isinstance(error, ValueError) and "expected 5, got 4" in str(error)  # a wrapper around it
            raise Unusable(returned_values.OLD_STEP if is_old else raised("step", error), error) from None
        observation, reward, terminated, truncated, info = returned_values.split_step(returned)
        notebook = self._notebook
        notebook.steps += 1
        notebook.add("info", returned_values.check_info(info, "step"))
        for topic, finding in (
            ("reward", returned_values.check_reward(reward)),
            ("ends", returned_values.check_ends(terminated, truncated)),
        ):
            if finding is not None and finding.is_fatal:
                raise Unusable(finding)
            notebook.add(topic, finding)
        self._check_last_observation()
        vector = self._observe(observation, "step")
        rewards = np.fromiter([reward], np.float64, 1)
        fields = (("observation", vector), ("reward", rewards))
        bad = [(name, what) for name, values in fields if (what := returned_values.unusable_number(values))]
        for name, what in bad:
            notebook.add(f"unusable {name}", _unusable(f"step gives {what} in its {name}"))
        notebook.unusable_steps += bool(bad)
        ends = np.array([bool(terminated), bool(truncated)])
        track = [
            Entry(f"the observation of step {number}", vector),
            Entry(f"the reward of step {number}", rewards),
            Entry(f"terminated or truncated of step {number}", ends),
        ]
        return track, bool(ends.any())

    def _observe(self, observation: Any, where: str) -> NDArray[np.float32]:
        vector = returned_values.vector_of(self._spaces.observation, observation, where)
        finding = returned_values.check_observation(self._env.observation_space, observation, where)
        self._notebook.add("observation", finding)
        self._last = [(array, array.copy()) for array in returned_values.arrays_in(observation)]
        return vector

    def _check_last_observation(self) -> None:
        for array, held in self._last:
            # Compared as bytes: NaN equals itself.
            if array.tobytes() != held.tobytes():
                finding = Finding(
                    "step overwrites the array that it returned before: whoever keeps observations keeps the newest "
                    "only (Spreeze copies each of them)",
                    "return `self._observation.copy()`",
                    is_note=True,
                )
                self._notebook.add("reuse", finding)


def _now() -> Duration:
    return Duration(time.perf_counter(), time.process_time())


def _since(began: Duration) -> Duration:
    wall_s, cpu_s = _now()
    return Duration(wall_s - began.wall_s, cpu_s - began.cpu_s)


def _unusable(problem: str) -> Finding:
    fix = "correct the computation, or end the episode where it begins to diverge: such transitions are rejected"
    return Finding(problem, fix)


def _explain_reset(env: gymnasium.Env[Any, Any], error: BaseException) -> Finding:
    """Return what an exception of reset means: the old interface, or an error of its own."""
    if isinstance(error, TypeError):
        for layer in layers_of(env):
            for keyword in ("seed", "options"):
                is_refused = f"unexpected keyword argument '{keyword}'" in str(error)
                if is_refused and not takes(layer.reset, keyword):
                    return old_reset(layer, keyword, is_fatal=True)
    if isinstance(error, ValueError) and "values to unpack (expected 2" in str(error):  # in a wrapper around it
        return returned_values.old_reset_result("one value, or more than two,")
    return raised("reset", error)


def old_reset(layer: Any, keyword: str, is_fatal: bool) -> Finding:
    """Return the finding about a reset without a keyword argument of Gymnasium."""
    return Finding(
        f"reset of {type(layer).__name__} takes no `{keyword}`, as Gym's old interface did not",
        "write `def reset(self, *, seed=None, options=None)`, and call `super().reset(seed=seed)` in it",
        is_fatal=is_fatal,
    )


def layers_of(env: Any) -> Iterator[Any]:
    """Yield an environment's wrappers, from the outside, and the environment itself."""
    while env is not None:
        yield env
        env = getattr(env, "env", None) if isinstance(env, gymnasium.Wrapper) else None


def takes(method: Callable[..., Any], keyword: str) -> bool:
    """Return whether a method can be called with a keyword argument."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # written in C
        return True
    return keyword in parameters or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
