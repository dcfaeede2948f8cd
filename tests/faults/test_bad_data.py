"""What an environment gives that nothing can be learnt from: it stops at the door, is counted, and is named."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import spreeze
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.runs.checkpoint_format import newest_checkpoints

if TYPE_CHECKING:
    from conftest import Spreeze

STEPS, EVERY = 4000, 50
SMALL: dict[str, Any] = {
    "serial": True,
    "quiet": True,
    "device": "cpu",
    "tensorboard": False,
    "envs_per_sampler": 2,
    "hidden": (8,),
    "batch_size": 8,
    "warmup_steps": 20,
    "eval_episodes": 1,
    "max_episode_steps": 30,
}


@pytest.mark.parametrize("value", ["nan", "1e308"])
def test_bad_rows_are_left_out_counted_and_told_once(spreeze: Spreeze, value: str) -> None:
    """Two returns of 1e308 have no sum: it goes into the checkpoint at the end."""
    bad = {"value": value, "every": EVERY}

    finished = spreeze.train("Toy/BadData-v0", env_kwargs=bad, max_env_steps=STEPS)

    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_env_steps"
    assert summary["env_steps"] == STEPS - STEPS // EVERY
    (warning,) = [event for event in spreeze.journal("events") if event["kind"] == "warning"]
    assert "Toy/BadData-v0 gives NaN or infinity in its reward" in warning["reason"]
    assert finished.stdout.count("NaN or infinity") == 1
    assert newest_checkpoints(spreeze.run_dir / "checkpoint")
    assert all(math.isfinite(line["train_return"]) for line in spreeze.journal("metrics")[-1:])


class Huge(gymnasium.Env[Any, Any]):
    """Gives numbers that no float32 holds, now and then; its own overflow is warned of as ever."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, field: str) -> None:
        self._field, self._steps = field, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        del seed, options
        return np.zeros(3), {}

    def step(self, action: Any) -> Any:
        del action
        self._steps += 1
        huge = float(self._steps % 10 == 0) * 1e307 * (-1) ** (self._steps // 10)
        reward, seen = (huge, 0.0) if self._field == "reward" else (0.0, huge)
        if self._steps == 50:
            np.float32(1e30) * np.float32(1e30)
        return np.full(3, seen), reward, False, False, {}


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_numpy_is_silent_about_what_a_serial_run_rejects(tmp_path: Path, field: str) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = spreeze.train(lambda: Huge(field), **SMALL, n_step=3, max_updates=60, run_dir=tmp_path / "run")
    assert result.updates == 60
    seen = {Path(each.filename).name for each in warned if issubclass(each.category, RuntimeWarning)}
    assert seen == {Path(__file__).name}
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    warned_of = [event["reason"] for event in events if event["kind"] == "warning"]
    assert len([reason for reason in warned_of if "gives NaN or infinity in its " in reason]) == 1, warned_of


def test_rewards_that_are_absurd_end_the_run_by_name(spreeze: Spreeze) -> None:
    finished = spreeze.train("Toy/BadData-v0", env_kwargs={"value": "1e30"}, max_seconds=60)

    assert finished.returncode == 1
    last_line = finished.stderr.splitlines()[-1]
    assert "Toy/BadData-v0 gives numbers beyond 1e+15 in its reward" in last_line
    assert spreeze.read("summary.json")["env_steps"] == 0


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ([0.0, 0.0], r"shape \(2,\), its space says \(1,\)"),
        (0.0, r"shape \(\), its space says \(1,\)"),
        ([[0.0]], "axes"),
        (np.array(["0.5"]), "not a real number type"),
        (np.array([1j]), "complex128 is not a real number type"),
        (None, "cannot be used|shape"),
    ],
    ids=["long", "scalar", "batch", "text", "complex", "none"],
)
def test_what_the_space_does_not_allow_is_refused_by_name(
    odd: Any, says: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "integration"))
    spec = EnvSpec("Toy/OddObservation-v0", ("toy_envs",), {"odd": odd, "where": where})

    with pytest.raises(ValueError, match=f"Toy/OddObservation-v0 returned what .* does not allow: .*({says})"):
        EnvBatch(spec, 2, [0, 1]).step(np.zeros((2, 1), np.float32))


SEEN = np.zeros(3, np.float32)


class Gives(gymnasium.Env[Any, Any]):
    """Gives from reset and from step what it was made with."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (3,))

    def __init__(self, step: Any = None, reset: Any = (SEEN, {})) -> None:
        self._step, self._reset = step, reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        del seed, options
        return self._reset

    def step(self, action: Any) -> Any:
        del action
        return self._step


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ({"step": (SEEN, 0.0, False, {})}, "step returns 4 values, as Gym's old interface did: "),
        ({"step": None}, "step returns None instead of five values; return observation, reward, "),
        ({"step": (SEEN, np.zeros(2), False, False, {})}, "step returns an array of shape (2,) as its reward; "),
        ({"step": (SEEN, "a lot", False, False, {})}, "step returns a str as its reward; return `float(reward)`"),
        ({"reset": SEEN}, "reset returns an array of shape (3,) instead of two values, as Gym's old interface did; "),
        ({"reset": None}, "reset returns None instead of two values, as Gym's old interface did; "),
    ],
)
def test_what_is_no_step_or_reset_is_refused_in_words(gives: dict[str, Any], says: str) -> None:
    spec = EnvSpec("Gives()", factory=lambda: Gives(**gives))

    with pytest.raises(ValueError, match=f"^{re.escape(f'Gives(): {says}')}"):
        EnvBatch(spec, 2, [0, 1]).step(np.zeros((2, 3), np.float32))
