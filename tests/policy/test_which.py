"""Which version of a run's policy is used: best is best only where enough was evaluated to say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spreeze as package
from spreeze.channels.weights import version_path, write_weights
from spreeze.errors import ConfigError, RunFolderError
from spreeze.policy.actor import random_actor

if TYPE_CHECKING:
    from conftest import Spreeze

BEST, NEWEST = 3, 9
NEWEST_UPDATES = 1000


def save(path: Path, version: int, updates: int) -> None:
    bounds = {"action_low": np.array([-1], np.float32), "action_high": np.array([1], np.float32)}
    about = {"observation": '{"kind": "box", "shape": [2]}', "action_shape": "[1]", "version": str(version)}
    write_weights(path, {**random_actor(2, 1, (8,), seed=0), **bounds}, {**about, "updates": str(updates)})


def evaluated(updates: Any, mean_return: float | None = -1.0) -> str:
    return json.dumps({"updates": updates, "mean_return": mean_return}) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The best version has a single update; the newest ones have many, and nobody has evaluated them."""
    for folder in ("run/best", "run/weights"):
        (tmp_path / folder).mkdir(parents=True)
    save(tmp_path / "run/best/policy.safetensors", BEST, 1)
    for version in (7, 8, NEWEST):
        save(version_path(tmp_path / "run/weights", version), version, NEWEST_UPDATES - NEWEST + version)
    return tmp_path / "run"


def chosen(run: Path, **which: Any) -> int:
    return package.load_policy(run, **which).version


@pytest.mark.parametrize(
    ("journal", "version"),
    [
        ("", NEWEST),
        (evaluated(NEWEST_UPDATES // 2 - 1), NEWEST),
        (evaluated(NEWEST_UPDATES // 2), BEST),  # half of what was learnt was evaluated, and was no better
        (evaluated(900) + evaluated(950, None), BEST),
        (evaluated(100) + evaluated(950, None), NEWEST),  # null: it does not count
        (evaluated(900) + "{" * 100_000, BEST),
        (evaluated(900) + "[]\n" + evaluated("many") + evaluated(True) + "\xff\n", BEST),
    ],
)
def test_what_was_evaluated_last_decides(
    run: Path, journal: str, version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "evaluations.jsonl").write_text(journal)
    assert chosen(run) == version
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (version == NEWEST)
    for line in lines:
        assert f"the newest version of {run} is used, {NEWEST}, and not the best" in line
        assert f"of its {NEWEST_UPDATES:,} updates" in line
        assert f'"best" uses version {BEST}' in line


def test_the_version_that_has_reached_the_target_is_used(run: Path) -> None:
    (run / "summary.json").write_text('{"time_to_target_s": null}')
    assert chosen(run) == NEWEST
    (run / "summary.json").write_text('{"time_to_target_s": 12.5}')
    assert chosen(run) == BEST


@pytest.mark.parametrize("which", ["best", "last", 8, "8", BEST])
def test_a_choice_is_followed_without_a_word(run: Path, which: Any, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {"best": BEST, "last": NEWEST, "8": 8}.get(which, which)
    assert chosen(run, which=which) == expected
    assert capsys.readouterr().err == ""


def test_versions_that_are_not_there_are_refused_with_those_that_are(run: Path) -> None:
    with pytest.raises(RunFolderError) as raised:
        package.load_policy(run, which=1)
    assert str(raised.value) == f"there is no version 1: {run} has versions 7, 8, 9 and its best, 3"
    (run / "best" / "policy.safetensors").unlink()
    with pytest.raises(RunFolderError, match=r"no best version: no evaluation has counted yet; .* versions 7, 8, 9"):
        package.load_policy(run, which="best")
    for bad in ("newest", -1, 1.0, True, "-1"):
        with pytest.raises(ConfigError, match="--which must be best, last or the number of a version"):
            package.load_policy(run, which=bad)
    with pytest.raises(ConfigError, match="a version can be chosen of a run folder only"):
        package.load_policy(version_path(run / "weights", 7), which="best")
    assert chosen(run / "weights", which=7) == 7


@pytest.mark.parametrize("command", ["evaluate", "export", "watch"])
def test_commands_take_a_choice_too(run: Path, command: str, spreeze: Spreeze) -> None:
    done = spreeze(command, run, "--which", 99)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"spreeze: there is no version 99: {run} has versions 7, 8, 9 and its best, 3\n"
    done = spreeze(command, run, "--which", "newest")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    if command == "export":
        for which, version in (("best", BEST), ("last", NEWEST), (8, 8)):
            done = spreeze(command, run, "--which", which, "--out", f"{which}.safetensors")
            assert (done.returncode, done.stderr) == (0, "")
            assert package.load_policy(spreeze.folder / f"{which}.safetensors").version == version
    if command == "watch":
        assert spreeze(command, run, "--which", 8, "--best").returncode == 2
