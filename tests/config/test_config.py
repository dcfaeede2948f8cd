from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze.config import ClusterConfig, Config, EnvironmentConfig, LearningConfig, LimitsConfig, SamplingConfig
from spreeze.config.fields import flag, leaf_types
from spreeze.config.own_settings import is_built_in
from spreeze.config.retired import RETIRED
from spreeze.config.sections import Mark, settings_of
from spreeze.errors import ConfigError
from spreeze.runs.run_folder import read_config_file, read_run_config


def leaf_names(node: Any) -> list[str]:
    names = []
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            names += leaf_names(value)
        else:
            names += list(value) if isinstance(value, dict) else [field.name]
    return names


def refusal(**fields: Any) -> str:
    """The message of a refusal, which must be one line."""
    with pytest.raises(ConfigError) as raised:
        Config("Pendulum-v1").replace(**fields)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# --- names ------------------------------------------------------------------------------------------------------


def test_every_leaf_has_a_name_of_its_own() -> None:
    names = leaf_names(Config("Pendulum-v1"))
    assert len(names) == len(set(names))
    assert set(names) == set(Config("Pendulum-v1").flat())


def test_groups_and_leaves_share_no_name() -> None:
    groups = {field.name for field in dataclasses.fields(Config) if field.name not in Config("x").flat()}
    assert groups
    assert not groups & set(leaf_names(Config("x")))


def test_defaults_are_valid() -> None:
    config = Config("Pendulum-v1")
    assert config.replace(**config.flat()) == config


def test_flag_is_the_name_with_dashes() -> None:
    assert flag("max_env_steps") == "--max-env-steps"


# --- replace and flat -------------------------------------------------------------------------------------------


def test_replace_changes_leaves_of_every_group_and_nothing_else() -> None:
    config = Config("Pendulum-v1")
    changed = config.replace(
        env="Ant-v5",
        seed=3,
        max_updates=10,
        samplers=2,
        batch_size=64,
        eval_episodes=4,
        quiet=True,
        max_episode_steps=9,
    )
    assert changed.env == "Ant-v5"
    assert changed.limits.max_updates == 10
    assert changed.sampling.samplers == 2
    assert changed.learning.batch_size == 64
    assert changed.evaluation.eval_episodes == 4
    assert changed.output.quiet is True
    assert changed.environment.max_episode_steps == 9
    before, after = config.flat(), changed.flat()
    assert {name for name in before if before[name] != after[name]} == {
        "env", "seed", "max_updates", "samplers", "batch_size", "eval_episodes", "quiet", "max_episode_steps"
    }  # fmt: skip
    assert config == Config("Pendulum-v1")  # the original is as it was


settings_of_a_user = st.fixed_dictionaries(
    {},
    optional={
        "env": st.text(min_size=1, max_size=10),
        "seed": st.integers(0, 2**31),
        "env_module": st.lists(st.text(max_size=5), max_size=3),
        "env_kwargs": st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.booleans(), st.none())),
        "max_seconds": st.one_of(st.none(), st.floats(0.1, 1e9), st.integers(1, 1000)),
        "target_return": st.one_of(st.none(), st.floats(-1e9, 1e9)),
        "samplers": st.one_of(st.just("auto"), st.integers(1, 64)),
        "exchange_updates": st.one_of(st.just("lock-step"), st.integers(1, 1000)),
        "value_range": st.one_of(st.none(), st.tuples(st.floats(-9, 9), st.floats(-9, 9))),
        "hidden": st.lists(st.integers(1, 1024), min_size=1, max_size=4),
        "gamma": st.floats(0, 1),
        "batch_size": st.one_of(st.just("auto"), st.integers(1, 1000)),
        "replay_rows": st.one_of(st.just("auto"), st.integers(1000, 10**7)),
        "target_entropy": st.one_of(st.just("auto"), st.floats(-100, 100)),
        "device": st.sampled_from(["auto", "cpu", "cuda", "cuda:0", "cuda:13"]),
        "run_dir": st.one_of(st.none(), st.text(max_size=10)),
        "quiet": st.booleans(),
    },
)


@settings(deadline=None, max_examples=30)
@given(settings_of_a_user)
def test_config_survives_its_file(fields: dict[str, Any]) -> None:
    config = Config("Pendulum-v1").replace(**fields)
    assert Config("Other-v0").replace(**config.flat()) == config
    assert Config("Other-v0").replace(**json.loads(json.dumps(config.flat()))) == config


def test_lists_become_tuples_and_whole_numbers_become_floats() -> None:
    config = Config("x").replace(hidden=[64, 32], env_module=["a", "b"], max_seconds=60, gamma=1)
    assert config.learning.hidden == (64, 32)
    assert config.environment.env_module == ("a", "b")
    assert isinstance(config.limits.max_seconds, float)
    assert isinstance(config.learning.gamma, float)
    assert hash(config) == hash(config.replace())


def test_one_item_stands_for_a_list_of_one() -> None:
    config = Config("x").replace(hidden=64, env_module="a")
    assert config.learning.hidden == (64,)
    assert config.environment.env_module == ("a",)


def test_arguments_of_the_environment_may_be_a_mapping() -> None:
    config = Config("x").replace(env_kwargs={"gravity": 9.81, "wind": {"x": 1}})
    assert json.loads(config.environment.env_kwargs) == {"gravity": 9.81, "wind": {"x": 1}}
    assert Config("x").replace(env_kwargs='{"gravity": 1}').environment.env_kwargs == '{"gravity": 1}'


def test_arguments_that_are_not_json_say_what_to_do() -> None:
    message = refusal(env_kwargs={"engine": object()})
    assert "env_kwargs" in message
    assert "callable" in message


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [("batchsize", "batch_size"), ("max_second", "max_seconds"), ("hiden", "hidden"), ("sampler", "samplers")],
)
def test_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    message = refusal(**{name: 1})
    assert f"'{name}'" in message
    assert near in message


def test_unknown_name_without_a_near_one_says_where_they_are_listed() -> None:
    assert "--help" in refusal(qqqqqq=1)


@pytest.mark.parametrize("group", ["learning", "limits", "environment"])
def test_group_is_not_a_setting(group: str) -> None:
    assert f"'{group}'" in refusal(**{group: {}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", "big"),
        ("batch_size", 2.5),
        ("batch_size", True),
        ("batch_size", None),
        ("seed", "0"),
        ("seed", 1.0),
        ("seed", None),
        ("gamma", "0.9"),
        ("gamma", None),
        ("gamma", True),
        ("max_seconds", "10"),
        ("max_updates", 10.0),
        ("quiet", 1),
        ("quiet", "yes"),
        ("env", 5),
        ("env", None),
        ("hidden", [1.5]),
        ("hidden", ["64"]),
        ("hidden", [True]),
        ("hidden", "64"),
        ("hidden", {"a": 1}),
        ("env_module", [1]),
        ("env_kwargs", 5),
        ("env_kwargs", [1]),
        ("exchange_updates", "free"),
        ("value_range", [1.0]),
        ("value_range", [1.0, 2.0, 3.0]),
        ("value_range", 5.0),
        ("value_range", ["0", "1"]),
        ("value_range", [True, 1.0]),
        ("algo", "ppo"),
        ("algo", None),
        ("run_dir", 5),
        ("device", 0),
        ("target_entropy", "high"),
    ],
)
def test_wrong_type_names_the_flag_and_the_value(name: str, value: Any) -> None:
    message = refusal(**{name: value})
    assert flag(name) in message
    assert repr(value) in message


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_episode_steps", [0, -1]),
        ("max_seconds", [0.0, -1.0, math.nan, math.inf]),
        ("max_env_steps", [0, -5]),
        ("max_updates", [0, -5]),
        ("target_return", [math.nan, math.inf, -math.inf]),
        ("samplers", [0, -1]),
        ("envs_per_sampler", [0]),
        ("warmup_steps", [0, -1]),
        ("ring_rows", [0]),
        ("batch_size", [0, -1]),
        ("replay_rows", [0]),
        ("learner_threads", [0]),
        ("hidden", [[], [0], [64, 0], [-1]]),
        ("learning_rate", [0.0, -1e-3, math.nan, math.inf]),
        ("gamma", [-0.1, 1.1, math.nan]),
        ("tau", [-0.1, 1.1, math.nan]),
        ("initial_temperature", [0.0, -1.0, math.nan]),
        ("target_entropy", [math.nan, math.inf]),
        ("min_updates_per_step", [-0.1, math.nan, math.inf]),
        ("max_updates_per_step", [0.0, -1.0, math.nan, math.inf]),
        ("publish_interval_s", [0.0, -1.0, math.nan]),
        ("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "", "CPU"]),
        ("eval_episodes", [0]),
        ("eval_interval_s", [-1.0, math.nan]),
        ("seed", [-1]),
        ("env_kwargs", ["{", "[1]", "5", ""]),
        ("exchange_updates", [0, -1]),
        ("value_range", [[math.nan, 1.0], [0.0, math.inf]]),
        ("env", [""]),
    ],
)
def test_value_out_of_range_names_the_flag(name: str, values: list[Any]) -> None:
    for value in values:
        message = refusal(**{name: value})
        assert (flag(name) if name != "env" else "env") in message.replace("ENV", "env")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gamma", [0.0, 1.0]),
        ("tau", [0.0, 1.0]),
        ("min_updates_per_step", [0.0, 0.5, "auto"]),
        ("max_updates_per_step", [1e-9, 100.0, "auto", None]),
        ("eval_interval_s", [0.0]),
        ("target_return", [-1e9, 0.0]),
        ("seed", [0, 2**32 - 1]),
        ("samplers", [1, 256]),
    ],
)
def test_values_at_the_edge_are_fine(name: str, values: list[Any]) -> None:
    for value in values:
        assert Config("x").replace(**{name: value}).flat()[name] == value


def test_bounds_of_the_ratio_must_not_cross() -> None:
    message = refusal(min_updates_per_step=2.0, max_updates_per_step=1.0)
    assert "--min-updates-per-step 2.0" in message
    assert "--max-updates-per-step 1.0" in message
    config = Config("x").replace(min_updates_per_step=1.0, max_updates_per_step=1.0)
    assert config.learning.min_updates_per_step == config.learning.max_updates_per_step
    with pytest.raises(ConfigError, match="above"):
        config.replace(min_updates_per_step=1.5)


def test_batch_must_fit_the_replay() -> None:
    message = refusal(batch_size=100, replay_rows=99)
    assert "--batch-size 100" in message
    assert "--replay-rows 99" in message
    assert Config("x").replace(batch_size=100, replay_rows=100).learning.batch_size == 100


def test_seed_that_torch_cannot_take_is_refused() -> None:
    assert "--seed" in refusal(seed=2**64)


def test_without_samplers_here_there_must_be_other_machines() -> None:
    assert "--cluster" in refusal(samplers=0)
    assert Config("x").replace(samplers=0, cluster="auto").sampling.samplers == 0
    assert "--serial" in refusal(serial=True, cluster="10.0.0.1:6379")


def test_groups_are_checked_when_they_are_made() -> None:
    for make in (
        lambda: EnvironmentConfig(env_kwargs="{"),
        lambda: LimitsConfig(max_updates=0),
        lambda: SamplingConfig(samplers=-1),
        lambda: ClusterConfig(cluster_samplers=0),
        lambda: ClusterConfig(cluster="here"),
        lambda: LearningConfig(gamma=2.0),
        lambda: Config(""),
    ):
        with pytest.raises(ConfigError):
            make()


def test_config_cannot_be_changed_in_place() -> None:
    config = Config("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


# --- config files -----------------------------------------------------------------------------------------------


def test_file_of_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(Config("Pendulum-v1").replace(hidden=(8, 8), seed=4).flat()))
    assert Config("Other-v0").replace(**read_config_file(path)).learning.hidden == (8, 8)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"5", b"\xff\xfe", b"seed = 1"])
def test_file_that_holds_no_settings_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.json") as raised:
        read_config_file(path)
    assert "\n" not in str(raised.value)


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ConfigError, match=path.name):
            read_config_file(path)


# --- settings of earlier versions -------------------------------------------------------------------------------


OLD = {"env": "Ant-v5", "transport": "queue", "weights_transport": "shm", "min_samplers": 2, "min_batch_size": 32}
OLD |= {"exchange": "free", "max_lag_updates": 7, "value_low": 0.0, "value_high": 0.0, "samplers": 3}


def test_config_of_an_earlier_version_is_read() -> None:
    assert Config.from_flat(OLD) == Config("Ant-v5", "sac").replace(samplers=3)


def test_config_of_an_earlier_version_keeps_what_has_a_new_name() -> None:
    config = Config.from_flat({**OLD, "exchange": "lock-step", "atoms": 51, "value_low": -1.0, "value_high": 9.0})
    assert config.learning.is_lock_step
    assert config.learning.value_range == (-1.0, 9.0)


def test_run_and_config_file_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(OLD))
    assert read_run_config(tmp_path) == Config("Ant-v5", "sac").replace(samplers=3)
    assert read_config_file(tmp_path / "config.json") == {"env": "Ant-v5", "samplers": 3, "value_range": None}


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_keyword_of_an_earlier_version_says_what_replaces_it(name: str) -> None:
    message = refusal(**{name: 1})
    assert f"'{name}' is no longer a setting" in message
    assert RETIRED[name] in message
    assert name not in Config("x").flat()


# --- marks for the help -----------------------------------------------------------------------------------------


def test_every_setting_but_the_environment_has_a_section() -> None:
    settings = settings_of(Config)
    assert [*settings, *Config("x").own] == list(Config("x").flat())
    assert {name for name, setting in settings.items() if setting.mark.section is None} == {"env"}


def test_marks_change_no_type() -> None:
    assert {name: setting.hint for name, setting in settings_of(Config).items()} == leaf_types(Config)


def test_a_mark_on_a_field_overrides_that_of_its_group() -> None:
    marks = {name: setting.mark for name, setting in settings_of(Config).items()}
    assert marks["replay_rows"] == Mark("learning")
    assert marks["batch_size"] == Mark("most used")
    assert marks["publish_interval_s"] == Mark("learning", is_for_experts=True)
    assert marks["exploration"] == Mark("algorithm")


def test_lag_is_bounded_by_eight_exchanges() -> None:
    assert Config("x").learning.max_lag_updates == 1024
    assert Config("x").replace(exchange_updates=16).learning.max_lag_updates == 128


# --- the algorithm for the environment's actions --------------------------------------------------------------


def test_until_the_actions_are_known_the_settings_are_those_of_sac() -> None:
    asked = Config("x").replace(initial_temperature=0.5)
    assert asked.chooses_algorithm
    guess = asked.with_first_guess()
    assert (guess.algo, guess.own["initial_temperature"]) == ("sac", 0.5)
    assert asked.with_algorithm("sac") == guess


def test_settings_that_the_chosen_algorithm_does_not_have_are_refused() -> None:
    assert dict(Config("x").with_algorithm("td3").own) == dict(Config("x", "td3").own)
    with pytest.raises(ConfigError, match="--initial-temperature is a setting of sac: leave it out"):
        Config("x").replace(initial_temperature=0.5).with_algorithm("td3")


def test_an_algorithm_that_was_asked_for_is_not_guessed() -> None:
    guess = Config("x", "td3").with_first_guess()
    assert (guess.algo, guess.chooses_algorithm) == ("td3", False)


@pytest.mark.parametrize(
    "algo", ["mine:Sac", "my.package:Outer.Sac", "__main__:make.<locals>.Sac", "./own/algo.py:Sac"]
)
def test_an_algorithm_of_ones_own_has_a_module_and_a_class(algo: str) -> None:
    assert not is_built_in(algo)


@pytest.mark.parametrize(
    "algo", ['{"g": [1, 2]}', "mine:", ":Sac", "mine:Sac:more", "mine:1", "mine:Sac()", "a\nb:Sac"]
)
def test_what_cannot_be_an_algorithm_is_refused_without_an_import(algo: str) -> None:
    with pytest.raises(ConfigError, match="is not known"):
        is_built_in(algo)
