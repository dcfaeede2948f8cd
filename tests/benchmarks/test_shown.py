"""The tables of the pages say what is in the results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import headline  # noqa: E402
import shown  # noqa: E402
from formats import median_of  # noqa: E402
from spreeze.adapt.recipes import FAMILIES, FEW_UPDATES, SLOW_STEPS  # noqa: E402


def test_what_settings_came_to_is_the_mean_of_the_last_three_evaluations_of_each_seed() -> None:
    def run(label: str, *returns: float) -> dict[str, Any]:
        return {
            "label": label,
            "env_steps": 1000,
            "updates": 100,
            "evaluations": [{"mean_return": mean} for mean in returns],
        }

    flags = {"n_step": 3, "layer_norm": True, "adapt": False}
    content = {
        "tasks": [
            {"label": "a", "env": "Ant-v5", "algo": None, "flags": {}, "limit_s": 45.0},
            {"label": "b", "env": "Ant-v5", "algo": None, "flags": flags, "limit_s": 45.0},
        ],
        "runs": [run("a", 0.0, 1.0, 2.0, 3.0), run("b", 10.0, 30.0), run("a", 4000.0)],
    }
    lines = shown.returns(content).splitlines()
    assert lines[0] == "| setting | return after 45 s, each seed | env steps | updates |"
    assert lines[2] == "| sac | 2, 4,000 | 1,000 | 100 |"
    assert lines[3] == "| sac `--n-step 3 --layer-norm --no-adapt` | 20 | 1,000 | 100 |"
    content["tasks"][1]["env"] = "Hopper-v5"
    assert shown.returns(content).splitlines()[2] == "| Ant-v5, sac | 2, 4,000 | 1,000 | 100 |"


def test_environments_with_settings_of_their_own_are_shown_with_the_flags_that_set_them() -> None:
    lines = shown.families().splitlines()
    assert len(lines) == 2 + len(FAMILIES)
    assert f"| `Hopper-v*` | a CPU | `--n-step 5` | {FEW_UPDATES} |" in lines
    assert f"| `Ant-v*` | anywhere | `--envs-per-sampler 8` | {SLOW_STEPS} |" in lines


def test_bounds_are_marked_and_an_even_number_has_the_mean_of_the_middle_two() -> None:
    assert str(median_of([4.0, None, 2.0], 60.0)) == "4.0"
    assert str(median_of([4.0, None], 60.0)) == "> 32.0"
    assert str(median_of([None], 60.0)) == "> 60.0"


def test_the_readme_has_five_short_results_without_commands() -> None:
    rows = [line.strip("| ").split(" | ") for line in headline.readme().splitlines() if line.startswith("|")]
    assert rows[0] == ["what", "Spreeze", "compared with"]
    assert len(rows) == 2 + 5
    for cells in rows[2:]:
        assert len(cells) == 3
        assert max(map(len, cells)) <= 120
        assert "`" not in "".join(cells)


def peers(target: float | None, **times: float | None) -> dict[str, Any]:
    content = json.loads((ROOT / "benchmarks" / "results" / "peers-hopper-2-cores.json").read_text())
    for run in content["runs"]:
        run["time_to_target_s"] = times.get(run["system"])
    content["settings"]["target_return"] = target
    return dict(content)


def test_the_fastest_library_and_rllib_are_named_where_one_got_there() -> None:
    said = headline.time_to_target(peers(1000, spreeze=5.0, sbx=30.0, sb3=20.0))
    assert said == ("**5.0 s**", "Stable-Baselines3 20.0 s, RLlib > 110.0 s")
    assert headline.time_to_target(peers(1000, spreeze=5.0, rllib=9.0))[1] == "RLlib 9.0 s"
    assert (
        headline.time_to_target(peers(1000, spreeze=5.0))[1] == "none of 5 libraries within 110 s, RLlib among them"
    )


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_commands_stand_below_tables_and_not_in_them(page: Path) -> None:
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert not [row for row in rows if "--json benchmarks/results/" in row or "--run-dir runs/" in row]
