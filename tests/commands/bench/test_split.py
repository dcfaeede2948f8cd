"""`spreeze bench split`: its figures fit each other, and its verdict follows from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from spreeze.adapt.update_times import PAYS, UpdateTimes
from spreeze.commands.bench import learner
from spreeze.commands.bench.learner import Task
from spreeze.commands.bench.split import measure_split

if TYPE_CHECKING:
    from conftest import Spreeze

TASK = Task("cpu", 3, 1, (16, 16))
PARTS = UpdateTimes(64, 100.0, 60.0, 40.0, 16.0, 1000, 16)


def test_the_gain_follows_from_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "SETTLE_S", 0.01)
    parts = measure_split(TASK, "cpu", 32, every=4, seconds=0.05)
    slower = max(parts.critic_us, parts.actor_us) + parts.exchange_us / 4
    assert parts.predicted_gain == pytest.approx(parts.whole_us / slower)
    # Actor and temperature one way, both critics the other, four bytes each.
    actor, critic = 3 * 16 + 16 + 16 * 16 + 16 + 16 * 2 + 2, 4 * 16 + 16 + 16 * 16 + 16 + 16 + 1
    assert parts.exchange_bytes == 4 * (actor + 1 + 2 * critic)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ("would pay", "1.64", "critics would be the slower", "1.7%")),
        ({"actor_us": 80.0}, ("actor would be the slower",)),
        ({"whole_us": 61.0 * PAYS - 0.01}, ("would not pay",)),
        ({"whole_us": 61.0 * PAYS + 0.01}, ("would pay",)),
    ],
)
def test_the_verdict_says_whether_and_why(changes: dict[str, float], said: tuple[str, ...]) -> None:
    line = str(PARTS._replace(**changes))
    assert all(words in line for words in said), line


def test_command_prints_and_writes_its_figures(spreeze: Spreeze) -> None:
    words = ("--batch-sizes", 32, 64, "--obs-dim", 3, "--act-dim", 1, "--hidden", 8, 8, "--seconds", 0.05)
    finished = spreeze(
        "bench", "split", *words, "--critic-device", "cpu", "--actor-device", "cpu", "--json", "f.json"
    )
    assert finished.returncode == 0, finished.stderr
    assert "predicted" in finished.stdout
    figures = json.loads((spreeze.folder / "f.json").read_text())
    assert [line["batch_size"] for line in figures["figures"]] == [32, 64]
    assert all(line["critic_us"] > 0 and line["actor_us"] > 0 for line in figures["figures"])


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--batch-sizes", 0), "must be above 0"), (("--actor-device", "cuda:99", "--critic-device", "cpu"), "cuda:99")],
)
def test_wrong_input_is_refused_in_one_line(spreeze: Spreeze, words: tuple[object, ...], said: str) -> None:
    finished = spreeze("bench", "split", *words)
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line
