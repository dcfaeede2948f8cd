from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spreeze.channels.weights import WeightsFile
from spreeze.evaluation.best import Best
from spreeze.host import write_failures
from spreeze.policy.actor import random_actor
from spreeze.policy.file import load_policy
from spreeze.runs.records import Evaluation

if TYPE_CHECKING:
    from conftest import DeletedOnce, FullDisk


def weights(version: int) -> WeightsFile:
    bounds = {"action_low": np.array([-1], np.float32), "action_high": np.array([1], np.float32)}
    about = {"observation": '{"kind": "box", "shape": [2]}', "action_shape": "[1]", "version": str(version)}
    return WeightsFile({**random_actor(2, 1, (8,), seed=version), **bounds}, about, version, 0.0)


def evaluation(version: int, mean_return: float) -> Evaluation:
    return Evaluation(1.0, 10, 5, version, mean_return, 0.0, (mean_return,), (20,))


def versions(folder: Path) -> tuple[int, int]:
    """The version of the policy that is there, and the one that the evaluation names."""
    return load_policy(folder / "policy.safetensors").version, json.loads((folder / "evaluation.json").read_text())[
        "version"
    ]


def test_the_best_version_stays(tmp_path: Path) -> None:
    best = Best(tmp_path / "best")
    for version, mean_return in ((1, -5.0), (2, -3.0), (3, -4.0), (4, -3.0)):
        assert best.offer(weights(version), evaluation(version, mean_return)) is None
    assert versions(tmp_path / "best") == (2, 2)
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["evaluation.json", "policy.safetensors"]


@pytest.mark.parametrize("bad", [math.inf, math.nan, -math.inf])
def test_what_is_no_result_is_never_the_best(tmp_path: Path, bad: float) -> None:
    best = Best(tmp_path)
    assert best.offer(weights(1), evaluation(1, bad)) is None
    assert not list(tmp_path.iterdir())
    one_is_bad = Evaluation(1.0, 10, 5, 2, 3.0, 0.0, (3.0, bad), (20, 20))
    assert best.offer(weights(2), one_is_bad) is None
    assert not list(tmp_path.iterdir())
    best.offer(weights(3), evaluation(3, -5.0))
    best.offer(weights(4), evaluation(4, bad))
    assert versions(tmp_path) == (3, 3)


def test_an_evaluator_goes_on_from_the_best_of_an_earlier_one(tmp_path: Path) -> None:
    Best(tmp_path).offer(weights(1), evaluation(1, -3.0))
    later = Best(tmp_path)
    assert later.mean_return == -3.0
    later.offer(weights(2), evaluation(2, -4.0))
    assert versions(tmp_path) == (1, 1)
    later.offer(weights(3), evaluation(3, -2.0))
    assert versions(tmp_path) == (3, 3)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mean_return": "high"}', '{"mean_return": NaN}', "{" * 10_000])
def test_an_evaluation_that_is_damaged_counts_as_none(tmp_path: Path, content: str) -> None:
    Best(tmp_path).offer(weights(1), evaluation(1, -3.0))
    (tmp_path / "evaluation.json").write_text(content)
    assert Best(tmp_path).mean_return == -math.inf


def test_an_evaluation_without_its_policy_counts_as_none(tmp_path: Path) -> None:
    Best(tmp_path).offer(weights(1), evaluation(1, -3.0))
    (tmp_path / "policy.safetensors").unlink()
    assert Best(tmp_path).mean_return == -math.inf


@pytest.mark.parametrize("file_bytes", [0, 300])  # the second: room for the evaluation, and not for the policy
def test_a_full_disk_keeps_the_old_best_and_gets_the_new_one_later(
    tmp_path: Path, full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch, file_bytes: int
) -> None:
    best = Best(tmp_path)
    best.offer(weights(1), evaluation(1, -5.0))
    with full_disk(file_bytes):
        said = best.offer(weights(2), evaluation(2, -3.0))
        assert best.offer(weights(3), evaluation(3, -4.0)) is None  # worse; and the trouble was said
    assert said == f"{tmp_path} cannot be written (File too large): the best policy waits in memory"
    assert versions(tmp_path) == (1, 1)
    assert best.offer(weights(4), evaluation(4, -4.0)) is None
    assert versions(tmp_path) == (2, 2)
    monkeypatch.setattr(write_failures, "QUIET_S", 0.0)
    assert best.offer(weights(5), evaluation(5, -4.0)) == f"{tmp_path} can be written again"
    assert best.offer(weights(6), evaluation(6, -4.0)) is None
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_was_deleted_gets_its_best_again(tmp_path: Path) -> None:
    best = Best(tmp_path / "best")
    best.offer(weights(1), evaluation(1, -3.0))
    (tmp_path / "best").rename(tmp_path / "away")
    best.offer(weights(2), evaluation(2, -4.0))
    assert versions(tmp_path / "best") == (1, 1)


def test_a_folder_that_is_deleted_while_it_is_written_to_is_no_trouble(
    tmp_path: Path, deleted_once: DeletedOnce
) -> None:
    best = Best(tmp_path / "run" / "best")
    best.offer(weights(1), evaluation(1, -3.0))
    deleted_once(tmp_path / "run")
    assert best.offer(weights(2), evaluation(2, -2.0)) is None
    assert versions(tmp_path / "run" / "best") == (2, 2)
