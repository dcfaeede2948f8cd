"""A run whose environments sleep: what they cost is measured, and all of them sleep side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Spreeze

LEFT_TO_THE_RUN: dict[str, Any] = {"env_threads": None, "samplers": None, "envs_per_sampler": None}


@pytest.mark.parametrize(
    ("fields", "threads", "samplers", "envs"),
    [
        # 10 ms: 12 environments for 1,200 steps/s; in threads, or where that is not wanted in processes.
        ({}, "yes", 1, 12),
        ({"env_threads": "no", "max_samplers": 2}, None, 2, 1),
    ],
)
def test_environments_that_sleep_do_so_side_by_side(
    spreeze: Spreeze, fields: dict[str, Any], threads: str | None, samplers: int, envs: int
) -> None:
    asked = {**LEFT_TO_THE_RUN, "env_kwargs": {"step_s": 0.0101}, "max_env_steps": 240, **fields}
    spreeze.train("Toy/Point-v0", **asked)

    chosen = {event["setting"]: event for event in spreeze.journal("events") if event["kind"] == "choice"}
    if threads is not None:
        assert chosen["env_threads"]["value"] == threads
        assert "side by side" in chosen["env_threads"]["reason"]
        # Between 10 and 20 ms, as long as no step of the few that were measured took twice as long.
        assert envs <= chosen["envs_per_sampler"]["value"] < 2 * envs + 2
    else:
        assert (chosen["samplers"]["value"], chosen["envs_per_sampler"]["value"]) == (samplers, envs)
    assert spreeze.read("summary.json")["env_steps"] >= 240
