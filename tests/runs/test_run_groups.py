from __future__ import annotations

import json
from typing import Any

import pytest

from spreeze.config import Config
from spreeze.runs.run_groups import RunGroup, as_asked, group_runs


def config(**fields: Any) -> dict[str, Any]:
    """A config as a run folder holds it: through JSON."""
    env = fields.pop("env", "Pendulum-v1")
    loaded: dict[str, Any] = json.loads(json.dumps(Config(env, "sac").replace(**fields).flat()))
    return loaded


def test_runs_that_differ_by_chance_or_length_are_one_group() -> None:
    runs = [
        config(seed=0),
        config(seed=1, max_seconds=60.0, run_dir="runs/b"),
        config(seed=1, target_return=-200.0, max_env_steps=10**6, quiet=True),
    ]
    assert group_runs(runs) == [RunGroup("sac", (0, 1, 2))]


@pytest.mark.parametrize(
    ("one", "other", "labels"),
    [
        ({}, {"algo": "td3"}, ["sac", "td3"]),
        ({}, {"env": "HalfCheetah-v5"}, ["Pendulum-v1", "HalfCheetah-v5"]),
        ({}, {"batch_size": 256}, ["batch_size auto", "batch_size 256"]),
        ({}, {"layer_norm": True}, ["no layer_norm", "layer_norm"]),
        ({}, {"hidden": (64,)}, ["hidden 256 256", "hidden 64"]),
        ({}, {"learning_rate": 3e-4}, ["learning_rate 0.001", "learning_rate 0.0003"]),
        ({}, {"max_updates_per_step": 1.0}, ["max_updates_per_step auto", "max_updates_per_step 1"]),
        ({"batch_size": 64}, {"algo": "ddpg", "batch_size": 32}, ["sac, batch_size 64", "ddpg, batch_size 32"]),
        ({"gamma": 0.9}, {"gamma": 0.9, "algo": "td3"}, ["sac", "td3"]),  # what all share is not said
    ],
)
def test_labels_say_exactly_what_differs(one: dict[str, Any], other: dict[str, Any], labels: list[str]) -> None:
    groups = group_runs([config(**one), config(**other)])
    assert [group.label for group in groups] == labels
    assert [group.members for group in groups] == [(0,), (1,)]


def test_groups_are_in_the_order_of_their_first_run() -> None:
    runs = [config(algo="td3", seed=0), config(seed=0), config(algo="td3", seed=1), config(seed=1)]
    assert group_runs(runs) == [RunGroup("td3", (0, 2)), RunGroup("sac", (1, 3))]


def test_fields_that_something_else_shows_are_left_out_of_labels() -> None:
    runs = [config(), config(env="HalfCheetah-v5"), config(env="HalfCheetah-v5", algo="td3")]
    assert [group.label for group in group_runs(runs, unnamed=("env",))] == ["sac", "sac", "td3"]


def test_no_runs_are_no_groups() -> None:
    assert group_runs([]) == []


def test_field_that_an_older_run_does_not_have_is_at_its_default() -> None:
    old = config()
    del old["layer_norm"], old["hidden"]
    assert len(group_runs([old, config()])) == 1
    assert [group.label for group in group_runs([old, config(layer_norm=True)])] == ["no layer_norm", "layer_norm"]


@pytest.mark.parametrize("strange", [{"batch_size": {"a": [1]}}, {"unheard_of": [[1, 2], 3]}, {}, {"env": None}])
def test_damaged_configs_are_grouped_too(strange: dict[str, Any]) -> None:
    groups = group_runs([config(), strange, strange])
    assert [index for group in groups for index in group.members] == [0, 1, 2]
    assert all(group.label for group in groups)


def test_what_a_run_has_chosen_itself_counts_as_auto() -> None:
    first, second = config(batch_size=128, samplers=2), config(seed=1, batch_size=512, samplers=2)
    choices = [
        {"kind": "choice", "setting": "batch_size", "value": 128, "reason": "it pays"},
        {"kind": "adapt", "setting": "samplers"},
        {"kind": "choice"},
    ]
    asked = [as_asked(first, choices), as_asked(second, choices)]
    assert asked[0] == {**first, "batch_size": "auto"}
    assert len(group_runs(asked)) == 1
    assert len(group_runs([first, second])) == 2
