"""`spreeze train`: the config from flags and a config file. `train_help.py` has its help."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from spreeze.commands.parsing import flags_in, parse, refuse_unknown_flags
from spreeze.config import Config, WatchingConfig
from spreeze.config.own_settings import OwnSettings, complete, find_algorithm, refuse_setting_of_another
from spreeze.config.retired import RETIRED
from spreeze.config.sections import Mark, settings_of
from spreeze.errors import ConfigError
from spreeze.host.shell import for_shell
from spreeze.runs.run_folder import read_config_file
from spreeze.supervision.algorithm_checks import require_own_names

PROGRAM = "spreeze train"
HELP, HELP_ALL = ("-h", "--help"), "--help-all"
NO_ENV = "?"  # stands for the environment that a config file does not name


def training_config(words: list[str]) -> Config:
    """Return the config that words ask for; exits with its help if that is asked for."""
    import tyro

    config_path, words = _take_config_path(words)
    _refuse_retired_flags(words)
    # Who types a command wants to see something; a call from Python opens no servers that it was not asked for.
    watching = WatchingConfig(dashboard=True, video=True)
    default = Config(NO_ENV, watching=watching)
    if config_path is not None:
        default = default.replace(**read_config_file(config_path))
    default = default.replace(algo=_value_of("--algo", words) or default.algo)
    algorithm = find_algorithm(default.algo)
    require_own_names(algorithm, default.algo)
    settings = settings_of(Config) | settings_of(algorithm.Settings, Mark("algorithm"))
    given = [word for word in words if word != HELP_ALL]
    for name in (each[2:].replace("-", "_") for each in flags_in(given)):
        if name not in settings:
            refuse_setting_of_another(name, default.algo)
    refuse_unknown_flags(given, {setting.name: setting.hint for setting in settings.values()}, PROGRAM)
    if HELP_ALL in words or any(word in HELP for word in words):
        from spreeze.commands.train_help import show_help

        show_help(settings, default, HELP_ALL in words)
    # ENV stands anywhere among the flags, also where a config file has given it a default.
    env, own = Annotated[str, tyro.conf.Positional], algorithm.Settings(**complete(algorithm, default.own))
    changed: list[Any] = [
        ("env", env),
        ("watching", WatchingConfig, dataclasses.field(default=watching)),
        ("own", algorithm.Settings, dataclasses.field(default=own)),
    ]
    # What is parsed is checked as a whole when the config is made of it.
    unchecked = {"__post_init__": lambda _: None}
    arguments = dataclasses.make_dataclass(
        "TrainArguments", changed, bases=(Config,), frozen=True, namespace=unchecked
    )
    of_file = None if config_path is None else arguments(**{**_fields(default), "own": own})
    parsed = parse(arguments, words, PROGRAM, of_file)
    if parsed.env == NO_ENV:
        command = f"spreeze train ENV --config {for_shell(str(config_path))}"
        raise ConfigError(f"ENV is missing: {config_path} names none, so type {command}")
    return Config(**{**_fields(parsed), "own": OwnSettings(dataclasses.asdict(parsed.own))})


def _fields(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(Config)}


def _take_config_path(words: list[str]) -> tuple[Path | None, list[str]]:
    for i, word in enumerate(words):
        if word == "--config":
            if i + 1 == len(words):
                raise ConfigError("--config needs a file: --config runs/NAME/config.json")
            return Path(words[i + 1]), words[:i] + words[i + 2 :]
        if word.startswith("--config="):
            return Path(word.removeprefix("--config=")), words[:i] + words[i + 1 :]
    return None, words


def _value_of(name: str, words: list[str]) -> str | None:
    """Return the last value of a flag, as the parser does."""
    spread = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{name}=") else [word])]
    values = [value for word, value in pairwise(spread) if word == name]
    return values[-1] if values else None


def _refuse_retired_flags(words: list[str]) -> None:
    for given in flags_in(words):
        if (instead := RETIRED.get(given[2:].replace("-", "_"))) is not None:
            raise ConfigError(f"{given} no longer exists: {instead}")
