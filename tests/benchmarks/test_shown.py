"""The tables of the pages say what is in the results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import shown
from spreeze.adapt.recipes import FAMILIES, FEW_UPDATES, SLOW_STEPS


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
