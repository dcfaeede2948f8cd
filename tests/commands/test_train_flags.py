"""The help of `spreeze train`, and flags that are of another algorithm or another time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from spreeze.commands.train import training_config
from spreeze.commands.train_help import texts_of
from spreeze.config import Config
from spreeze.config.fields import flag
from spreeze.config.own_settings import find_algorithm, own_types
from spreeze.config.retired import RETIRED
from spreeze.config.sections import settings_of
from spreeze.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spreeze

SETTINGS = settings_of(Config)
MOST_USED = "algo seed max_seconds max_env_steps target_return samplers batch_size learning_rate device run_dir"
SECTIONS = ["most-used", "task", "stopping", "hardware", "learning", "algorithm", "output"]


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        training_config(list(words))
    assert stopped.value.code == 0
    return capsys.readouterr().out


def flags_of(text: str) -> list[str]:
    """Return the settings that a help lists, ENV among them."""
    found = re.findall(r"^[^a-zA-Z]{2}(ENV|--[a-z][a-z-]*)", text, re.MULTILINE)
    return [name.lower().removeprefix("--").replace("-", "_") for name in found]


def sections_of(text: str) -> dict[str, str]:
    parts = re.split(r"^\W+([\w-]+) (?:options|arguments)\W*$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg"])
def test_help_lists_what_most_users_need(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "--algo", algo, "--help")
    listed = flags_of(text)
    assert len(listed) == len(set(listed)) <= 55
    expected = {s.name for s in SETTINGS.values() if not s.mark.is_for_experts}
    assert set(listed) == expected | own_types(find_algorithm(algo)).keys()
    assert "--help-all" in text.splitlines()[-1]


def test_help_begins_with_the_ten_settings_that_are_used_most(capsys: pytest.CaptureFixture[str]) -> None:
    sections = sections_of(help_of(capsys, "--help"))
    assert flags_of(sections.pop("positional")) == ["env"]
    assert flags_of(sections["most-used"]) == MOST_USED.split()
    assert [name for name in sections if name in SECTIONS] == SECTIONS


def test_help_all_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "--help-all")
    assert sorted(flags_of(text)) == sorted({**SETTINGS, **own_types(find_algorithm("sac"))})
    assert "Entropy temperature at the start." in " ".join(text.split())


def test_help_follows_the_algorithm_of_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"algo": "td3", "learning_rate": 0.5}')
    text = help_of(capsys, "--config", str(path), "-h")
    assert "target_noise" in flags_of(text)
    assert "0.5" in text


def test_every_setting_has_a_text() -> None:
    for setting in SETTINGS.values():
        assert texts_of(setting.owner)[setting.name].endswith((".", "'."))


@pytest.mark.parametrize("name", [s.name for s in SETTINGS.values() if s.mark.is_for_experts])
def test_flags_for_experts_are_valid(name: str) -> None:
    value = Config("x").flat()[name]
    words = [flag(name)] if isinstance(value, bool) else [flag(name), str(value)]
    assert training_config(["Pendulum-v1", *words]).flat()[name] == (isinstance(value, bool) or value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--target-noise 0.1", "--target-noise is a setting of td3: leave it out, or use --algo td3"),
        ("--algo=td3 --initial-temperature 0.1", "--initial-temperature is a setting of sac"),
        ("--algo sac --algo ddpg --target_entropy=-1", "--target-entropy is a setting of sac"),
        ("--double", "--double is a setting of dqn: leave it out, or use --algo dqn"),
        ("--no-double", "--no-double is a setting of dqn: leave it out, or use --algo dqn"),
        ("--algo td3 --no_dueling", "--no-dueling is a setting of dqn: leave it out, or use --algo dqn"),
    ],
)
def test_flags_of_another_algorithm_are_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        training_config(["Pendulum-v1", *words.split()])
    assert said in str(raised.value)


def test_flags_of_the_chosen_algorithm_are_taken() -> None:
    words = "Pendulum-v1 --target-noise 0.1 --algo td3 --value-range -600 50 --atoms 51"
    config = training_config(words.split())
    assert (config.own["target_noise"], config.learning.value_range) == (0.1, (-600.0, 50.0))
    assert training_config(["x", "--exchange-updates", "lock-step"]).learning.is_lock_step


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_flag_of_an_earlier_version_says_what_replaces_it(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        training_config(["Pendulum-v1", flag(name), "1"])
    assert str(raised.value) == f"{flag(name)} no longer exists: {RETIRED[name]}"


def test_config_file_of_an_earlier_version_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"env": "Ant-v5", "transport": "shm", "exchange": "lock-step", "min_samplers": 1}')
    config = training_config(["--config", str(path), "--seed", "4"])
    assert (config.env, config.seed, config.learning.exchange_updates) == ("Ant-v5", 4, "lock-step")
    assert config.watching.dashboard


def test_help_and_errors_load_neither_torch_nor_gymnasium(spreeze: Spreeze) -> None:
    environment = spreeze.without("gymnasium")  # and not with torch
    for words, code in ((["--help"], 0), (["--help-all"], 0), (["x", "--target-noise", "1"], 2)):
        finished = spreeze("train", *words, environment=environment)
        assert finished.returncode == code, finished.stderr
