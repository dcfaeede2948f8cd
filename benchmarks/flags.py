"""The command lines of the scripts. What is wrong with one is one line and exit code 2, before anything is measured.

In: text. Out: arguments of the right types, of files that can be written.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from spreeze.errors import ConfigError
from spreeze.host.output_files import require_writable
from spreeze.views.picture_formats import require_drawable


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(message.removeprefix("argument "))


def make_parser(description: str | None) -> Parser:
    return Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def make_training_parser(description: str | None) -> Parser:
    """For a script whose figures come from trainings that it starts itself."""
    parser = make_parser(description)
    parser.add_argument("--json", type=output_file, help="write the figures to this file")
    more_help = "for `spreeze train`; must come last"
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[], help=more_help)
    return parser


def add_kept_runs_flags(parser: argparse.ArgumentParser) -> None:
    json_help = "write every run to this file; runs of the same settings that it holds are not repeated"
    parser.add_argument("--json", type=output_file, help=json_help)
    part_help = "begin no run that would end later; the same command with the same --json goes on from there"
    parser.add_argument("--part-seconds", type=positive, help=part_help)


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text}")
    return value


def count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return int(text)


def named(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"'{text}' must be NAME=VALUE")
    return name, value


def output_file(text: str, is_picture: bool = False) -> Path:
    try:
        if is_picture:
            require_drawable(Path(text), "")
        require_writable(Path(text), "")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None
    return Path(text)


picture_file = partial(output_file, is_picture=True)


def require(condition: bool, message: str) -> None:
    if not condition:
        refuse(message)


def refuse(message: str) -> NoReturn:
    """End with one line and the exit code of wrong input."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)
