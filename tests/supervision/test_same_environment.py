"""Which differences of two environments are told, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.config.choice import Choice
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import RunSettings
from spreeze.environments.description import describe_space
from spreeze.errors import RunFolderError, SpreezeError
from spreeze.runs.checkpoint_format import Manifest
from spreeze.runs.progress import Progress
from spreeze.supervision.checkpoint_orders import ResumePoint
from spreeze.supervision.same_environment import require_same_environment

ACTION = spaces.Box(-1, 1, (2,))
OBSERVATION = spaces.Box(-np.inf, np.inf, (3,))
SPACES = Spaces({"kind": "box", "shape": [3]}, ContinuousActions(np.zeros(2), np.ones(2), (2,)))
SPEC = EnvSpec("Toy-v0")


def description(
    observation: spaces.Space[Any] = OBSERVATION, action: spaces.Space[Any] = ACTION, **fields: Any
) -> dict[str, Any]:
    return {
        "id": "Toy-v0",
        "kwargs": {},
        "packages": {"gymnasium": "1.4.0", "toys": "2.0"},
        "observation": describe_space(observation),
        "action": describe_space(action),
        **fields,
    }


def compare(before: Any, now: dict[str, Any], spec: EnvSpec = SPEC, width: int = 0) -> list[str]:
    progress = Progress({}, RunSettings(1, 4, 32, 1), 1.0, environment=before)
    resume_point = ResumePoint((Manifest(1, (), (), width, {}),), progress)
    facts = EnvironmentFacts(SPACES, Choice("backend", "gymnasium", "it is there"), (), now)
    return require_same_environment(Path("run"), spec, resume_point, facts)


def box(low: Any, high: Any, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


NAN_BOX = box([0, 0], [1, 1])
NAN_BOX.high[1] = np.nan
LONG = np.linspace(0, 1, 100, dtype=np.float32)
LONGER = np.linspace(0, 2, 100, dtype=np.float32)


@pytest.mark.parametrize("same", [OBSERVATION, ACTION, NAN_BOX, box(-LONG, LONG), spaces.Dict({"a": ACTION})])
def test_the_same_environment_is_accepted_silently(same: spaces.Space[Any]) -> None:
    assert compare(description(same), description(same)) == []


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (box([-1] * 2, [1] * 2), box([-1] * 2, [2] * 2), "action high was 1.0 and is 2.0 now"),
        (box([-1] * 2, [1] * 2), box([-1, -3], [1] * 2), "action low[1] was -1.0 and is -3.0 now"),
        (box([0, 0], [1, 1]), NAN_BOX, 'action high[1] was 1.0 and is "nan" now'),
        (box([0, 0], [1, np.inf]), NAN_BOX, 'action high[1] was "inf" and is "nan" now'),
        (box([0] * 2, [1] * 2), box([0] * 2, [1] * 2, np.float64), 'action dtype was "float32" and is "float64" now'),
        (box([0] * 2, [1] * 2), box([0] * 3, [1] * 3), "action shape was [2] and is [3] now; use"),
        (box(-LONG, LONG), box(-LONG, LONGER), "numbers 100, lowest 0.0, highest 2.0, SHA-256"),
        (spaces.Discrete(3), spaces.Discrete(4), "action n was 3 and is 4 now"),
        (ACTION, spaces.Discrete(4), 'action space was "Box" and is "Discrete" now'),
        (
            spaces.Dict({"a": ACTION, "b": ACTION}),
            spaces.Dict({"a": ACTION, "c": ACTION}),
            'action space was Dict of ["a", "b"] and is Dict of ["a", "c"] now',
        ),
        (
            spaces.Dict([("a", ACTION), ("b", ACTION)]),
            spaces.Dict([("b", ACTION), ("a", ACTION)]),
            'action space was Dict of ["a", "b"] and is Dict of ["b", "a"] now',
        ),
        (
            spaces.Dict({"a": spaces.Tuple([ACTION, spaces.Discrete(2)])}),
            spaces.Dict({"a": spaces.Tuple([ACTION, spaces.Discrete(3)])}),
            "action[a][1] n was 2 and is 3 now",
        ),
    ],
)
def test_spaces_that_differ_are_refused_with_both_values(
    before: spaces.Space[Any], now: spaces.Space[Any], said: str
) -> None:
    with pytest.raises(RunFolderError) as refused:
        compare(description(action=before), description(action=now))
    line = str(refused.value)
    assert said in line
    assert line.startswith("Toy-v0 is not the environment that 'run' was trained on: ")
    assert line.endswith("use the environment's code as it was, or start a new run")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"g": 9.8}, {"g": 5.0}, "argument g was 9.8 and is 5.0 now"),
        ({}, {"g": 5.0}, "argument g was not given and is 5.0 now"),
        ({"g": 5.0}, {}, "argument g was 5.0 and is not given now"),
    ],
)
def test_other_arguments_are_refused(before: dict[str, Any], now: dict[str, Any], said: str) -> None:
    with pytest.raises(RunFolderError) as refused:
        compare(description(kwargs=before), description(kwargs=now))
    assert said in str(refused.value)
    assert "set env and env_kwargs in run/config.json back" in str(refused.value)


def test_another_id_is_refused_and_a_class_may_have_been_corrected() -> None:
    with pytest.raises(RunFolderError, match='id was "Toy-v0" and is "Toy-v1" now'):
        compare(description(), description(id="Toy-v1"))
    assert compare(description(), description(id=None)) == []
    assert compare(description(id=None), description()) == []


def test_another_version_of_a_package_is_a_warning() -> None:
    now = {"gymnasium": "1.4.1", "toys": "2.0", "new": "1"}
    assert compare(description(), description(packages=now)) == [
        "Toy-v0: gymnasium was 1.4.0 and is 1.4.1 now; it may behave differently"
    ]


def test_the_remedy_of_other_spaces_is_the_version_that_had_them_or_the_callable() -> None:
    now = description(action=spaces.Box(-2, 2, (2,)), packages={"toys": "3.0"})
    with pytest.raises(RunFolderError, match=r"toys was 2.0 and is 3.0 now: install toys==2.0, or start a new run"):
        compare(description(), now)
    with pytest.raises(RunFolderError, match="pass the env that it was trained on, or start a new run"):
        compare(description(), now, EnvSpec("Toy()", factory=lambda: None))  # type: ignore[arg-type,return-value]
    # What a stranger's checkpoint says is nothing to copy into a shell.
    with pytest.raises(RunFolderError, match="use the environment's code as it was"):
        compare(description(packages={"toys": "2.0; rm -rf ."}), now)


def test_many_differences_are_three_and_a_number() -> None:
    with pytest.raises(RunFolderError, match="argument c was not given and is 1 now and 2 more; set env"):
        compare(description(), description(kwargs=dict.fromkeys("abcde", 1)))


def test_of_a_checkpoint_without_a_description_the_width_of_rows_is_compared() -> None:
    width = 3 + 2 + 1 + 3 + 2
    assert compare(None, description(), width=width) == []
    assert compare(None, description(), width=0) == []  # without its replay
    with pytest.raises(RunFolderError, match=f"a transition has {width} numbers, and those of the checkpoint 7"):
        compare(None, description(), width=7)


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"packages": 3, "kwargs": [1], "observation": "Box", "action": None},
        {"packages": {"gymnasium": {}}, "observation": {"kind": ["Box"]}, "action": {"kind": "Box", "low": {}}},
        {
            "action": {
                "kind": "Box",
                "shape": [2],
                "dtype": "float32",
                "low": [[], {}],
                "high": {"sha256": ["\x1b[2J"]},
            }
        },
        {"id": "\x1b[2Jgone" * 1000, "kwargs": {"\n": "\n"}, "observation": {"kind": "Dict", "parts": 3}},
    ],
)
def test_whatever_a_checkpoint_says_the_answer_is_one_plain_line(before: dict[str, Any]) -> None:
    with pytest.raises(SpreezeError) as refused:
        compare(before, description())
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 1500
