"""Evaluations with returns that are not finite: no result, whatever they are, and the run goes on to real ones."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spreeze as package
from spreeze.policy.file import load_policy

if TYPE_CHECKING:
    from conftest import Spreeze

TARGET = -1e6  # every finite return of the task reaches it


def strictly(text: str) -> Any:
    """Read JSON as readers other than Python's do."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def read_all(run: Path) -> dict[str, list[Any]]:
    """Return what all JSON files of a run folder hold, manifests and metadata included."""
    found = {path.name: list(map(strictly, path.read_text().splitlines())) for path in run.rglob("*.jsonl")}
    for path in run.rglob("*.json"):
        text = path.read_text()
        found[path.name] = [strictly(text.partition("\n")[2] if path.name.startswith("manifest") else text)]
    return found


def check(run: Path, unusable: int, stdout: str = "") -> None:
    """The first evaluation counts for nothing; the second one reaches the target. More may follow before the end."""
    files = read_all(run)
    first, second, *more = files["evaluations.jsonl"]
    assert first["mean_return"] is None
    assert first["std_return"] is None
    assert sum(each is None or abs(each) > 1e15 for each in first["returns"]) == unusable
    assert math.isfinite(second["mean_return"])
    (summary,) = files["summary.json"]
    assert summary["stop_reason"] == "target_return"
    assert summary["time_to_target_s"] == second["wall_s"]
    highest = max((second, *more), key=lambda evaluation: evaluation["mean_return"])
    assert summary["best_return"] == highest["mean_return"]
    assert summary["evaluations_left_out"] == 1
    (best,) = files["evaluation.json"]
    assert best["version"] == highest["version"] == load_policy(run / "best" / "policy.safetensors").version
    (warning,) = (event["reason"] for event in files["events.jsonl"] if event["kind"] == "warning")
    assert "Toy/BadEvaluation-v0" in warning
    assert f"not finite or beyond 1e+15 in {unusable} of 3 episodes" in warning
    assert not {"inf", "nan"} & set(stdout.lower().replace(",", " ").split())


@pytest.mark.parametrize(
    ("value", "episodes"),
    # The mean of the last is finite, and its spread is not.
    [("inf", 1), ("-inf", 3), ("nan", 2), ("1e308", 3), ("1e308", 1)],
)
def test_serial_run_goes_on_to_the_next_evaluation(
    value: str, episodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    importlib.import_module("toy_envs").BadEvaluation.made = 0  # of a test before
    result = package.train(
        "Toy/BadEvaluation-v0",
        env_module="toy_envs",
        env_kwargs={"value": value, "episodes": episodes},
        run_dir=str(tmp_path / "run"),
        target_return=TARGET,
        serial=True,
        quiet=True,
        device="cpu",
        hidden=(16, 16),
        batch_size=16,
        warmup_steps=100,
        eval_episodes=3,
    )
    check(result.run_dir, episodes)


def test_run_of_processes_goes_on_and_is_told_once(spreeze: Spreeze) -> None:
    done = spreeze.train(
        "Toy/BadEvaluation-v0", env_kwargs={"value": "inf"}, eval_episodes=3, target_return=TARGET, quiet=None
    )
    assert done.returncode == 0, done.stderr
    check(spreeze.run_dir, 1, done.stdout)
    assert done.stdout.count("warning: Toy/BadEvaluation-v0 gives returns that are not finite or beyond 1e+15") == 1
    assert "1 evaluation does not count" in done.stdout

    done = spreeze("evaluate", spreeze.run_dir, "--episodes", 4, "--json", "figures.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no return over 4 episodes (seed 0): 1 of them" in done.stdout
    figures = strictly((spreeze.folder / "figures.json").read_text())
    assert figures["mean_return"] is None
    assert figures["returns"].count(None) == 1
