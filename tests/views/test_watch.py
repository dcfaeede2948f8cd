from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spreeze.channels.weights import version_path, write_weights
from spreeze.policy.actor import random_actor
from spreeze.views.watch import PolicySource, WatchRequest


def publish(run: Path, version: int) -> Path:
    bounds = {"action_low": np.array([-1], np.float32), "action_high": np.array([1], np.float32)}
    about = {"observation": '{"kind": "box", "shape": [2]}', "action_shape": "[1]", "version": str(version)}
    path = version_path(run / "weights", version)
    write_weights(path, {**random_actor(2, 1, (8,), seed=version), **bounds}, about)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"wall_s": 1}\n')  # just now: it goes on
    return tmp_path


def test_a_damaged_version_of_a_run_that_goes_on_is_left_out(run: Path) -> None:
    publish(run, 1)
    source = PolicySource(run, WatchRequest())
    path = publish(run, 2)
    path.write_bytes(path.read_bytes()[:-1])
    assert [source.policy().version for _ in range(2)] == [1, 1]
    publish(run, 3)
    assert source.policy().version == 3
