"""Samplers come and go while a run goes on, and batch sizes change: nobody stops and no row is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spreeze.adapt.tune import Settings
from spreeze.channels import Channels
from spreeze.channels.transitions import RingChannel
from spreeze.config import Config
from spreeze.crew import Crew
from spreeze.envs import EnvSpec
from spreeze.plan import Plan
from spreeze.supervisor import Result, supervise
from spreeze.terminal import QuietDisplay

GUARD_S = 120.0  # against a hang, not an expectation
START = Settings(samplers=1, envs_per_sampler=4, batch_size=32, learner_threads=1)


class Script:
    """Drives a run from settings to settings, each as soon as the one before is in force."""

    def __init__(self, crew: Crew, settings: Sequence[Settings], each: Callable[[Crew], None]) -> None:
        self.crew, self.left, self._each = crew, list(settings), each
        self._guard = time.monotonic() + GUARD_S
        crew.use(self.left[0])

    @property
    def is_over(self) -> bool:
        return not self.left

    def turn(self, now: float) -> None:
        assert now < self._guard, f"never reached {self.left}"
        if self.left and self.crew.has_reached(self.left[0]):
            self._each(self.crew)
            self.left.pop(0)
            if self.left:
                self.crew.use(self.left[0])


def play(
    tmp_path: Path, settings: Sequence[Settings], each: Callable[[Crew], None] = lambda _crew: None, **fields: Any
) -> tuple[Result, Channels]:
    """Run a small training through settings; return its result, and its channels, whose counters stay readable."""
    scripts: list[Script] = []

    def make(crew: Crew, _plan: Plan) -> Script:
        scripts.append(Script(crew, settings, each))
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
        "warmup_steps": 100,
        "min_updates_per_step": 0.0,
    }
    config = Config("Toy/Point-v0").replace(**{**small, **fields})
    result = supervise(config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), make)
    return result, scripts[0].crew.channels


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

    def count(crew: Crew) -> None:
        counts.append(len(crew.pids_by_role()["sampler"]))

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


def test_rows_of_dismissed_samplers_arrive_through_a_queue_too(tmp_path: Path) -> None:
    result, channels = play(tmp_path, [*COMINGS_AND_GOINGS, START], transport="queue", max_env_steps=3000)
    # Samplers take no step beyond the limit and each its last one: rows that got lost would leave the run waiting.
    assert result.stop_reason in ("max_env_steps", "measured")
    consumed = int(channels.metrics.learner["rows_consumed"][0])
    stepped = int(channels.metrics.samplers["env_steps"].sum())
    if result.stop_reason == "max_env_steps":
        assert 3000 <= consumed <= stepped


def test_nobody_else_is_stopped_by_a_change(tmp_path: Path) -> None:
    pids: list[dict[str, list[int]]] = []
    play(tmp_path, [START, START._replace(samplers=3), START], lambda crew: pids.append(crew.pids_by_role()))
    for role in ("learner", "evaluator"):
        assert len({tuple(by_role[role]) for by_role in pids}) == 1
    first, more, fewer = (set(by_role["sampler"]) for by_role in pids)
    assert first < more
    assert fewer < more
    assert len(fewer) == 1


def test_a_sampler_in_the_place_of_another_plays_other_episodes(tmp_path: Path) -> None:
    steps: list[int] = []

    def look(crew: Crew) -> None:
        steps.append(int(crew.channels.metrics.samplers["env_steps"].sum()))

    seeds_dir = tmp_path / "seeds"
    seeds_dir.mkdir()
    # More samplers than may be at once, one after the other: places are taken again.
    settings = [START._replace(envs_per_sampler=envs) for envs in (2, 3, 2, 3, 2, 3)]
    play(tmp_path, settings, look, env="Toy/NotesSeeds-v0", env_kwargs={"folder": str(seeds_dir)})
    assert steps == sorted(steps)  # counters go on where the sampler before has stopped
    seeds = [int(seed) for path in seeds_dir.glob("sample-*") for seed in path.read_text().split()]
    assert len(seeds) == sum(each.envs_per_sampler for each in settings) + START.envs_per_sampler
    assert len(set(seeds)) == len(seeds)


def test_the_learner_takes_over_batch_sizes_and_threads(tmp_path: Path) -> None:
    seen = []

    def look(crew: Crew) -> None:
        learner = crew.channels.metrics.learner[0]
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

    def look(crew: Crew) -> None:
        by_role = crew.pids_by_role()
        cores.append({role: set().union(*map(os.sched_getaffinity, pids)) for role, pids in by_role.items()})

    apart = START._replace(samplers=2, pinned=True)
    play(tmp_path, [START, apart, START], look)
    everywhere = os.sched_getaffinity(0)
    for together in (cores[0], cores[2]):
        assert all(used == everywhere for used in together.values())
    assert cores[1]["learner"].isdisjoint(cores[1]["sampler"])
    assert cores[1]["learner"] | cores[1]["sampler"] == everywhere
