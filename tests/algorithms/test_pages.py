"""docs/algorithms: each page explains the figures and settings of its algorithm, and names functions that exist."""

from __future__ import annotations

import importlib
import re
import textwrap
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from making import make

from spreeze import algorithms
from spreeze.algorithms import ALGORITHMS, Batch
from spreeze.algorithms.checks import check_networks
from spreeze.algorithms.ddpg import Ddpg
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


# --- what the page about an algorithm of one's own shows ----------------------------------------------------------

NETWORKS = {
    name: text
    for text, name in re.findall(
        r"```\n(def __init__\(self, spec.*?self\.(\w+) = FlatParameters.*?)```", page("your-own"), re.DOTALL
    )
}


def shown(name: str) -> Any:
    """Return a DDPG that has the network of this name, as the page shows it."""
    names: dict[str, Any] = {**vars(algorithms), "torch": torch, "Ddpg": Ddpg}
    exec(f"class Own(Ddpg):\n{textwrap.indent(NETWORKS[name], '    ')}", names)
    return make(names["Own"], 3, 1)


@pytest.mark.parametrize("name", ["temperature", "target_actor", "of_model"])
def test_networks_that_the_page_shows_can_be_made_and_are_in_checkpoints(name: str) -> None:
    algorithm = shown(name)
    check_networks(algorithm)
    assert any(tensor is getattr(algorithm, name).flat for tensor in algorithm.state())


def test_networks_that_the_page_trains_learn() -> None:
    rows, zeros = torch.randn(32, 3), torch.zeros(32)
    batch = Batch(rows, torch.rand(32, 1), zeros, rows * 0.5, zeros, zeros)
    own = shown("of_model")
    losses = [float(own.learn_model(batch).detach()) for _ in range(50)]
    assert losses[-1] < 0.9 * losses[0]
    own = shown("temperature")
    own.learn_temperature(torch.tensor(2.0))
    # More entropy than the target, minus the number of action dimensions: the temperature falls.
    assert own.temperature.frozen["log"] < 0


def test_the_target_that_the_page_shows_is_taken_by_the_critics_loss() -> None:
    (text,) = re.findall(r"```\n(q = self.values.*?)```", page("your-own"), re.DOTALL)
    rows, zeros = torch.randn(8, 3), torch.zeros(8)
    many = make(type("Many", (Ddpg,), {"critics": 10}), 3, 1)
    batch = Batch(rows, torch.rand(8, 1), zeros, rows, zeros, zeros + 0.5)
    names: dict[str, Any] = {"self": many, "batch": batch, "action": batch.action, "torch": torch}
    exec(text, names)
    q = names["q"]
    assert q.shape == (10, 8)
    # The smaller of two is the value of one of the ten, and not the largest.
    assert (0.5 * q == names["target"]).any(0).all()
    assert (names["target"] < 0.5 * q.amax(0)).all()
    assert names["critic_loss"].requires_grad
