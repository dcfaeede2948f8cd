"""`spreeze train`: the config from flags and a config file. `train_help.py` has its help."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from spreeze.commands.parsing import flags_in, parse, refuse_unknown_flags
from spreeze.config import Config, WatchingConfig
from spreeze.config.fields import flag
from spreeze.config.retired import RETIRED
from spreeze.config.sections import Setting, settings_of
from spreeze.errors import ConfigError
from spreeze.runs.run_folder import read_config_file

PROGRAM = "spreeze train"
HELP, HELP_ALL = ("-h", "--help"), "--help-all"
NO_ENV = "?"  # stands for the environment that a config file does not name


def training_config(words: list[str]) -> Config:
    """Return the config that words ask for; exits with its help if that is asked for."""
    import tyro

    config_path, words = _take_config_path(words)
    settings = settings_of(Config)
    is_for_experts = HELP_ALL in words
    _refuse_retired_flags(words)
    refuse_unknown_flags([w for w in words if w != HELP_ALL], {s.name: s.hint for s in settings.values()}, PROGRAM)
    # Who types a command wants to see something; a call from Python opens no servers that it was not asked for.
    watching = WatchingConfig(dashboard=True, video=True)
    default = Config(NO_ENV, watching=watching)
    if config_path is not None:
        default = default.replace(**read_config_file(config_path))
    algo = _value_of("--algo", words) or default.algo
    if is_for_experts or any(word in HELP for word in words):
        from spreeze.commands.train_help import show_help

        show_help(settings, default, algo, is_for_experts)
    _refuse_flags_of_other_algorithms(words, settings, algo)
    # ENV stands anywhere among the flags, also where a config file has given it a default.
    env = Annotated[str, tyro.conf.Positional]
    changed: list[Any] = [("env", env), ("watching", WatchingConfig, dataclasses.field(default=watching))]
    arguments = dataclasses.make_dataclass("TrainArguments", changed, bases=(Config,), frozen=True)
    of_file = None if config_path is None else arguments(**_fields(default))
    parsed = parse(arguments, words, PROGRAM, of_file)
    if parsed.env == NO_ENV:
        raise ConfigError(
            f"ENV is missing: {config_path} names none, so type spreeze train ENV --config {config_path}"
        )
    return Config(**_fields(parsed))


def _fields(config: Config) -> dict[str, Any]:
    return {own.name: getattr(config, own.name) for own in dataclasses.fields(Config)}


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


def _refuse_flags_of_other_algorithms(words: list[str], settings: Mapping[str, Setting], algo: str) -> None:
    given = flags_in(words)
    for setting in settings.values():
        owner = setting.mark.algo
        if owner not in (None, algo) and flag(setting.name) in given:
            raise ConfigError(f"{flag(setting.name)} is a setting of {owner}: leave it out, or use --algo {owner}")
