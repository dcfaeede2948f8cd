"""A run adapts to the machine while it goes on, says what it does, and the next one starts where it came to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spreeze as package
from spreeze.supervision import start
from spreeze.supervision.choices import choose_driver
from spreeze.supervision.request import Driver
from spreeze.supervision.run import Run

if TYPE_CHECKING:
    from conftest import Running, Spreeze

GUARD_S = 180.0  # against a hang, not an expectation
AT_ONCE: dict[str, Any] = {"no_adapt": None, "adapt_after_s": 0}
# One thing to find, so that a search is soon over: the number of samplers.
ONLY_SAMPLERS: dict[str, Any] = {**AT_ONCE, "samplers": None, "max_samplers": 2, "min_updates_per_step": 0}
# Everything is left to the run; what is found is remembered only then.
ALL_CHOSEN: dict[str, Any] = {
    **AT_ONCE,
    "samplers": None,
    "envs_per_sampler": None,
    "batch_size": None,
    "learner_threads": None,
}
FOUND = "found by an earlier run"


def decisions(spreeze: Spreeze, kind: str | None = None, **where: Any) -> list[dict[str, Any]]:
    adapted = [event for event in spreeze.journal("events", **where) if event["kind"] == "adapt"]
    return [event for event in adapted if kind in (None, event["decision"])]


def choices(spreeze: Spreeze, **where: Any) -> dict[str, dict[str, Any]]:
    return {event["setting"]: event for event in spreeze.journal("events", **where) if event["kind"] == "choice"}


def wait_for(spreeze: Spreeze, run: Running, kind: str, count: int = 1, **where: Any) -> None:
    what = f"{count} times {kind!r} among the events"
    spreeze.wait_until(lambda: len(decisions(spreeze, kind, **where)) >= count, what, GUARD_S, run)


def interrupt(run: Running) -> None:
    run.process.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130


def test_nothing_is_tried_in_a_run_that_may_soon_be_over(spreeze: Spreeze) -> None:
    # At most 500 updates a second: the last one comes long after the first try of a run that tries at once.
    unhurried = {"env_kwargs": {"step_s": 0.001}, "min_updates_per_step": 0, "max_updates_per_step": 1}
    run = spreeze.start_training("Toy/Endless-v0", **{**ALL_CHOSEN, **unhurried, "adapt_after_s": 10**6})
    spreeze.wait_until(
        lambda: (lines := spreeze.journal("metrics")) and lines[-1]["updates"] > 1500, "many updates", GUARD_S, run
    )
    interrupt(run)
    assert not decisions(spreeze)


@pytest.mark.alone
def test_on_one_core_a_run_settles_and_the_next_one_starts_there(spreeze: Spreeze) -> None:
    core = {min(os.sched_getaffinity(0))}
    run = spreeze.start_training("Toy/Endless-v0", cores=core, **ALL_CHOSEN)
    wait_for(spreeze, run, "settle")
    interrupt(run)
    chosen = choices(spreeze)
    assert chosen["samplers"]["value"] == 1
    assert "1 cores" in chosen["samplers"]["reason"]
    (settled,) = decisions(spreeze, "settle")
    assert settled["settings"]["samplers"] == 1
    assert settled["settings"]["learner_threads"] == 1  # a second thread would only wait for the first
    assert settled["objective"] > 0
    assert settled["sample"]["update_hz"] > 0
    (remembered,) = json.loads((spreeze.folder / "cache" / "spreeze" / "settings.json").read_text()).values()
    assert {name: remembered[name] for name in settled["settings"]} == settled["settings"]

    second = {"run_dir": spreeze.folder / "second"}
    run = spreeze.start_training("Toy/Endless-v0", cores=core, **ALL_CHOSEN, max_updates=50, **second)
    assert run.finish().returncode == 0
    for setting in ("samplers", "envs_per_sampler", "batch_size", "learner_threads"):
        event = choices(spreeze, **second)[setting]
        assert event["value"] == settled["settings"][setting]
        assert FOUND in event["reason"]
    assert not decisions(spreeze, "try", **second)

    fresh = {"run_dir": spreeze.folder / "fresh"}
    run = spreeze.start_training("Toy/Endless-v0", cores=core, **ALL_CHOSEN, fresh=True, max_updates=50, **fresh)
    assert run.finish().returncode == 0
    assert not any(FOUND in event["reason"] for event in choices(spreeze, **fresh).values())


def test_a_broken_file_of_remembered_settings_is_ignored_with_a_warning(spreeze: Spreeze) -> None:
    remembered = spreeze.folder / "cache" / "spreeze" / "settings.json"
    remembered.parent.mkdir(parents=True)
    remembered.write_text("{not json")
    finished = spreeze.train("Toy/Point-v0", **ALL_CHOSEN, max_updates=50)
    assert finished.returncode == 0, finished.stderr
    (warning,) = [line for line in finished.stdout.splitlines() if line.startswith("warning")]
    assert str(remembered) in warning
    assert "delete" in warning
    assert [event for event in spreeze.journal("events") if event["kind"] == "warning"]


def test_a_run_that_may_not_adapt_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers: list[Driver | None] = []

    def choose(run: Run) -> Driver | None:
        drivers.append(choose_driver(run))
        return drivers[-1]

    monkeypatch.setattr(start, "choose_driver", choose)
    small = {"hidden": (8, 8), "warmup_steps": 50, "max_updates": 20, "device": "cpu", "split": "no"}
    package.train("Pendulum-v1", **small, adapt=False, adapt_after_s=0, quiet=True, run_dir=tmp_path / "run")
    assert drivers == [None]


@pytest.fixture(scope="module")
def settled(module_spreeze: Spreeze) -> Iterator[Running]:
    """A run that has settled and goes on, on two cores or more."""
    run = module_spreeze.start_training("Toy/Endless-v0", **ONLY_SAMPLERS)
    wait_for(module_spreeze, run, "settle")
    yield run
    interrupt(run)


@pytest.mark.alone
@pytest.mark.full
def test_what_is_tried_is_in_force_and_within_its_bounds(settled: Running, module_spreeze: Spreeze) -> None:
    spreeze = module_spreeze
    (settle,) = decisions(spreeze, "settle")
    metrics_before = len(spreeze.journal("metrics"))
    spreeze.wait_until(lambda: len(spreeze.journal("metrics")) > metrics_before + 1, "a line after it", run=settled)
    last = spreeze.journal("metrics")[-1]
    assert (last["num_samplers"], last["batch_size"]) == (
        settle["settings"]["samplers"],
        settle["settings"]["batch_size"],
    )
    for event in decisions(spreeze):
        assert event["reason"]
        assert 1 <= event["settings"]["samplers"] <= 2
        # What the user has set stays as it is.
        assert event["settings"]["batch_size"] == 32
        assert event["settings"]["envs_per_sampler"] == 4
        assert event["settings"]["learner_threads"] == 1
    tried = [tuple(event["settings"].values()) for event in decisions(spreeze, "try")]
    assert all(tried.count(settings) <= 2 for settings in tried)  # boldly, and once more with care
    numbers = {line["num_samplers"] for line in spreeze.journal("metrics")}
    assert {event["settings"]["samplers"] for event in decisions(spreeze, "keep")} <= numbers
    # The same words in the terminal.
    said = settled.said()
    assert all(event["reason"] in said for event in decisions(spreeze))


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core to take away")
def test_a_run_wakes_when_another_program_takes_a_core_and_when_it_gives_it_back(
    settled: Running, module_spreeze: Spreeze
) -> None:
    run, spreeze = settled, module_spreeze
    updates = spreeze.journal("metrics")[-1]["updates"]
    core = min(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, {core})
        wait_for(spreeze, run, "wake")
        (woken,) = decisions(spreeze, "wake")
        wait_for(spreeze, run, "settle", 2)
    finally:
        busy.kill()
        busy.wait()
    assert "other programs take" in woken["reason"]
    assert woken["sample"]["other_cores"] > decisions(spreeze, "settle")[0]["sample"]["other_cores"]
    wait_for(spreeze, run, "wake", 2)
    assert "given back" in decisions(spreeze, "wake")[1]["reason"]
    assert spreeze.journal("metrics")[-1]["updates"] > updates
