"""From words on the command line to a dataclass; what is wrong with them becomes one line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, TypeVar

from spreeze.config.fields import describe_type, flag, leaf_types
from spreeze.errors import ConfigError

T = TypeVar("T")


def parse(kind: type[T], words: list[str], program: str, default: T | None = None) -> T:
    """Parse words into a dataclass; wrong words raise an error of one line."""
    import tyro

    leaves = leaf_types(kind)
    refuse_unknown_flags(words, leaves, program)
    said = io.StringIO()
    # Required fields are positional, and nested groups do not show in the flags' names.
    markers = (tyro.conf.PositionalRequiredArgs, tyro.conf.OmitArgPrefixes)
    keywords: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(said):
            parsed: T = tyro.cli(kind, prog=program, args=words, config=markers, **keywords)
            return parsed
    except SystemExit as stop:
        if stop.code in (0, None):
            raise  # --help
        raise ConfigError(_one_line(said.getvalue(), words, leaves, program)) from None


def with_defaults_as_before(kind: type[T], names: Iterable[str]) -> type[T]:
    """Return a dataclass whose help says that flags are as before by default; their values say nothing then."""
    import tyro

    types, hint = leaf_types(kind), tyro.conf.arg(help_behavior_hint="(default: as before)")
    fields = [(name, Annotated[types[name], hint], dataclasses.field(default=getattr(kind, name))) for name in names]
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True)


def flags_in(words: Iterable[str]) -> list[str]:
    """Return the flags among words, with dashes and without values."""
    return [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]


def refuse_unknown_flags(words: Iterable[str], leaves: Mapping[str, Any], program: str) -> None:
    """Raise if there is a flag of no field; leaves: the fields' types by name."""
    known = ["--help"]
    for name, hint in leaves.items():
        known += [flag(name), f"--no-{flag(name)[2:]}"] if hint is bool else [flag(name)]
    for name in flags_in(words):
        if name not in known:
            raise ConfigError(f"there is no flag '{name}': {near(name, known, f'`{program} --help` lists them all')}")


def near(word: str, known: Iterable[str], otherwise: str) -> str:
    """Suggest the known word that is most like this one."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {found[0]}?" if found else otherwise


def one_of(word: str, known: Iterable[str], kind: str) -> str:
    """Return a word that is known; raise for any other."""
    if word in known:
        return word
    all_of_them = ", ".join(known)
    raise ConfigError(f"there is no {kind} '{word}': {near(word, known, f'there are: {all_of_them}')}")


def path_of(text: str | None) -> Path | None:
    """Return a path where there is one."""
    return None if text is None else Path(text)


def _one_line(panel: str, words: list[str], leaves: Mapping[str, Any], program: str) -> str:
    """Reduce the parser's framed message to one line that says what is wrong and what would be right."""
    stripped = [line.strip("╭╮╰╯│─ ") for line in panel.splitlines()]
    lines = [line for line in stripped if line.strip("-")]  # on a terminal without frames, rules are dashes
    text = " ".join(line for line in lines[1:] if not line.startswith("For full helptext"))
    wrong = re.match(r"Error parsing (--[\w-]+)", text)
    if wrong is not None and (hint := leaves.get(wrong[1][2:].replace("-", "_"))) is not None:
        # Written with _ for - , or with = before the value, a flag is the same flag.
        spread = [
            part if i or not word.startswith("--") else part.replace("_", "-")
            for word in words
            for i, part in enumerate(word.split("=", 1))
        ]
        given = takewhile(lambda part: not part.startswith("--"), spread[spread.index(wrong[1]) + 1 :])
        return f"{wrong[1]} must be {describe_type(hint)}, not '{' '.join(given)}'"
    if (refused := re.match(r"Error parsing \w+: ", text)) is not None:
        return text[refused.end() :]  # what a dataclass says of its fields is whole
    if text.startswith("Missing from"):
        required = next(iter(leaves)).upper()
        return f"{required} is missing: {program} {required} (see `{program} --help`)"
    return f"{text} (see `{program} --help`)"
