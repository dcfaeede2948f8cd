"""Examines an environment: plays a few short episodes, and says in words what is wrong with it.

In: an `EnvSpec`. Out: findings, the environment's spaces in words, and how long its calls take.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spreeze.channels.spaces import Spaces
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.actions import env_actions
from spreeze.environments.findings import Finding, Unusable, place_of, raised
from spreeze.environments.make import make_env
from spreeze.environments.rehearsal import (
    Duration,
    Notebook,
    Rehearsal,
    Track,
    layers_of,
    old_reset,
    takes,
)
from spreeze.environments.repetition import judge
from spreeze.environments.spaces import spaces_of
from spreeze.errors import EnvironmentSetupError, SpreezeError, one_line
from spreeze.host.alarm import TookTooLong

# The same actions are played four times, twice in each of two instances. Together they take at most so long, whatever
# a step takes, apart from the constructor and the first step: the first time takes at most its share.
STEPS, MAX_S, FIRST_SHARE = 60, 2.0, 0.2
SEED = 0
MIN_TIMED_STEPS = 3  # whatever interrupts one of them does not change their median
# A broken environment rather than an unlucky one, as in training (`learning/intake.py`).
MAX_UNUSABLE_SHARE = 0.5
# A reset that takes as long as so many steps, and is long enough to be felt.
SLOW_RESET_STEPS, SLOW_RESET_S = 50, 0.05
# From here on the environment, not the learner, decides how fast a training is; and what is waited for in a step that
# long can be told from the operating system's interruptions.
SLOW_STEP_S, WAITING_STEP_S, MAX_CPU_SHARE_OF_WAITING = 0.01, 0.001, 0.5


@dataclass(frozen=True)
class Examination:
    """What was found out about an environment."""

    findings: tuple[Finding, ...]
    observations: str = ""
    """The observation space in words; empty where the environment could not be made."""
    actions: str = ""
    step: Duration | None = None
    """The median; None where no step was taken."""
    reset: Duration | None = None
    error: BaseException | None = None
    """What the environment raised, if that ended the examination."""

    @property
    def is_fatal(self) -> bool:
        """Whether the environment cannot be trained on."""
        return any(finding.is_fatal for finding in self.findings)


def examine(spec: EnvSpec, is_stopping: Callable[[], bool] = lambda: False, longest_s: float = MAX_S) -> Examination:
    """Examine an environment; `is_stopping` is asked before every step, and ends the examination.

    longest_s: how long its steps take together at most, if no single call takes longer.
    """
    examiner = _Examiner(spec, is_stopping, longest_s)
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            examiner.play()
        except Unusable as unusable:
            examiner.notebook.end_with(unusable.finding)
            error = unusable.error
        except KeyboardInterrupt:
            raise
        except BaseException as unexpected:  # raised by a space, or by an object that the environment returned
            examiner.notebook.end_with(raised("it", unexpected))
        finally:
            examiner.close()
    return examiner.result(error)


class _Examiner:
    def __init__(self, spec: EnvSpec, is_stopping: Callable[[], bool], longest_s: float) -> None:
        self.notebook = Notebook()
        self._spec, self._is_stopping, self._longest_s = spec, is_stopping, longest_s
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._deadline = math.inf
        self.spaces_in_words = ("", "")

    def play(self) -> None:
        """Play, and take down what is found; raise `Unusable` where there is no way to play on."""
        began = time.monotonic()
        env = self._make()
        made = time.monotonic()
        self.spaces_in_words = words_for(env.observation_space), words_for(env.action_space)
        try:
            known = spaces_of(env, self._spec.name)
        except SpreezeError as error:
            raise Unusable(_refused(error)) from None
        self._check_interface(env)
        actions = _draw_actions(known)
        first_instance = Rehearsal(env, known, self.notebook)
        self._deadline = made + self._longest_s

        def first_is_over() -> bool:
            late = time.monotonic() > made + FIRST_SHARE * self._longest_s
            return self._is_stopping() or (late and self.notebook.steps > 0)  # one step, however long a reset takes

        first = first_instance.play(actions, SEED, first_is_over)
        if not first_instance.has_limit and not self.notebook.ended_episodes and self.notebook.steps == STEPS:
            self.notebook.add("limit", _no_limit())
        # As far as the first time has come, so that all of them are over in time.
        may_make_another = made - began < self._longest_s
        self._check_repetition(known, actions[: self.notebook.steps], first_instance, first, may_make_another)
        share = self.notebook.unusable_steps / max(1, self.notebook.steps)
        for topic in ("unusable observation", "unusable reward"):
            found = self.notebook.findings.get(topic)
            if found is not None and share > MAX_UNUSABLE_SHARE:
                self.notebook.findings[topic] = Finding(found.problem, found.fix, is_fatal=True)

    def result(self, error: BaseException | None) -> Examination:
        """Return all that was found out."""
        step, reset = _median(self.notebook.step_durations), _median(self.notebook.reset_durations)
        findings = list(self.notebook.findings.values())
        if step is not None and len(self.notebook.step_durations) >= MIN_TIMED_STEPS:
            findings += step_notes(step)
        if step is not None and reset is not None:  # a slow reset leaves no time for many steps
            findings += reset_notes(step, reset, len(self.notebook.reset_durations))
        # What makes a training impossible first, and notes last.
        findings.sort(key=lambda finding: (not finding.is_fatal, finding.is_note))
        return Examination(tuple(findings), *self.spaces_in_words, step, reset, error)

    def close(self) -> None:
        """Close all instances."""
        for env in self._envs:
            try:
                env.close()
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: S112 (as after a training, where it has no consequence)
                continue

    def _is_over(self) -> bool:
        return self._is_stopping() or time.monotonic() > self._deadline

    def _make(self) -> gymnasium.Env[Any, Any]:
        try:
            env = make_env(self._spec)
        except KeyboardInterrupt:
            raise
        except EnvironmentSetupError as error:
            raise Unusable(_not_made(error), error.__cause__ or error) from None
        except BaseException as error:
            raise Unusable(raised("the constructor", error), error) from None
        self._envs.append(env)
        return env

    def _check_interface(self, env: Any) -> None:
        if not isinstance(env, gymnasium.Env):
            problem = f"{type(env).__name__} is not a gymnasium.Env: wrappers of Gymnasium refuse it"
            self.notebook.add("class", Finding(problem, "derive it from `gymnasium.Env`"))
        for layer in layers_of(env):
            if takes(layer.reset, "seed") and not takes(layer.reset, "options"):
                self.notebook.add("options", old_reset(layer, "options", is_fatal=False))

    def _check_repetition(
        self,
        known: Spaces,
        actions: Sequence[NDArray[Any]],
        first_instance: Rehearsal,
        first: Track,
        may_make_another: bool,
    ) -> None:
        """Play the same again, in the same instance and twice in a fresh one."""
        if self._is_over():
            return
        other = self._make_another() if may_make_another else None
        second_instance = None if other is None else Rehearsal(other, known, self.notebook)

        def play(instance: Rehearsal | None) -> Track:
            return [] if instance is None or self._is_over() else instance.play(actions, SEED, self._is_over)

        fresh, again, fresh_again = play(second_instance), play(first_instance), play(second_instance)
        finding = judge(first, again, fresh, fresh_again, self._envs[0])
        registered = getattr(self._envs[0], "spec", None)  # a callable may return what is no `gymnasium.Env`
        if finding is not None and registered is not None and registered.nondeterministic:
            finding = Finding(finding.problem, "it is registered as such: nothing to do", is_note=True)
        self.notebook.add("repetition", finding)

    def _make_another(self) -> gymnasium.Env[Any, Any] | None:
        try:
            other = self._make()
        except Unusable as unusable:
            problem = f"a second instance in the same process cannot be made: {unusable.finding.problem}"
            fix = "allow several instances, or train with --envs-per-sampler 1 --eval-episodes 1"
            self.notebook.add("instances", Finding(problem, fix))
            return None
        if other is self._envs[0]:
            problem = "the callable returns the same environment each time it is called"
            self.notebook.add("instances", Finding(problem, "make a new environment in each call"))
            return None
        return other


def words_for(space: spaces.Space[Any]) -> str:
    """Return a space in a few words."""
    match space:
        case spaces.Box():
            bounds = f"from {space.low.min():g} to {space.high.max():g}" if space.low.size else "empty"
            return f"Box of shape {space.shape}, {space.dtype}, {bounds}"
        case spaces.Dict():
            return "Dict of " + "; ".join(f"{key}: {words_for(part)}" for key, part in space.items())
        case spaces.Tuple():
            return "Tuple of " + "; ".join(map(words_for, space))
    return " ".join(str(space).split())


def _not_made(error: EnvironmentSetupError) -> Finding:
    """Return the finding about an environment that could not be made."""
    cause = error.__cause__
    if isinstance(cause, TookTooLong):
        return raised("the constructor", cause)
    if cause is None:
        fix = "return an instance of `gymnasium.Env`"
    elif isinstance(cause, gymnasium.error.DependencyNotInstalled | ImportError):
        fix = "install it for the Python that runs Spreeze"
    else:
        fix = "correct this line, or the arguments (--env-kwargs)"
    place = "" if cause is None else place_of(cause)
    return Finding(f"{one_line(error)}{place}", fix, is_fatal=True)


def _refused(error: SpreezeError) -> Finding:
    """Return the finding about spaces that are not supported."""
    problem, _, supported = one_line(error).partition(". ")
    return Finding(problem, supported.rstrip(".") or "give it other spaces, by a wrapper", is_fatal=True)


def _no_limit() -> Finding:
    problem = f"Gymnasium knows no time limit of it, and no episode ended within {STEPS} steps"
    fix = "unless it ends its episodes itself after more steps, train with --max-episode-steps N"
    return Finding(problem, fix, is_note=True)


def _draw_actions(known: Spaces) -> list[NDArray[Any]]:
    actions = env_actions(known.action)
    return list(actions.to_env(actions.draw(STEPS, np.random.default_rng(SEED))))


def _median(durations: Sequence[Duration]) -> Duration | None:
    if not durations:
        return None
    return Duration(median(each.wall_s for each in durations), median(each.cpu_s for each in durations))


def step_notes(step: Duration) -> Iterator[Finding]:
    """Yield a note about steps that decide how fast a training is."""
    figures = f"a step takes {in_words(step.wall_s)}, of which {in_words(step.cpu_s)} are computation"
    if step.wall_s > WAITING_STEP_S and step.cpu_s < MAX_CPU_SHARE_OF_WAITING * step.wall_s:
        fix = "more samplers than there are cores wait at the same time: --samplers N"
        yield Finding(f"{figures}: the rest of the time it waits", fix, is_note=True)
    elif step.wall_s > SLOW_STEP_S:
        fix = "--samplers N steps it on N cores; a profile (python -m cProfile) shows what takes long"
        yield Finding(f"{figures}: it decides how fast a training is", fix, is_note=True)


def reset_notes(step: Duration, reset: Duration, resets: int) -> Iterator[Finding]:
    """Yield a note about resets that take as long as many steps."""
    if reset.wall_s > max(SLOW_RESET_S, SLOW_RESET_STEPS * step.wall_s):
        which = "the first reset" if resets == 1 else "a reset"
        problem = f"{which} takes {in_words(reset.wall_s)}, as long as {reset.wall_s / step.wall_s:.0f} steps"
        yield Finding(problem, "load files and build the scene in the constructor, not in `reset`", is_note=True)


def in_words(seconds: float) -> str:
    """Return a duration with its unit."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
