"""docs/algorithms: each page explains the figures and settings of its algorithm, and names functions that exist."""

from __future__ import annotations

import importlib
import re
from dataclasses import asdict
from functools import reduce
from pathlib import Path

import pytest

from spreeze.algorithms import ALGORITHMS
from spreeze.config.own_settings import find_algorithm

PAGES = Path(__file__).resolve().parents[2] / "docs" / "algorithms"
# `sac.py`: `soft_target`, `actor_loss`; a path without a folder is one of algorithms/.
NAMED = re.compile(r"`([\w/]+)\.py`:\s((?:`[\w.]+`(?:,\s)?)+)")


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_figure_has_a_section_with_what_is_healthy_and_what_is_not(algo: str) -> None:
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", page(algo), re.MULTILINE | re.DOTALL))
    assert list(sections) == [figure.name for figure in find_algorithm(algo).figures]
    for text in sections.values():
        assert re.search(r"\$[^$]+\$.*\n- \*\*Healthy\*\*: .*\n- \*\*Unhealthy\*\*: ", text, re.DOTALL)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_setting_of_its_own_and_of_its_recipe_is_listed_with_its_default(algo: str) -> None:
    algorithm = find_algorithm(algo)
    listed = dict(re.findall(r"^\| `--([a-z-]+)` \| `(.+?)` \|", page(algo), re.MULTILINE))
    expected = asdict(algorithm.Settings()) | algorithm.recipe.settings(algorithm.policy_kind)
    assert listed == {name.replace("_", "-"): str(value) for name, value in expected.items()}


@pytest.mark.parametrize("name", [*ALGORITHMS, "README"])
def test_functions_that_a_page_names_exist(name: str) -> None:
    named = NAMED.findall(page(name))
    # None is named in another form, which would not be looked at.
    assert len(re.findall(r"`[\w/]+\.py`", page(name))) == len(named) > 2
    for path, functions in named:
        room = "" if "/" in path and not path.startswith("kernels/") else "algorithms."
        module = importlib.import_module(f"spreeze.{room}{path.replace('/', '.')}")
        for function in re.findall(r"`([\w.]+)`", functions):
            assert callable(reduce(getattr, function.split("."), module)), f"{path}.py has no {function}"


def test_the_index_lists_every_page() -> None:
    rows = re.findall(r"^\| `(\w+)`.*?\| \[.+?\]\((.+?)\) \|", page("README"), re.MULTILINE)
    assert rows == [(algo, f"{algo}.md") for algo in ALGORITHMS]
