"""The help of `spreeze train`: the settings of the config, grouped as a user looks for them.

The groups, and who needs a setting, are marked on the config's fields; so are their texts, as docstrings.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from spreeze.algorithms import ALGORITHMS
from spreeze.config import Config
from spreeze.config.sections import Section, Setting

ABOUT = """Train a policy.

Add --config FILE to read settings from a JSON file, such as a run's config.json.
auto: Spreeze chooses the value for this machine."""


def show_help(settings: Mapping[str, Setting], default: Config, is_for_experts: bool) -> NoReturn:
    """Print the help and exit. Without is_for_experts: what most users need."""
    import tyro

    shown = {name: setting for name, setting in settings.items() if is_for_experts or not setting.mark.is_for_experts}
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.PositionalRequiredArgs)
    try:
        tyro.cli(_page(shown, default), prog="spreeze train", description=ABOUT, args=["--help"], config=markers)
    except SystemExit:
        if not is_for_experts:
            hidden = sum(setting.mark.is_for_experts for setting in settings.values())
            print(f"`spreeze train --help-all` lists {hidden} more settings, for experts.")
    raise SystemExit(0)


def _page(shown: Mapping[str, Setting], default: Config) -> type:
    """Return a dataclass with ENV and one dataclass for each section: what is printed for it is the help."""
    import tyro

    values = default.flat()
    texts = {name: texts_of(setting.owner).get(name, "") for name, setting in shown.items()}
    texts["algo"] += f" Built in: {', '.join(ALGORITHMS)}."

    def described(setting: Setting) -> Any:
        return Annotated[setting.hint, tyro.conf.arg(help=texts[setting.name])]

    fields: list[Any] = [
        ("env", Annotated[str, tyro.conf.arg(metavar="ENV", help=texts["env"], help_behavior_hint="(required)")])
    ]
    for section in typing.get_args(Section):
        own: list[Any] = [
            (setting.name, described(setting), dataclasses.field(default=values[setting.name]))
            for setting in shown.values()
            if setting.mark.section == section
        ]
        group = dataclasses.make_dataclass(section.replace(" ", "_"), own)
        group.__doc__ = ""
        fields.append((group.__name__, group, dataclasses.field(default_factory=group)))
    page = dataclasses.make_dataclass("Page", fields)
    page.__doc__ = ABOUT
    return page


def texts_of(kind: type) -> dict[str, str]:
    """Return the docstrings of a dataclass's fields: the text on the lines after each."""
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        return {}  # it was made without a file
    (body,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
