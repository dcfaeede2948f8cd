"""One small environment for each finding, and those that nothing is found about."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.examine import STEPS, Examination, examine, in_words, reset_notes, step_notes
from spreeze.environments.findings import Finding
from spreeze.environments.gymnasium_checker import find_complaints
from spreeze.environments.rehearsal import Duration
from spreeze.host.alarm import raising_after

LENGTH = 10  # steps of an episode


class Walk(gymnasium.Env[Any, Any]):
    """A point that starts at random and is pushed. Well-behaved; those below break one thing each."""

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.position, self.steps = 0.0, 0

    def observe(self) -> Any:
        return np.array([self.position, self.steps], np.float32)

    def reward(self) -> Any:
        return -abs(self.position)

    def ends(self) -> tuple[Any, Any]:
        return self.steps >= LENGTH, False

    def info(self) -> Any:
        return {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.position, self.steps = float(self.np_random.normal()), 0
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        self.position += 0.1 * float(action[0])
        self.steps += 1
        return self.observe(), self.reward(), *self.ends(), self.info()


def look(make: Callable[[], Any], **more: Any) -> Examination:
    return examine(EnvSpec("walk", factory=make, **more))


def only_finding(make: Callable[[], Any], **more: Any) -> Finding:
    """The finding about an environment, which must be the only one."""
    examination = look(make, **more)
    (finding,) = examination.findings
    assert "\n" not in finding.problem + finding.fix
    return finding


def giving(**values: Any) -> type[Walk]:
    """A walk that gives something else: a value, or what a function of the environment returns."""
    return type(
        "Giving", (Walk,), {name: value if callable(value) else _always(value) for name, value in values.items()}
    )


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _self: value


# --- nothing is wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["Pendulum-v1", "HalfCheetah-v5", "MountainCarContinuous-v0"])
def test_nothing_is_found_about_environments_of_gymnasium(env: str) -> None:
    spec = EnvSpec(env)
    examination = examine(spec)
    assert examination.findings == find_complaints(spec) == ()
    assert examination.step is not None
    assert examination.step.wall_s > 0


def test_nothing_is_found_about_a_well_behaved_environment() -> None:
    examination = look(Walk)
    assert examination.findings == ()
    assert not examination.is_fatal
    assert examination.observations == "Box of shape (2,), float32, from -inf to inf"
    assert examination.actions == "Box of shape (1,), float32, from -1 to 1"


def test_structured_observations_are_compared_part_by_part() -> None:
    class Structured(Walk):
        def __init__(self) -> None:
            super().__init__()
            parts = {"where": spaces.Box(-9.0, 9.0, (1,), np.float32), "side": spaces.Discrete(2)}
            self.observation_space = spaces.Tuple((spaces.Dict(parts), spaces.MultiBinary(2)))

        def observe(self) -> Any:
            where = np.array([self.position], np.float32)
            return {"where": where, "side": int(self.position > 0)}, np.array([1, 0], np.int8)

    assert look(Structured).findings == ()


# --- Gym's old interface -------------------------------------------------------------------------------------------


class FourValues(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NoSeed(Walk):
    def reset(self) -> Any:  # type: ignore[override]
        return self.observe(), {}


class NoOptions(Walk):
    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class OnlyObservation(Walk):
    """Of two numbers, which would be taken for observation and info."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0]


@pytest.mark.parametrize("limit", [None, 5])
def test_old_step(limit: int | None) -> None:
    finding = only_finding(FourValues, max_episode_steps=limit)
    assert finding.is_fatal
    assert "step returns 4 values" in finding.problem
    assert "terminated, truncated" in finding.fix


def test_old_step_inside_a_wrapper() -> None:
    finding = only_finding(lambda: gymnasium.wrappers.TransformReward(FourValues(), abs))
    assert finding.is_fatal
    assert "step returns 4 values" in finding.problem


@pytest.mark.parametrize("limit", [None, 5])
def test_reset_without_a_seed(limit: int | None) -> None:
    finding = only_finding(NoSeed, max_episode_steps=limit)
    assert finding.is_fatal
    assert "reset of NoSeed takes no `seed`" in finding.problem
    assert "seed=None, options=None" in finding.fix


def test_reset_without_options_is_fatal_inside_a_wrapper_only() -> None:
    bare, wrapped = only_finding(NoOptions), only_finding(NoOptions, max_episode_steps=5)
    assert "reset of NoOptions takes no `options`" in bare.problem
    assert bare.problem == wrapped.problem
    assert (bare.is_fatal, wrapped.is_fatal) == (False, True)


class OnlyThreeNumbers(Walk):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        del seed, options
        return np.zeros(3, np.float32)


@pytest.mark.parametrize(
    "make", [OnlyObservation, lambda: gymnasium.wrappers.NormalizeObservation(OnlyThreeNumbers())]
)
def test_reset_that_returns_only_the_observation(make: Callable[[], Any]) -> None:
    finding = only_finding(make)
    assert finding.is_fatal
    assert "instead of two values, as Gym's old interface did" in finding.problem
    assert "return observation, info" in finding.fix


def test_class_that_only_looks_like_an_environment() -> None:
    class Alike:
        def __init__(self) -> None:
            env = Walk()
            self.observation_space, self.action_space, self.reset, self.step = (
                env.observation_space,
                env.action_space,
                env.reset,
                env.step,
            )

    finding = only_finding(Alike)
    assert "Alike is not a gymnasium.Env" in finding.problem
    assert not finding.is_fatal


def test_reset_that_returns_only_an_observation_of_two_parts() -> None:
    def make() -> Walk:
        env = giving(reset=lambda _self, **_: (0, 1))()
        env.observation_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))
        return env

    assert "reset returns a tuple instead of two values" in only_finding(make).problem


def test_step_that_returns_something_else() -> None:
    finding = only_finding(giving(step=lambda _self, _action: None))
    assert finding.is_fatal
    assert finding.problem == "step returns None instead of five values"


# --- spaces that lie ----------------------------------------------------------------------------------------------


def observing(value: Any, space: spaces.Space[Any] | None = None) -> Callable[[], Walk]:
    def make() -> Walk:
        env = giving(observe=value)()
        env.observation_space = space or env.observation_space
        return env

    return make


ODD_OBSERVATIONS: dict[str, tuple[Any, spaces.Space[Any] | None, bool, str]] = {
    "shape": (np.zeros(3, np.float32), None, True, "shape (3,), its space says (2,)"),
    "axis": (np.zeros((1, 2), np.float32), None, True, "one axis more"),
    "strings": (np.array(["a", "b"]), None, True, "not a real number type"),
    "dtype": (np.zeros(2), None, False, "type float64, its space float32"),
    "type": ([0.0, 0.0], None, False, "a list, not a NumPy array"),
    "bounds": (
        np.array([0, 5], np.float32),
        spaces.Box(-1.0, 2.0, (2,), np.float32),
        False,
        "5 at index 1, outside its bounds -1 to 2",
    ),
    "missing key": ({"a": 0}, spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), True, "no part 'b'"),
    "other key": ({"a": 0, "b": 1}, spaces.Dict({"a": spaces.Discrete(2)}), False, "the keys ['b']"),
    "parts": ((0, 1), spaces.Tuple((spaces.Discrete(2),)), False, "2 parts, its space 1"),
    "discrete": (3, spaces.Discrete(3), True, "outside its 3 values"),
    "multi-binary": (np.array([0, 2], np.int8), spaces.MultiBinary(2), False, "its space MultiBinary(2)"),
}


@pytest.mark.parametrize("name", ODD_OBSERVATIONS)
def test_observation_that_does_not_fit_its_space(name: str) -> None:
    value, space, is_fatal, says = ODD_OBSERVATIONS[name]
    finding = only_finding(observing(value, space))
    assert finding.problem.startswith("reset returns what `observation_space` does not allow: ")
    assert says in finding.problem
    assert finding.is_fatal == is_fatal


def test_step_may_lie_where_reset_does_not() -> None:
    finding = only_finding(giving(observe=lambda self: np.zeros(2 + (self.steps > 3), np.float32)))
    assert finding.problem.startswith("step returns what `observation_space` does not allow")


def test_unsupported_spaces_are_refused_with_the_words_of_a_training() -> None:
    class Mixed(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Dict({"leg": spaces.Discrete(3)})

    finding = only_finding(Mixed)
    assert finding.is_fatal
    assert finding.problem.startswith("walk has Dict actions: wrap it")
    assert "Box actions with finite bounds" in finding.fix


# --- what steps return ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "is_fatal", "says"),
    [
        (None, True, "None"),
        ("much", True, "a str"),
        (np.zeros(2), True, "an array of shape (2,)"),
        (np.zeros(()), False, "an array of shape ()"),
        (True, False, "a bool"),
    ],
    ids=str,
)
def test_rewards_that_are_no_numbers(value: Any, is_fatal: bool, says: str) -> None:
    finding = only_finding(giving(reward=value))
    assert finding.problem == f"step returns {says} as its reward"
    assert finding.fix.startswith("return `float(reward)`")
    assert finding.is_fatal == is_fatal


@pytest.mark.parametrize("value", [1, 1.5, np.float32(1), np.int64(1)], ids=repr)
def test_rewards_of_any_type_of_number(value: Any) -> None:
    assert look(giving(reward=value)).findings == ()


@pytest.mark.parametrize(
    ("ends", "is_fatal", "says"),
    [
        ((1, False), False, "an int as `terminated`"),
        ((True, None), False, "None as `truncated`"),
        ((np.zeros(2), False), True, "an array of shape (2,) as `terminated`"),
    ],
    ids=str,
)
def test_ends_that_are_no_bools(ends: tuple[Any, Any], is_fatal: bool, says: str) -> None:
    finding = only_finding(giving(ends=lambda _self: ends))
    assert finding.problem == f"step returns {says}"
    assert finding.is_fatal == is_fatal


def test_numpy_bools_are_bools() -> None:
    assert look(giving(ends=lambda self: (np.bool_(self.steps >= LENGTH), np.bool_(False)))).findings == ()


def test_info_that_is_no_dict() -> None:
    finding = only_finding(giving(info=None))
    assert finding.problem == "reset returns None as `info`"
    assert not finding.is_fatal


@pytest.mark.parametrize(
    ("value", "says"), [(np.nan, "NaN"), (-np.inf, "infinity"), (1e30, "a number beyond 1e+15")], ids=str
)
@pytest.mark.parametrize("field", ["observation", "reward"])
def test_numbers_that_nothing_can_be_learned_from(field: str, value: float, says: str) -> None:
    def make(always: bool) -> type[Walk]:
        def is_bad(env: Walk) -> bool:
            return always or env.steps == 5

        if field == "reward":
            return giving(reward=lambda self: value if is_bad(self) else 0.0)
        return giving(observe=lambda self: np.array([self.steps, value if is_bad(self) else 0], np.float32))

    sometimes, always = only_finding(make(always=False)), only_finding(make(always=True))
    where = " at index 1" if field == "observation" else ""
    assert sometimes.problem == f"step gives {says}{where} in its {field}"
    assert f"{says}{where} in its {field}" in always.problem
    assert (sometimes.is_fatal, always.is_fatal) == (False, True)


# --- repetition -----------------------------------------------------------------------------------------------------


def test_a_generator_without_the_seed() -> None:
    generator = np.random.default_rng()
    finding = only_finding(giving(reward=lambda _self: generator.normal()))
    assert "the same seed and the same actions do not give the same episode" in finding.problem
    assert "the reward of step 1: " in finding.problem
    assert "self.np_random" in finding.fix


def test_an_environment_that_is_registered_as_nondeterministic() -> None:
    generator = np.random.default_rng()
    gymnasium.register(
        "Examined/Random-v0", entry_point=giving(reward=lambda _self: generator.normal()), nondeterministic=True
    )
    (finding,) = examine(EnvSpec("Examined/Random-v0")).findings
    assert finding.is_note
    assert "registered as such" in finding.fix


def test_a_constructor_that_draws_at_random() -> None:
    generator = np.random.default_rng()

    class Drawing(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.mass = generator.normal()

        def reward(self) -> Any:
            return self.mass

    finding = only_finding(Drawing)
    assert "two instances do not play the same episode" in finding.problem
    assert "their constructors draw at random" in finding.problem


class Remembering(Walk):
    """Starts where the last episode has ended."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        before = self.position
        super().reset(seed=seed, options=options)
        self.position += before
        return self.observe(), self.info()


def test_state_that_is_kept_from_one_episode_to_the_next() -> None:
    finding = only_finding(Remembering)
    assert finding.problem.startswith("something is kept from one episode to the next: ")
    assert "an instance that has played before differs from a fresh one" in finding.problem
    assert finding.fix == "set all of the state in `reset`"


@pytest.mark.parametrize(
    ("wrapper", "fix"), [("NormalizeObservation", "--normalise-observations"), ("NormalizeReward", "of its own")]
)
def test_wrappers_with_running_statistics_are_named(wrapper: str, fix: str) -> None:
    finding = only_finding(lambda: getattr(gymnasium.wrappers, wrapper)(Walk()))
    assert finding.problem.startswith(
        f"something is kept from one episode to the next, the running statistics of {wrapper}: "
    )
    assert fix in finding.fix


def test_noise_on_top_of_kept_state_is_no_kept_state() -> None:
    generator = np.random.default_rng()

    class Noisy(Remembering):
        played = False

        def ends(self) -> tuple[Any, Any]:
            return False, False

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed, options=options)
            self.position += generator.normal() if self.played else 0.0
            self.played = True
            return self.observe(), self.info()

    # The first episodes of two instances agree, the second do not: that is chance.
    assert "do not give the same episode" in only_finding(Noisy, max_episode_steps=2 * STEPS).problem


def test_an_array_that_is_overwritten() -> None:
    class Overwriting(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.held = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self.held[:] = super().observe()
            return self.held

    finding = only_finding(Overwriting)
    assert "overwrites the array that it returned before" in finding.problem
    assert finding.is_note


def test_an_array_that_is_overwritten_is_compared_as_it_was() -> None:
    generator = np.random.default_rng()

    class Shaken(Walk):
        """Differs at the third step only, in an array that holds the same again at the end."""

        def __init__(self) -> None:
            super().__init__()
            self.held = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self.held[:] = generator.normal() if self.steps == 3 else 0
            return self.held

    repetition, reuse = look(Shaken).findings
    assert "first difference: the observation of step 3: " in repetition.problem
    assert "overwrites" in reuse.problem


def test_actions_that_are_changed_in_place_are_given_whole_each_time() -> None:
    class Scaling(Walk):
        def step(self, action: Any) -> Any:
            action *= 2
            return super().step(action)

    assert look(Scaling).findings == ()


def test_a_callable_that_returns_one_and_the_same_environment() -> None:
    env = Walk()
    assert "returns the same environment each time" in only_finding(lambda: env).problem


def test_a_second_instance_that_cannot_be_made() -> None:
    count = itertools.count()

    class Single(Walk):
        def __init__(self) -> None:
            super().__init__()
            if next(count):
                raise RuntimeError("the port is taken")

    finding = only_finding(Single)
    assert "a second instance in the same process cannot be made" in finding.problem
    assert "RuntimeError: the port is taken" in finding.problem
    assert not finding.is_fatal


# --- time -----------------------------------------------------------------------------------------------------------


def test_episodes_without_an_end() -> None:
    endless = giving(ends=(False, False))
    finding = only_finding(endless)
    assert f"no episode ended within {STEPS} steps" in finding.problem
    assert "--max-episode-steps" in finding.fix
    assert finding.is_note
    assert look(endless, max_episode_steps=1000).findings == ()


def test_a_step_that_waits() -> None:
    def wait(_self: Walk) -> float:
        time.sleep(0.002)
        return 0.0

    finding = only_finding(giving(reward=wait))
    assert "the rest of the time it waits" in finding.problem
    assert "--samplers" in finding.fix
    assert finding.is_note


@pytest.mark.parametrize(
    ("step", "reset", "says"),
    [
        (
            Duration(0.02, 0.019),
            Duration(0.02, 0.02),
            "a step takes 20 ms, of which 19 ms are computation: it decides",
        ),
        (Duration(0.02, 0.001), Duration(0.02, 0.02), "a step takes 20 ms, of which 1 ms are computation: the rest"),
        (Duration(0.0009, 0.0001), Duration(0.001, 0.001), None),  # too short to tell waiting from interruptions
        (Duration(0.001, 0.001), Duration(0.06, 0.06), "a reset takes 60 ms, as long as 60 steps"),
        (Duration(0.001, 0.001), Duration(0.04, 0.04), None),  # many steps, but hardly felt
        (Duration(0.002, 0.002), Duration(0.06, 0.06), None),  # felt, but not many steps
    ],
)
def test_slow_steps_and_resets(step: Duration, reset: Duration, says: str | None) -> None:
    notes = [*step_notes(step), *reset_notes(step, reset, 2)]
    assert len(notes) == (says is not None)
    for note in notes:
        assert note.problem.startswith(says or "")
        assert note.is_note


@pytest.mark.parametrize(("reset_s", "says"), [(0.9, "a reset takes 900 ms"), (3.0, "the first reset takes 3 s")])
def test_resets_so_slow_that_few_steps_are_taken(reset_s: float, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(**dict.fromkeys(("monotonic", "perf_counter", "process_time"), lambda: now[0]))
    for module in ("examine", "rehearsal"):
        monkeypatch.setattr(f"spreeze.environments.{module}.time", clock)

    class Slow(Walk):
        def reset(self, **given: Any) -> Any:
            now[0] += reset_s
            return super().reset(**given)

        def step(self, action: Any) -> Any:
            now[0] += 0.001
            return super().step(action)

    assert only_finding(Slow).problem.startswith(says)


@pytest.mark.parametrize("where", ["__init__", "reset", "step"])
def test_calls_that_never_return_are_ended_with_their_place(where: str) -> None:
    class Hanging(Walk):
        pass

    def hang(*_: Any, **__: Any) -> Any:
        while True:
            time.sleep(3600)

    setattr(Hanging, where, hang)
    before = signal.getsignal(signal.SIGALRM)
    with raising_after(0.5):
        examination = look(Hanging)
    (finding,) = examination.findings
    assert examination.is_fatal
    name = "the constructor" if where == "__init__" else where
    assert finding.problem.startswith(f"{name} hangs: it did not return within 0.5 s (")
    assert f"test_examine.py:{hang.__code__.co_firstlineno + 2}, in hang)" in finding.problem
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_examination_ends_when_it_is_told_to() -> None:
    taken: list[Any] = []

    class Counted(Walk):
        def step(self, action: Any) -> Any:
            taken.append(action)
            return super().step(action)

    assert examine(EnvSpec("walk", factory=Counted), lambda: len(taken) >= 17).findings == ()
    assert len(taken) == 17


@pytest.mark.parametrize(
    ("seconds", "words"), [(2.5e-6, "2.5 µs"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (123.4, "123 s")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


# --- exceptions -----------------------------------------------------------------------------------------------------


class Mine(BaseException):
    def __str__(self) -> str:
        raise ValueError("not even this")


@pytest.mark.parametrize("where", ["__init__", "reset", "step"])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ZeroDivisionError("the wheel\nfell off"), "ZeroDivisionError: the wheel fell off"),
        (SystemExit("no licence"), "SystemExit: no licence"),
        (Mine(), "Mine"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exceptions_become_findings_with_their_place(where: str, error: BaseException, says: str) -> None:
    class Raising(Walk):
        pass

    def throw(*_: Any, **__: Any) -> Any:
        np.asarray([1]).sum()
        raise error

    setattr(Raising, where, throw)
    examination = look(Raising)
    (finding,) = examination.findings
    assert examination.is_fatal
    assert examination.error is error
    assert says in finding.problem
    assert f"test_examine.py:{throw.__code__.co_firstlineno + 2}, in throw)" in finding.problem


def test_the_place_is_in_the_environment_and_not_in_a_library() -> None:
    finding = only_finding(giving(reward=lambda _self: np.linalg.inv(np.zeros((2, 2)))))
    assert "LinAlgError: Singular matrix" in finding.problem
    assert "test_examine.py:" in finding.problem


def test_hostile_objects_become_findings() -> None:
    class Hostile:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise Mine

    class HostileSpace(spaces.Box):
        def __repr__(self) -> str:
            raise Mine

        @property
        def shape(self) -> Any:
            raise Mine

    class HostileClose(Walk):
        def close(self) -> None:
            raise Mine

    def make() -> Walk:
        env = Walk()
        env.observation_space = HostileSpace.__new__(HostileSpace)
        return env

    assert only_finding(giving(observe=lambda _self: Hostile())).is_fatal
    assert only_finding(make).is_fatal
    assert look(HostileClose).findings == ()


# --- Gymnasium's own checker ----------------------------------------------------------------------------------------


def test_gymnasiums_checker_adds_what_is_not_said_already() -> None:
    class Fixed(giving(observe=np.zeros(2, np.float32))):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            low, high = np.array([-1, 0], np.float32), np.array([1, 0], np.float32)
            self.observation_space = spaces.Box(low, high)

    (complaint,) = find_complaints(EnvSpec("walk", factory=Fixed))
    assert complaint.problem == (
        "Gymnasium's checker says: A Box observation space maximum and minimum values are equal."
    )
    assert complaint.is_note
    # What the examination finds itself is not said twice.
    for make in (observing(np.zeros(2)), giving(reward=True), Remembering):
        assert find_complaints(EnvSpec("walk", factory=make)) == ()
