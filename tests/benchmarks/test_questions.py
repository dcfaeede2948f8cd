"""The scripts that answer open questions: real rows through real processes, and what is said about runs, by hand."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spreeze.adapt.tune import Bounds
from spreeze.channels.transitions import Rows, TransitionReader
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings

QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "questions"
GUARD_S = 120.0
MACHINE = {"cores": 2, "gpus": []}


def load(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]  # the same classes for all that is pickled
    sys.path[:0] = [str(QUESTIONS), str(QUESTIONS.parent)]
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[:2]


@pytest.fixture(scope="module", autouse=True)
def _search_path() -> Iterator[None]:
    """Leave the search path as it was: the scripts extend it for each other."""
    before = list(sys.path)
    yield
    sys.path[:] = before


def run_script(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(QUESTIONS / f"{name}.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S)


# --- transports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_bytes", [32, 36, 100, 3000, 100_000])
def test_rows_have_the_size_that_is_asked_for(row_bytes: int) -> None:
    assert load("transport_ends").layout_of(row_bytes).row_bytes == row_bytes


def test_every_transport_carries_all_rows_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    words = ("--row-bytes", 100, "--writers", 2, "--repeats", 1, "--seconds", 0.05, "--json", tmp_path / "t.json")
    finished = run_script("transports", *words, "--picture", tmp_path / "t.png")
    assert finished.returncode == 0, finished.stderr
    first = json.loads((tmp_path / "t.json").read_text())
    assert {run["transport"] for run in first["runs"]} == {"none", "ring", "queue", "pipe", "unix", "tcp"}
    carried = [run["modes"] for run in first["runs"] if run["transport"] != "none"]
    assert all(figures["rows"] > 0 for modes in carried for figures in modes.values())
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert load("transports").table(first) in finished.stdout
    again = run_script("transports", *words)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "t.json").read_text())["runs"] == first["runs"]


def changed_value(block: Rows) -> Rows:
    block[-1, -1] += 1.0
    return block


def exchanged_rows(block: Rows) -> Rows:
    block[[0, -1]] = block[[-1, 0]]
    return block


class Damaging:
    """A reader that damages what it gives out."""

    def __init__(self, reader: TransitionReader, damage: Callable[[Rows], Rows]) -> None:
        self._reader, self._damage = reader, damage

    def read(self) -> Iterator[Rows]:
        for block in self._reader.read():
            yield self._damage(block.copy())


@pytest.mark.parametrize("damage", [changed_value, exchanged_rows])
def test_rows_that_were_changed_or_exchanged_are_noticed(damage: Callable[[Rows], Rows]) -> None:
    rig_module = load("transport_rig")

    def measure_damaged() -> None:
        with rig_module.open_rig("ring", 100, 1) as rig:
            damaged = rig_module.Rig(rig.writers, [Damaging(rig.readers[0], damage)], rig.replay, rig.row_bytes)
            damaged.measure(rig_module.Order(0.01, 32, None))

    with pytest.raises(rig_module.RunCrashed, match="lost or changed"):
        measure_damaged()


# --- stability -------------------------------------------------------------------------------------------------


def run_of(returns: list[float], **more: Any) -> dict[str, Any]:
    evaluations = [[float(i), 100 * i, 10 * i, one] for i, one in enumerate(returns, 1)]
    return {"evaluations": evaluations, "episodes": 1000, "updates": 500, "wall_s": 10.0, **more}


@pytest.mark.parametrize(
    ("returns", "random", "stays", "ends_there", "share", "lowest"),
    [
        ([-1200, -150, -100, -300, -120], -1200, True, True, 1.0, 900 / 1100),
        ([-1200, -100, -400, -100], -1200, False, True, 2 / 3, 800 / 1100),
        ([0, 100, 90, 10, 5], 0, False, False, 2 / 4, 0.05),
        ([0, 85, 70, 100], 0, True, True, 2 / 3, 1.0),  # it fell before its best, not after
        ([-10, -20], 0, False, False, 0.0, 0.0),  # never better than random
    ],
)
def test_a_run_is_judged_by_its_way_from_random_to_best(
    returns: list[float], random: float, stays: bool, ends_there: bool, share: float, lowest: float
) -> None:
    found = load("returns").judge(run_of(returns), random)
    assert (found["best"], found["stays"], found["ends_there"]) == (max(returns), stays, ends_there)
    assert (found["share"], found["lowest"]) == (pytest.approx(share), pytest.approx(lowest))


def test_stability_says_how_many_runs_stay_and_how_many_end_there() -> None:
    names = ("wall_s", "env_steps", "updates", "mean_return")
    runs = [{**run_of(returns), "label": "A-v0"} for returns in ([0, 100, 95], [0, 100, 10])]
    for run in runs:
        run["evaluations"] = [dict(zip(names, one, strict=True)) for one in run["evaluations"]]
    tasks = [{"label": "A-v0", "env": "A-v0", "limit_s": 720, "flags": {}}]
    shown = load("returns").stability({"tasks": tasks, "runs": runs, "random_returns": {"A-v0": 0.0}})
    assert "| A-v0 | 2 | 1,000 (1,000 to 1,000) |" in shown
    assert "| 1 of 2 | 1 of 2 |" in shown


# --- samplers and exploration ----------------------------------------------------------------------------------


def test_returns_at_the_end_and_on_the_way() -> None:
    returns, run = load("returns"), run_of([0, 10, 20, 40])
    steps, time = returns.ENV_STEPS, returns.WALL_S
    assert returns.return_at_end(run, steps, 400) == 40  # only the one at 400 steps is in the last fifth of 400
    assert returns.return_on_the_way(run, steps, 400) == pytest.approx((0 * 200 + 10 * 100 + 20 * 100 + 40 * 0) / 400)
    assert returns.return_on_the_way(run, time, 4.0) == pytest.approx((0 * 2 + 10 + 20 + 40 * 0) / 4)


def test_runs_to_a_number_of_steps_and_runs_for_a_time_are_shown_in_one_row() -> None:
    flags = {"samplers": 2, "exploration": 0.5, "exploration_high": 2.0, "envs_per_sampler": 16}
    names = ("wall_s", "env_steps", "updates", "mean_return")
    evaluations = [(1.0, 100, 10, 0.0), (2.0, 200, 20, 10.0), (3.0, 300, 30, 20.0), (4.0, 400, 40, 40.0)]
    points = [dict(zip(names, one, strict=True)) for one in evaluations]
    solved = {"evaluations": points, "env_steps": 400, "updates": 40, "wall_s": 300.0}
    content = {
        "tasks": [
            {"label": "a", "env": "A-v0", "limit_s": 300, "flags": {**flags, "max_env_steps": 400}},
            {"label": "b", "env": "A-v0", "limit_s": 4, "flags": flags},
        ],
        "runs": [{**solved, "label": "a"}, {**solved, "label": "b"}],
    }
    row = "| 2 | 32 | noise 0.5 to 2 | 40 | 8 | 4.0 | 40 | 8 | 100 | 10 |"
    assert row in load("returns").exploration(content)
    content["runs"][0]["ended_s"] = 4.5
    assert row.replace("4.0", "4.5") in load("returns").exploration(content)


# --- the ratio of updates to steps -----------------------------------------------------------------------------


def test_runs_of_each_ratio_are_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    words = ("--tasks", "Pendulum-v1=130", "--seeds", 1, "--jobs", 2, "--json", path, "--ratios")
    more = ("--train-args", "--warmup-steps", 100, "--hidden", 16, 16, "--batch-size", 8)
    finished = run_script("ratio", *words, 2, *more)
    assert finished.returncode == 0, finished.stderr
    (first,) = json.loads(path.read_text())["runs"]
    assert (first["env_steps"], first["updates"], first["failed"]) == (130, 61, None)
    assert len(first["evaluations"]) == 1
    again = run_script("ratio", *words, 2, 0.5, *more)
    assert again.returncode == 0, again.stderr
    runs = json.loads(path.read_text())["runs"]
    assert [(run["ratio"], run["updates"]) for run in runs] == [(2, 61), (0.5, 16)]
    assert runs[0] == first


def ratio_content() -> dict[str, Any]:
    """Of a task of 400 steps: a ratio that went up to its end, and one whose limit of updates ended it at 300."""
    found = [(1.0, [0, 10, 20, 40]), (8.0, [0, 30, 40]), (8.0, [0, 40, 50])]
    runs = [
        run_of(returns, env="A-v0", ratio=ratio, seed=i, env_steps=100 * len(returns), q_mean_range=[-i, 2.0])
        for i, (ratio, returns) in enumerate(found)
    ]
    return {"settings": {"tasks": ["A-v0=400"]}, "runs": [*runs, {**runs[0], "seed": 9, "evaluations": []}]}


def test_ratios_are_compared_at_the_steps_that_all_runs_made() -> None:
    shown = load("ratio").table(ratio_content())
    assert "| A-v0 | 300 steps | 1 | 1 | 3.3 | 20.0 | 0, 2 |" in shown  # 0 until 200 steps, then 10 until 300
    assert "| A-v0 | 300 steps | 8 | 2 | 11.7 (10.0 to 13.3) | 45.0 (40.0 to 50.0) | -2, 2 |" in shown


def test_of_a_run_in_two_results_the_longer_one_counts() -> None:
    both, again = ratio_content(), ratio_content()
    again["runs"] = [run_of([0, 30], env="A-v0", ratio=8.0, seed=1, env_steps=200, q_mean_range=None)]
    assert load("ratio").table(both, again) == load("ratio").table(again, both) == load("ratio").table(both)


def test_a_limit_counts_as_the_ratio_that_the_learner_can_make() -> None:
    shown = load("ratio").by_steps_per_second(ratio_content())
    assert "| 20 (20) | 29% (lowest 29%) | 100% (lowest 100%) |" in shown
    assert "| 500 (0.8) | 29% (lowest 29%) | 29% (lowest 29%) |" in shown


# --- search ----------------------------------------------------------------------------------------------------

SMALL, LARGE = RunSettings(1, 16, 64, 1), RunSettings(2, 16, 64, 1)


def search_content() -> dict[str, Any]:
    held = [{"at_s": 0.0, "settings": SMALL._asdict()}, {"at_s": 6.0, "settings": LARGE._asdict()}]
    points = [{"settings": s._asdict(), "objective": j} for s, j in ((SMALL, 50.0), (LARGE, 100.0))]
    found = {"repeat": 0, "method": "tpe", "incumbents": held, "tries": [{}], "meanwhile": {"objective": 40.0}}
    settings = {"env": "A-v0", "seconds": 12.0}
    runs = [found, {"repeat": 0, "method": "judged", "points": points}]
    return {"settings": settings, "runs": runs, "machine": MACHINE}


def test_a_search_counts_by_what_it_held_for_the_best_and_when(tmp_path: Path) -> None:
    search, content = load("search"), search_content()
    ((run, truth),) = search.searches(content, "tpe")
    assert [search.share_at(run, truth, second) for second in (0.0, 5.9, 6.0)] == [0.5, 0.5, 1.0]
    assert search.seconds_to_near(run, truth) == 6.0
    run["incumbents"].append({"at_s": 7.0, "settings": SMALL._asdict()})
    assert search.seconds_to_near(run, truth) is None  # near it once, and gone again
    assert "| 50.0% | 40.0% | 0 of 1 | - |" in search.table(content)
    search.picture(content, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 0


def test_all_searches_choose_within_the_bounds_of_the_adaptation() -> None:
    bounds = Bounds(samplers=(1, 3), envs_per_sampler=(16, 16), batch_size=(64, 512), learner_threads=(1,), cores=2)
    assert load("live_search").choices_within(bounds) == {"samplers": [1, 2, 3], "batch_size": [64, 128, 256, 512]}


class Study:
    """Optuna's, as far as a search is asked by it: what is enqueued comes first, and then the last place of all."""

    def __init__(self) -> None:
        self.enqueued: list[dict[str, int]] = []
        self.told: list[float] = []

    def enqueue_trial(self, places: dict[str, int]) -> None:
        self.enqueued.append(places)

    def ask(self) -> Any:
        places = self.enqueued.pop() if self.enqueued else {}
        return SimpleNamespace(suggest_int=lambda name, _low, high: places.get(name, high))

    def tell(self, _trial: Any, objective: float) -> None:
        self.told.append(objective)


def test_optuna_is_asked_for_places_in_the_list_of_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study()
    methods = {name: lambda **_: None for name in ("TPESampler", "CmaEsSampler", "RandomSampler")}
    fake = SimpleNamespace(
        logging=SimpleNamespace(set_verbosity=lambda _: None, ERROR=40),
        samplers=SimpleNamespace(**methods),
        create_study=lambda **_: study,
    )
    monkeypatch.setitem(sys.modules, "optuna", fake)
    asked = load("live_search").Optuna("tpe", 0)
    start = RunSettings(2, 16, 128, 1)
    assert asked.first({"samplers": [1, 2, 3], "batch_size": [64, 128]}, start) == {"samplers": 2, "batch_size": 128}
    assert asked.next(1.5) == {"samplers": 3, "batch_size": 128}
    assert study.told == [1.5]


class OneSamplerMore:
    """A search that knows what it wants."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def first(self, choices: dict[str, list[int]], start: RunSettings) -> dict[str, int]:
        return {name: getattr(start, name) for name in choices}

    def next(self, objective: float) -> dict[str, int]:
        self.told.append(objective)
        return {"samplers": 2}


def test_a_search_drives_a_running_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = Config("Pendulum-v1").replace(
        samplers="auto",
        envs_per_sampler=4,
        hidden=(16, 16),
        warmup_steps=100,
        batch_size=32,
        learner_threads=1,
        split="no",
        device="cpu",
        min_updates_per_step=0.0,
        quiet=True,
        tensorboard=False,
    )
    asked, live_search = OneSamplerMore(), load("live_search")
    # Over after two tries, however long they take here.
    monkeypatch.setattr(live_search.Journal, "is_over", property(lambda journal: len(journal.tries) == 2))
    found = live_search.search_live(config, GUARD_S, 1, asked)
    assert len(asked.told) == 2
    assert [one["settings"]["samplers"] for one in found["tries"]] == [1, 2]
    assert found["incumbents"][0]["settings"]["batch_size"] == 32
    assert found["meanwhile"]["objective"] > 0


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("transports", ("--row-bytes", 30), "--row-bytes: must be a multiple of 4"),
        ("transports", ("--json", "nowhere/x.json"), "--json: nowhere/x.json cannot be written"),
        ("search", ("--seconds", 0), "--seconds: must be a number above 0, not 0"),
        ("ratio", ("--tasks", "Pendulum-v1"), "--tasks: 'Pendulum-v1' must be ENV=STEPS, such as Pendulum-v1=4000"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(name: str, words: tuple[object, ...], said: str) -> None:
    finished = run_script(name, *words)
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line


def test_a_part_ends_before_a_run_that_would_take_too_long() -> None:
    kept = load("kept_runs").KeptRuns("transports", {}, None, part_s=GUARD_S)
    assert not kept.is_part_over()  # one run is always made
    kept._last_at -= GUARD_S  # as if this one had taken so long
    kept.add({})
    assert kept.is_part_over()


def test_a_run_that_would_take_longer_than_its_part_is_not_begun() -> None:
    kept, keys = load("kept_runs").KeptRuns("transports", {}, None, part_s=GUARD_S), [{"repeat": 0}, {"repeat": 1}]
    kept.fill(keys, lambda **_: {}, str, lambda repeat: 2 * repeat * GUARD_S)
    assert kept.runs == [{"repeat": 0}]


def test_a_file_of_other_settings_is_not_mixed_in(tmp_path: Path) -> None:
    kept_runs, path = load("kept_runs"), tmp_path / "k.json"
    kept_runs.KeptRuns("transports", {"seconds": 1.0}, path, None).add({"repeat": 0})
    same = kept_runs.KeptRuns("transports", {"seconds": 1.0}, path, None)
    assert same.has(repeat=0)
    assert not same.has(repeat=1)
    with pytest.raises(SystemExit, match="2"):
        kept_runs.KeptRuns("transports", {"seconds": 2.0}, path, None)
