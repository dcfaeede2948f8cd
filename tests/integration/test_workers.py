"""Samplers come and go while a run goes on, and batch sizes change: nobody stops and no row is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from spreeze.adapt.plan import Plan
from spreeze.channels import Channels
from spreeze.channels.transitions import RingChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import RunSettings
from spreeze.runs.result import Result
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.workers import Workers
from spreeze.views.display import QuietDisplay

GUARD_S = 120.0  # against a hang, not an expectation
START = RunSettings(samplers=1, envs_per_sampler=4, batch_size=32, learner_threads=1)
# What is waited for here are processes that start and end: those that work leave them the cores.
UNHURRIED: dict[str, Any] = {
    "env_kwargs": {"step_s": 0.001},
    "min_updates_per_step": 0.0,
    "max_updates_per_step": 0.2,
    "warmup_steps": 100,
}


class Script:
    """Drives a run from settings to settings, each as soon as the one before is in force."""

    def __init__(
        self, workers: Workers, settings: Sequence[RunSettings], each: Callable[[Workers], None], ends: bool
    ) -> None:
        self.workers, self.left, self._each, self._ends = workers, list(settings), each, ends
        self._guard = time.monotonic() + GUARD_S
        workers.use(self.left[0])

    @property
    def is_over(self) -> bool:
        return self._ends and not self.left

    def turn(self, now: float) -> None:
        assert now < self._guard, f"never reached {self.left}"
        if self.left and self.workers.has_reached(self.left[0]):
            self._each(self.workers)
            self.left.pop(0)
            if self.left:
                self.workers.use(self.left[0])


def play(
    tmp_path: Path,
    settings: Sequence[RunSettings],
    each: Callable[[Workers], None] = lambda _workers: None,
    ends: bool = True,
    **fields: Any,
) -> tuple[Result, Channels]:
    """Run a small training through settings; return its result, and its channels, whose counters stay readable."""
    scripts: list[Script] = []

    def make(workers: Workers, _plan: Plan) -> Script:
        scripts.append(Script(workers, settings, each, ends))
        return scripts[0]

    small = {
        "env_module": "toy_envs",
        "run_dir": str(tmp_path / "run"),
        "device": "cpu",
        "samplers": START.samplers,
        "envs_per_sampler": START.envs_per_sampler,
        "batch_size": START.batch_size,
        "learner_threads": START.learner_threads,
        "max_samplers": 4,
        "hidden": (16, 16),
        "split": "no",
    }
    config = Config("Toy/Point-v0").replace(**{**small, **UNHURRIED, **fields})
    result = supervise(config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), make)
    return result, scripts[0].workers.channels


def rows_in(channels: Channels) -> tuple[int, int]:
    """Return the rows that were ever written to and read from all rings."""
    written = read = 0
    for channel in channels.transitions:
        assert isinstance(channel, RingChannel)
        head, tail, _ = channel._arrays()
        written, read = written + int(head[0]), read + int(tail[0])
    return written, read


COMINGS_AND_GOINGS = [
    START,
    START._replace(samplers=4),
    START._replace(samplers=2),
    START._replace(samplers=3, envs_per_sampler=2),
    START._replace(samplers=1, envs_per_sampler=8),
    START._replace(samplers=4),
]


@pytest.fixture(autouse=True)
def toy_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_no_row_is_lost_while_samplers_come_and_go(tmp_path: Path) -> None:
    counts = []

    def count(workers: Workers) -> None:
        counts.append(len(workers.pids_by_role()["sampler"]))

    result, channels = play(tmp_path, COMINGS_AND_GOINGS, count)
    assert result.stop_reason == "measured"
    assert counts == [settings.samplers for settings in COMINGS_AND_GOINGS]
    written, read = rows_in(channels)
    stepped = int(channels.metrics.samplers["env_steps"].sum())
    consumed = int(channels.metrics.learner["rows_consumed"][0])
    # What the last samplers had under way when the run was stopped may be counted as steps but not written.
    under_way = sum(settings.samplers * settings.envs_per_sampler for settings in COMINGS_AND_GOINGS[-1:])
    assert written <= stepped <= written + under_way
    assert consumed == read


def test_nobody_else_is_stopped_by_a_change(tmp_path: Path) -> None:
    pids: list[dict[str, list[int]]] = []
    play(tmp_path, [START, START._replace(samplers=3), START], lambda workers: pids.append(workers.pids_by_role()))
    for role in ("learner", "evaluator"):
        assert len({tuple(by_role[role]) for by_role in pids}) == 1
    first, more, fewer = (set(by_role["sampler"]) for by_role in pids)
    assert first < more
    assert fewer < more
    assert len(fewer) == 1


def test_a_process_that_has_ended_is_reaped_during_the_run(tmp_path: Path) -> None:
    def find_zombies() -> set[int]:
        children = psutil.Process().children()
        return {child.pid for child in children if child.status() == psutil.STATUS_ZOMBIE}

    before, zombies = find_zombies(), list[set[int]]()
    # The one that has examined the environment ends before samplers step, and between two looks one is dismissed.
    settings = [START, START._replace(samplers=2), START]
    play(tmp_path, settings, lambda _workers: zombies.append(find_zombies() - before))
    assert not zombies[0] & zombies[-1]


def test_a_sampler_in_the_place_of_another_plays_other_episodes(tmp_path: Path) -> None:
    steps: list[int] = []

    def look(workers: Workers) -> None:
        steps.append(int(workers.channels.metrics.samplers["env_steps"].sum()))

    seeds_dir = tmp_path / "seeds"
    seeds_dir.mkdir()
    # More samplers than may be at once, one after the other: places are taken again.
    settings = [START._replace(envs_per_sampler=envs) for envs in (2, 3, 2, 3, 2, 3)]
    play(tmp_path, settings, look, env="Toy/NotesSeeds-v0", env_kwargs={"folder": str(seeds_dir)})
    assert steps == sorted(steps)  # counters go on where the sampler before has stopped
    seeds = [int(seed) for path in seeds_dir.glob("sampler-*") for seed in path.read_text().split()]
    assert len(seeds) == sum(each.envs_per_sampler for each in settings) + START.envs_per_sampler
    assert len(set(seeds)) == len(seeds)


def test_the_learner_takes_over_batch_sizes_and_threads(tmp_path: Path) -> None:
    seen = []

    def look(workers: Workers) -> None:
        learner = workers.channels.metrics.learner[0]
        seen.append((int(learner["batch_size"]), int(learner["updates"]), int(learner["update_frames"])))

    sizes = [32, 64, 16, 128]
    result, _ = play(tmp_path, [START._replace(batch_size=size) for size in sizes], look)
    assert [batch_size for batch_size, _, _ in seen] == sizes
    updates = [count for _, count, _ in seen]
    assert updates == sorted(updates)
    assert result.updates >= updates[-1]
    # Frames are counted with the batch size that each update really had.
    assert seen[-1][2] <= max(sizes) * seen[-1][1]
    assert seen[0][2] == 32 * seen[0][1]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to keep apart")
def test_learner_and_samplers_can_be_kept_on_cores_of_their_own(tmp_path: Path) -> None:
    cores: list[dict[str, set[int]]] = []

    def look(workers: Workers) -> None:
        by_role = workers.pids_by_role()
        cores.append({role: set().union(*map(os.sched_getaffinity, pids)) for role, pids in by_role.items()})

    apart = START._replace(samplers=2, pinned=True)
    play(tmp_path, [START, apart, START], look)
    everywhere = os.sched_getaffinity(0)
    for together in (cores[0], cores[2]):
        assert all(used == everywhere for used in together.values())
    assert cores[1]["learner"].isdisjoint(cores[1]["sampler"])
    assert cores[1]["learner"] | cores[1]["sampler"] == everywhere


# --- samplers that cannot be had ---------------------------------------------------------------------------------


class Turns:
    """Drives a run by a generator: each turn of the supervisor is one step of it, and its end is the run's."""

    def __init__(self, workers: Workers, story: Callable[[Workers], Iterator[None]]) -> None:
        self.workers, self._story, self.is_over = workers, story(workers), False
        self._guard = time.monotonic() + GUARD_S

    def turn(self, now: float) -> None:
        assert now < self._guard, "the story came to no end"
        self.is_over = next(self._story, StopIteration) is StopIteration


def tell(tmp_path: Path, story: Callable[[Workers], Iterator[None]], **fields: Any) -> Result:
    small = {"samplers": 1, "envs_per_sampler": 1, "batch_size": 32, "learner_threads": 1, "max_samplers": 4}
    quick = {"hidden": (16, 16), "device": "cpu", "split": "no", **UNHURRIED}
    where = {"run_dir": str(tmp_path / "run"), "env_module": "toy_envs"}
    config = Config("Toy/Point-v0").replace(**{**small, **quick, **where, **fields})
    return supervise(
        config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), lambda workers, _: Turns(workers, story)
    )


ONE = START._replace(envs_per_sampler=1)


def events(tmp_path: Path, kind: str) -> list[str]:
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    return [line["reason"] for line in lines if line["kind"] == kind]


def test_a_sampler_that_fails_when_it_is_tried_does_not_end_the_run(tmp_path: Path) -> None:
    failures: list[str | None] = []

    def story(workers: Workers) -> Iterator[None]:
        workers.use(ONE)
        while not workers.has_reached(ONE):
            yield
        workers.use(ONE._replace(samplers=2))
        while workers.failure is None:
            yield
        failures.append(workers.failure)
        workers.use(ONE)
        while not workers.has_reached(ONE):
            yield
        updates = int(workers.channels.metrics.learner["updates"][0])
        while int(workers.channels.metrics.learner["updates"][0]) < updates + 50:
            yield

    seats = {"env": "Toy/FewSeats-v0", "env_kwargs": {"folder": str(tmp_path), "seats": 1}}
    assert tell(tmp_path, story, **seats).stop_reason == "measured"
    assert "no seat is left" in str(failures[0])
    (warning,) = events(tmp_path, "warning")
    assert "sampler 1 failed, the run continues" in warning


def test_a_sampler_that_fails_after_it_was_dismissed_does_not_end_the_run(tmp_path: Path) -> None:
    def story(workers: Workers) -> Iterator[None]:
        workers.use(ONE)
        while not workers.has_reached(ONE):
            yield
        workers.use(ONE._replace(samplers=2))
        while not (tmp_path / "no-seat").exists():
            yield
        workers.use(ONE)
        (tmp_path / "go-on").touch()
        while not workers.has_reached(ONE):
            yield
        assert workers.failure is None

    seats = {"env": "Toy/FewSeats-v0", "env_kwargs": {"folder": str(tmp_path), "seats": 1, "waits": True}}
    assert tell(tmp_path, story, **seats).stop_reason == "measured"
    assert "no seat is left" in events(tmp_path, "warning")[0]


@pytest.mark.full
def test_a_sampler_that_is_killed_before_its_first_step_does_not_end_the_run(tmp_path: Path) -> None:
    def story(workers: Workers) -> Iterator[None]:
        workers.use(ONE)
        while not workers.has_reached(ONE):
            yield
        workers.use(ONE._replace(samplers=2))
        os.kill(workers.pids_by_role()["sampler"][-1], signal.SIGKILL)
        while workers.failure is None:
            yield
        assert "SIGKILL" in workers.failure
        workers.use(ONE)
        while not workers.has_reached(ONE):
            yield

    assert tell(tmp_path, story).stop_reason == "measured"


def test_a_sampler_that_is_lost_is_replaced_and_its_settings_are_in_force_again(tmp_path: Path) -> None:
    pids: list[set[int]] = []
    failures: list[str | None] = []

    def story(workers: Workers) -> Iterator[None]:
        two = ONE._replace(samplers=2)
        for _ in range(2):
            workers.use(two)
            while not workers.has_reached(two):
                yield
            pids.append(set(workers.pids_by_role()["sampler"]))
            os.kill(min(pids[-1]), signal.SIGKILL)
            while workers.has_reached(two):
                yield
            while not workers.has_reached(two):
                failures.append(workers.failure)
                yield

    assert tell(tmp_path, story).stop_reason == "measured"
    assert all(len(there) == 2 for there in pids)
    assert pids[0] != pids[1]
    # It was no try that failed: nothing is undone because of it.
    assert set(failures) == {None}
    assert all("another takes its place" in warning for warning in events(tmp_path, "warning"))
    assert len(events(tmp_path, "warning")) == 2


def test_sampling_goes_on_while_samplers_with_another_number_of_environments_start(tmp_path: Path) -> None:
    alone: list[int] = []

    def story(workers: Workers) -> Iterator[None]:
        workers.use(ONE)
        while not workers.has_reached(ONE):
            yield
        other = ONE._replace(envs_per_sampler=2)
        workers.use(other)
        while not workers.has_reached(other):
            alone.append(workers.samplers_at_work)
            yield

    assert tell(tmp_path, story).stop_reason == "measured"
    assert min(alone) >= 1
    assert max(alone) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to keep apart")
def test_cores_follow_the_learners_threads(tmp_path: Path) -> None:
    cores: list[set[int]] = []

    def story(workers: Workers) -> Iterator[None]:
        for threads in (0, 1, len(os.sched_getaffinity(0))):
            workers.use(ONE._replace(pinned=True, learner_threads=threads))
            yield
            cores.append(os.sched_getaffinity(workers.pids_by_role()["learner"][0]))

    tell(tmp_path, story)
    everywhere = os.sched_getaffinity(0)
    # All while it finds out; as many as its threads then; all where none would be left for the others.
    assert [len(used) for used in cores] == [len(everywhere), 1, len(everywhere)]
