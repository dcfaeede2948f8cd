"""`spreeze bench solve`: times what it says, marks what was not reached, and refuses before it runs."""

from __future__ import annotations

import importlib.util
import json
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from spreeze.commands.bench import seconds_text
from spreeze.commands.bench.curves import PANEL_INCHES, TITLE_INCHES, draw_curves, panels
from spreeze.commands.bench.solve import (
    EvaluationPoint,
    SolveRequest,
    SolveRun,
    TaskSummary,
    _check,
    as_json,
    progress_line,
    read_run,
    table,
)
from spreeze.commands.bench.tasks import Task, read_tasks
from spreeze.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Finished, Spreeze

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
ALWAYS, NEVER = -1000.0, 1000.0  # returns of a point's episode lie between
# As small as the runs of other tests; a point's return is the same for all seeds.
SMALL_FLAGS = """
[task.flags]
env_module = ["toy_envs"]
device = "cpu"
samplers = 1
envs_per_sampler = 4
warmup_steps = 100
hidden = [16, 16]
batch_size = 32
learner_threads = 1
replay_rows = 100_000
publish_interval_s = 0.05
eval_episodes = 2
eval_interval_s = 0.1
adapt = false
split = "no"
"""


def entry(threshold: float, env: str = "Toy/Point-v0", name: str | None = None, more_flags: str = "") -> str:
    named = "" if name is None else f'name = "{name}"\n'
    return f'[[task]]\nenv = "{env}"\n{named}threshold = {threshold}\nlimit_s = 90\n{SMALL_FLAGS}{more_flags}\n'


def run(seed: int, wall_s: float | None, *points: tuple[float, float], label: str = "Env-v0") -> SolveRun:
    evaluations = tuple(EvaluationPoint(at_s, 10, 1, mean_return) for at_s, mean_return in points)
    best = max((mean_return for _, mean_return in points), default=None)
    return SolveRun(label, seed, "", wall_s is not None, wall_s or 60.0, best, 10, 1, None, evaluations)


# --- the tasks file ---------------------------------------------------------------------------------------------


def tasks_of(folder: Path, text: str) -> tuple[Task, ...]:
    (folder / "tasks.toml").write_text(text)
    return read_tasks(folder / "tasks.toml")


def test_a_task_becomes_the_words_of_a_training(tmp_path: Path) -> None:
    flags = 'hidden = [64, 32]\nadapt = false\nlearning_rate = 3e-4\nenv_kwargs = { g = 9.8 }\nsplit = "no"'
    text = f'[[task]]\nenv = "Pendulum-v1"\nthreshold = -200.5\nlimit_s = 60\nalgo = "sac"\n[task.flags]\n{flags}\n'
    (task,) = tasks_of(tmp_path, text)
    assert task.words(seed=3) == [
        *("train", "Pendulum-v1", "--algo=sac", "--target-return=-200.5", "--max-seconds=60", "--seed=3", "--fresh"),
        *("--hidden", "64", "32", "--no-adapt", "--learning-rate=0.0003", '--env-kwargs={"g": 9.8}', "--split=no"),
    ]


def test_recipes_for_one_environment_are_told_apart_by_their_names(tmp_path: Path) -> None:
    head = '[[task]]\nenv = "Env-v0"\nthreshold = 1\nlimit_s = 2\n'
    tasks = tasks_of(tmp_path, f'{head}{head}name = "large batch"\nflags = {{ batch_size = 512 }}\n')
    assert [task.label for task in tasks] == ["Env-v0", "Env-v0 large batch"]
    assert [task.folder for task in tasks] == ["Env-v0", "Env-v0-large-batch"]


TASK_FILES = sorted((BENCHMARKS / "tasks").glob("*.toml"))


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: path.stem)
def test_tasks_that_come_with_the_benchmarks_can_be_run(path: Path) -> None:
    assert len(_check(SolveRequest(path))) == path.read_text().count("[[task]]") > 0


HEAD = '[[task]]\nenv = "Pendulum-v1"\n'
WHOLE = f"{HEAD}threshold = -200\nlimit_s = 60\n"
WRONG_FILES = [
    ("broken", "[[task]\n", "is not TOML"),
    ("not text", "\udcff", "is not TOML"),
    ("empty", "", "holds no tasks"),
    ("single brackets", '[task]\nenv = "Pendulum-v1"\n', "[[task]], in double brackets"),
    ("unknown table", "[[tasks]]\n", "no key 'tasks': did you mean task?"),
    ("unknown key", f"{WHOLE}treshold = 1\n", "task 1: there is no key 'treshold': did you mean threshold?"),
    ("far key", f"{WHOLE}colour = 1\n", "no key 'colour': there is only: env"),
    ("missing key", f"{HEAD}threshold = 1\n", "task 1: limit_s is missing"),
    ("text for a number", f'{HEAD}threshold = "high"\nlimit_s = 1\n', "threshold must be a finite number"),
    ("true for a number", f"{HEAD}threshold = true\nlimit_s = 1\n", "threshold must be a finite number"),
    ("no number", f"{HEAD}threshold = nan\nlimit_s = 1\n", "threshold must be a finite number"),
    ("too large", f"{HEAD}threshold = {10**400}\nlimit_s = 1\n", "threshold must be a finite number"),
    ("no time", f"{HEAD}threshold = 1\nlimit_s = 0\n", "limit_s must be above 0"),
    ("endless", f"{HEAD}threshold = 1\nlimit_s = inf\n", "limit_s must be a finite number"),
    ("number for a name", f"{WHOLE}name = 3\n", "name must be text"),
    ("unknown algorithm", f'{WHOLE}algo = "sca"\n', "--algo 'sca' is not known: did you mean sac?"),
    ("flags as text", f'{WHOLE}flags = "--fresh"\n', "flags must be settings"),
    ("unknown flag", f"{WHOLE}flags = {{ batchsize = 1 }}\n", "no setting 'batchsize': did you mean batch_size?"),
    ("wrong value", f"{WHOLE}flags = {{ batch_size = 0 }}\n", "--batch-size must be at least 1"),
    ("wrong kind", f'{WHOLE}flags = {{ batch_size = "x" }}\n', "--batch-size must be a whole number or auto"),
    ("seed as flag", f"{WHOLE}flags = {{ seed = 1 }}\n", "must not hold seed: use --seeds"),
    ("twice the same", WHOLE + WHOLE, "tasks 1 and 2 are both called Pendulum-v1"),
    ("second task", f"{WHOLE}{HEAD}", "task 2: threshold is missing"),
]


@pytest.mark.parametrize(("text", "says"), [case[1:] for case in WRONG_FILES], ids=[case[0] for case in WRONG_FILES])
def test_a_wrong_tasks_file_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tasks.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        read_tasks(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- figures ----------------------------------------------------------------------------------------------------

TASK = Task("Env-v0", threshold=100.0, limit_s=60.0)


@pytest.mark.parametrize(
    ("seconds", "solved", "median_s", "is_bound"),
    [
        ((10.0, 30.0, 20.0), 3, 20.0, False),
        ((10.0, None, 20.0), 2, 20.0, False),
        ((10.0, None, None), 1, 60.0, True),
        ((10.0, None), 1, 35.0, True),
        ((10.0, 20.0, None, None), 2, 40.0, True),
        ((60.0, None, 1.0), 2, 60.0, False),
        ((), 0, None, False),
    ],
)
def test_unsolved_runs_count_with_the_limit(
    seconds: tuple[float | None, ...], solved: int, median_s: float | None, is_bound: bool
) -> None:
    row = TaskSummary.of(TASK, [run(seed, wall_s) for seed, wall_s in enumerate(seconds)])
    assert (row.solved, row.runs, row.median_s, row.median_is_bound) == (solved, len(seconds), median_s, is_bound)


def test_the_table_marks_what_was_not_reached() -> None:
    other = Task("Env-v0", 100.0, 60.0, name="slow")
    runs = [run(0, 12.34, (12.34, 101.0)), run(1, None, (50.0, 99.0)), run(0, None, label="Env-v0 slow")]
    head, first, second = table([TASK, other], runs)
    assert head.split() == ["task", "threshold", "solved", "median", "each", "seed", "best", "return"]
    assert first.split("  ")[0] == "Env-v0"
    assert all(words in first for words in ("1 of 2", ">36.2 s", "12.3 s, >60 s", "101.0"))
    assert all(words in second for words in ("Env-v0 slow", "0 of 1", ">60 s"))
    assert second.split()[-1] == "-"  # it was never evaluated


def test_seconds_say_whether_they_are_a_bound() -> None:
    assert seconds_text(12.34, is_bound=False) == "12.3 s"
    assert seconds_text(120.0, is_bound=True) == ">120 s"


def test_a_run_that_reaches_the_threshold_after_the_limit_is_not_solved(tmp_path: Path) -> None:
    summary = {"time_to_target_s": 60.01, "best_return": 120.0, "env_steps": 5, "updates": 2}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    late = read_run(TASK, 0, tmp_path, None)
    assert (late.solved, late.wall_s, late.best_return) == (False, 60.0, 120.0)
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "time_to_target_s": 59.99}))
    in_time = read_run(TASK, 0, tmp_path, None)
    assert (in_time.solved, in_time.wall_s) == (True, 59.99)


def test_a_run_that_left_nothing_is_a_failure(tmp_path: Path) -> None:
    failed = read_run(TASK, 0, tmp_path, None)
    assert (failed.solved, failed.wall_s, failed.error) == (False, 60.0, "it wrote no summary")
    assert progress_line(failed, 3, 12) == " 3/12  Env-v0  seed 0  >60 s  FAILED: it wrote no summary"


# --- curves -----------------------------------------------------------------------------------------------------


def test_panels_are_environments_with_their_threshold() -> None:
    tasks = [{"env": env, "threshold": threshold} for env, threshold in (("A", 1), ("B", 1), ("A", 1), ("A", 2))]
    assert [(key, len(group)) for key, group in panels(tasks).items()] == [
        (("A", 1), 2),
        (("B", 1), 1),
        (("A", 2), 1),
    ]


def colours_in(path: Path) -> tuple[tuple[int, int], set[tuple[int, ...]]]:
    """Return width and height of a picture, and its colours."""
    with Image.open(path) as picture:
        found: Any = picture.convert("RGB").getcolors(maxcolors=1 << 24)
        return picture.size, {colour for _, colour in found}


BLUE, ORANGE = (31, 119, 180), (255, 127, 14)  # the first two of matplotlib's tab10


def size_of(columns: int, rows: int) -> tuple[int, int]:
    return (round(150 * PANEL_INCHES[0] * columns), round(150 * (PANEL_INCHES[1] * rows + TITLE_INCHES)))


def test_recipes_share_a_panel_in_colours_of_their_own(tmp_path: Path) -> None:
    slow, elsewhere = Task("Env-v0", 100.0, 60.0, name="slow"), Task("Other-v0", 5.0, 60.0)
    runs = [run(0, 30.0, (10.0, 0.0), (30.0, 100.0)), run(0, None, (12.0, 0.0), (60.0, 50.0), label=slow.label)]
    about = {"machine": {"cores": 2, "gpus": []}}
    draw_curves(as_json(SolveRequest(Path(), 1), about, (TASK, slow, elsewhere), runs), tmp_path / "two.png")
    size, colours = colours_in(tmp_path / "two.png")
    assert size == size_of(2, 1)
    assert {BLUE, ORANGE} <= colours
    draw_curves(as_json(SolveRequest(Path(), 1), about, (TASK, elsewhere), runs[:1]), tmp_path / "one.png")
    assert ORANGE not in colours_in(tmp_path / "one.png")[1]


def test_a_curve_ends_with_the_evaluation_that_solved_the_task(tmp_path: Path) -> None:
    solved = [(10.0, 0.0), (30.0, 100.0)]
    pictures = []
    for name, evaluations in (("solved", solved), ("one more", [*solved, (30.1, -500.0)])):
        runs = [run(0, 30.0, *evaluations)]
        figures = as_json(SolveRequest(Path(), 1), {"machine": {"cores": 2, "gpus": []}}, (TASK,), runs)
        draw_curves(figures, tmp_path / f"{name}.png")
        pictures.append((tmp_path / f"{name}.png").read_bytes())
    assert pictures[0] == pictures[1]


# --- the command ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved(module_spreeze: Spreeze) -> Finished:
    """A task that every policy solves and one that none does, with two seeds each."""
    never = entry(NEVER, name="never", more_flags="max_updates = 300")
    (module_spreeze.folder / "tasks.toml").write_text(entry(ALWAYS) + never)
    words = ("--seeds", 2, "--json", "solve.json", "--picture", "solve.png", "--runs", "kept")
    return module_spreeze("bench", "solve", "--tasks", "tasks.toml", *words)


def test_it_tells_solved_from_unsolved(solved: Finished) -> None:
    assert solved.returncode == 0, solved.stderr
    assert solved.stderr == ""
    begin, *progress, blank, head, always, never = solved.stdout.splitlines()
    assert begin == "2 tasks, 2 seeds, at most 6 min"
    assert [line.split("  ")[:3] for line in progress] == [
        [f"{number}/4", f"Toy/Point-v0{name}", f"seed {seed}"]
        for number, (seed, name) in enumerate(((0, ""), (0, " never"), (1, ""), (1, " never")), 1)
    ]
    assert (blank, head.split()[0]) == ("", "task")
    assert "2 of 2" in always
    assert ">" not in always
    assert "0 of 2" in never
    assert ">90 s, >90 s" in never


def test_its_json_has_every_run_with_its_evaluations(solved: Finished, module_spreeze: Spreeze) -> None:
    assert solved.returncode == 0, solved.stderr
    figures: dict[str, Any] = module_spreeze.read("solve.json", module_spreeze.folder)
    assert figures["command"].startswith("spreeze bench solve --tasks tasks.toml")
    assert figures["machine"]["cores"] >= 1
    assert (figures["seeds"], figures["is_complete"]) == (2, True)
    assert [(task["solved"], task["runs"]) for task in figures["tasks"]] == [(2, 2), (0, 2)]
    for one in figures["runs"]:
        run_dir = (
            module_spreeze.folder / "kept" / f"{one['label'].replace('/', '-').replace(' ', '-')}-seed-{one['seed']}"
        )
        evaluations = module_spreeze.journal("evaluations", run_dir)
        names = ("wall_s", "env_steps", "updates", "mean_return")
        assert one["evaluations"] == [{name: line[name] for name in names} for line in evaluations]
        assert f"--seed={one['seed']}" in shlex.split(one["command"])
        assert "--fresh" in shlex.split(one["command"])
        summary = module_spreeze.read("summary.json", run_dir)
        if one["solved"]:
            assert one["wall_s"] == summary["time_to_target_s"] == evaluations[0]["wall_s"]
            assert summary["stop_reason"] == "target_return"
        else:
            assert one["wall_s"] == 90
            assert summary["stop_reason"] == "max_updates"


def test_its_picture_can_be_drawn_again_from_the_json(solved: Finished, module_spreeze: Spreeze) -> None:
    assert solved.returncode == 0, solved.stderr
    # The two thresholds make two panels.
    size, colours = colours_in(module_spreeze.folder / "solve.png")
    assert size == size_of(2, 1)
    assert {BLUE, ORANGE} <= colours
    again = module_spreeze.start_python("-m", "spreeze.commands.bench.curves", "solve.json", "again.png").finish()
    assert again.returncode == 0, again.stderr
    assert colours_in(module_spreeze.folder / "again.png") == (size, colours)


def test_a_run_that_fails_says_why_and_the_others_go_on(spreeze: Spreeze) -> None:
    (spreeze.folder / "tasks.toml").write_text(entry(ALWAYS, env="Toy/StepRaises-v0") + entry(ALWAYS))
    finished = spreeze("bench", "solve", "--tasks", "tasks.toml", "--seeds", 1)
    assert finished.returncode == 1
    lines = finished.stdout.splitlines()
    assert "FAILED: sampler 0 failed: ZeroDivisionError" in lines[1]
    assert "0 of 1" in lines[-2]
    assert "1 of 1" in lines[-1]
    assert [path.name for path in spreeze.folder.iterdir()] == ["tasks.toml"]


def test_an_interrupt_keeps_what_was_measured(spreeze: Spreeze) -> None:
    (spreeze.folder / "tasks.toml").write_text(entry(ALWAYS) + entry(NEVER, name="never"))
    words = ("--seeds", 1, "--json", "solve.json", "--picture", "solve.png")
    running = spreeze.start("bench", "solve", "--tasks", "tasks.toml", *words)
    # The second run is under way, be it at its beginning.
    spreeze.wait_until(lambda: "1/2" in running.said(), "a first run", run=running)
    spreeze.wait_until(lambda: len(spreeze.processes()) > 1, "a second run", run=running)
    running.process.send_signal(signal.SIGINT)
    finished = running.finish()
    assert finished.returncode == 130
    assert "1 of 1" in finished.stdout.splitlines()[-2]
    assert "0 of 0" in finished.stdout.splitlines()[-1]
    figures = spreeze.read("solve.json", spreeze.folder)
    assert (len(figures["runs"]), figures["is_complete"]) == (1, False)
    assert BLUE in colours_in(spreeze.folder / "solve.png")[1]


TELLING_OF_TORCH = """
import atexit, sys
from spreeze.commands.cli import main
atexit.register(lambda: print("torch" in sys.modules))
main()
"""
WRONG_WORDS = [
    ("no tasks", (), "--tasks is missing"),
    ("missing file", ("--tasks", "none.toml"), "--tasks none.toml cannot be read: No such file"),
    ("broken file", ("--tasks", "broken.toml"), "--tasks broken.toml is not TOML"),
    ("unknown environment", ("--tasks", "unknown.toml"), "Pendulum-v1"),
    ("no seeds", ("--tasks", "tasks.toml", "--seeds", "0"), "--seeds must be at least 1, not 0"),
    ("json nowhere", ("--tasks", "tasks.toml", "--json", "none/x.json"), "--json none/x.json cannot be written"),
    (
        "picture nowhere",
        ("--tasks", "tasks.toml", "--picture", "none/x.png"),
        "--picture none/x.png cannot be written",
    ),
    ("picture of a kind", ("--tasks", "tasks.toml", "--picture", "x.foo"), "--picture x.foo must end in .png"),
    ("runs in a file", ("--tasks", "tasks.toml", "--runs", "tasks.toml"), "--runs tasks.toml cannot be created"),
    ("unknown flag", ("--tasks", "tasks.toml", "--seed", "1"), "did you mean --seeds?"),
]


@pytest.mark.parametrize(("words", "says"), [case[1:] for case in WRONG_WORDS], ids=[case[0] for case in WRONG_WORDS])
def test_wrong_input_is_refused_in_one_line_and_without_torch(
    words: tuple[str, ...], says: str, spreeze: Spreeze
) -> None:
    files = {"tasks.toml": WHOLE, "broken.toml": "[[", "unknown.toml": WHOLE.replace("Pendulum", "Pendulm")}
    for name, text in files.items():
        (spreeze.folder / name).write_text(text)
    # In place of the command itself, to see what it has imported by its end.
    finished = spreeze.start_python("-c", TELLING_OF_TORCH, "bench", "solve", *words).finish()
    assert finished.returncode == 2, finished.stderr
    (line,) = finished.stderr.splitlines()
    assert says in line
    assert finished.stdout == "False\n"
    assert {path.name for path in spreeze.folder.iterdir()} == set(files)


def test_without_matplotlib_a_picture_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.toml").write_text(WHOLE)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="--picture needs matplotlib"):
        _check(SolveRequest(tmp_path / "tasks.toml", picture=tmp_path / "x.png"))


def test_kept_runs_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(WHOLE)
    (tmp_path / "kept" / "Pendulum-v1-seed-1").mkdir(parents=True)
    _check(SolveRequest(tmp_path / "tasks.toml", seeds=1, runs=tmp_path / "kept"))
    with pytest.raises(ConfigError, match="already holds Pendulum-v1-seed-1"):
        _check(SolveRequest(tmp_path / "tasks.toml", seeds=2, runs=tmp_path / "kept"))
