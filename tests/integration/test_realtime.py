"""A run on one real robot, from its start to an evaluation, and from there on again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Spreeze

RATIO, WARMUP = 0.5, 40
ONE = {"env_module": "robot_envs", "samplers": None, "envs_per_sampler": None, "env_threads": None}


def test_training_episodes_are_the_evaluations_of_a_robot(spreeze: Spreeze) -> None:
    folder = spreeze.folder / "robot"
    folder.mkdir()
    own = {"realtime": 500, "warmup_steps": WARMUP, "max_updates_per_step": RATIO, "eval_episodes": 2}
    fields = {**ONE, **own, "env_kwargs": {"folder": str(folder)}}
    trained = spreeze.train("Toy/Robot-v0", **fields, target_return=-1e9)
    assert trained.returncode == 0, trained.stderr

    first, *_ = evaluations = spreeze.journal("evaluations")
    assert {line["source"] for line in evaluations} == {"training"}
    assert len(first["returns"]) == 2
    assert first["version"] >= 1
    assert spreeze.read("best/evaluation.json")["source"] == "training"
    chosen = {event["setting"]: event for event in spreeze.journal("events") if event["kind"] == "choice"}
    assert "training episodes" in chosen["eval_episodes"]["reason"]
    assert not (spreeze.run_dir / "logs" / "evaluator.log").exists()
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "target_return"
    before_the_last = summary["updates"] - 1  # when it was launched, it was within the ratio: channels/pacing.py
    assert before_the_last < RATIO * (summary["env_steps"] - WARMUP) + 1
    assert 0 < summary["realtime"]["steps"] < summary["env_steps"]
    assert summary["realtime"]["run"]["max_s"] > 0

    limits = ("--target-return", 1e9, "--max-env-steps", summary["env_steps"] + 50)
    resumed = spreeze("resume", "run", *limits)
    assert resumed.returncode == 0, resumed.stderr
    assert spreeze.read("summary.json")["stop_reason"] == "max_env_steps"
    uses = [line.split()[0] for line in (folder / "journal").read_text().splitlines()]
    assert [use for use in uses if use != "reset"] == ["open", "close"] * 4
