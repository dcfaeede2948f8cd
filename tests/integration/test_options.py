"""Options of learning and sampling, in real runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spreeze.config import Config
from spreeze.sampling.exploration import noise_scale

if TYPE_CHECKING:
    from conftest import Spreeze


@pytest.mark.parametrize("split", ["no", "yes"])
def test_transitions_over_many_steps_hold_nobody_up(spreeze: Spreeze, split: str) -> None:
    """Samplers hold back nine steps each; they still reach the warm-up, the ratio and the last step."""
    finished = spreeze.train(
        "Toy/Endless-v0", n_step=10, min_updates_per_step=0.1, max_env_steps=3000, samplers=2, split=split
    )
    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_env_steps"
    assert summary["env_steps"] >= 3000
    assert summary["updates"] > 0


# The critics wait for the actor's side before their last update, however late it starts: there will be a policy.
SPLIT = {"split": "yes", "exchange_updates": 16}


def test_options_go_together_and_the_policy_can_be_evaluated(spreeze: Spreeze) -> None:
    """All at once, and free-running; `tests/learning/test_probes.py` has what each of them does."""
    of_critics = {"layer_norm": True, "atoms": 11, "value_range": (-10, 10)}
    fields = {"algo": "td3", "actor_delay": 3, "n_step": 3, "normalise_observations": True, **of_critics, **SPLIT}
    finished = spreeze.train("Toy/Point-v0", **fields, max_updates=300)
    assert finished.returncode == 0, finished.stderr
    assert spreeze.read("summary.json")["updates"] == 300
    evaluated = spreeze("evaluate", "run", "--episodes", 2)
    assert evaluated.returncode == 0, evaluated.stderr


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"exploration": 0.5, "exploration_high": 0.1}, "--exploration-high 0.1 is below --exploration 0.5"),
        ({"exploration_high": "nan"}, "--exploration-high must be at least 0"),
        ({"n_step": 0}, "--n-step must be at least 1"),
        ({"actor_delay": 0}, "--actor-delay must be at least 1"),
        ({"algo": "td3", "target_noise": -1}, "--target-noise must be at least 0"),
        ({"atoms": 51}, "--atoms 51 needs --value-range LOW HIGH"),
        ({"atoms": 51, "value_range": ("-inf", 1)}, "--value-range must be two finite numbers"),
        ({"algo": "ppo"}, "ppo"),
    ],
)
def test_wrong_options_are_refused_in_one_line(spreeze: Spreeze, fields: dict[str, Any], said: str) -> None:
    finished = spreeze("train", "Toy/Point-v0", *spreeze.small(**fields))
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line


def test_noise_is_spread_over_the_environments_of_all_samplers() -> None:
    sampling = Config("x").replace(exploration=0.1, exploration_high=0.5).sampling
    alone = np.concatenate([noise_scale(sampling, index, 1) for index in range(32)]).ravel()
    together = noise_scale(sampling, 0, 32).ravel()
    np.testing.assert_array_equal(alone, together)
    assert 0.1 <= together.min() < 0.12
    assert 0.48 < together.max() <= 0.5
    gaps = np.diff(np.sort(together))
    assert gaps.max() < 3 * 0.4 / 32
    assert len(set(together.tolist())) == 32
