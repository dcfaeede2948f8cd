"""`spreeze bench solve`: the time from the start of the command until a return is reached, for a list of tasks.

In: tasks and a number of seeds; each pair is one `spreeze train`, one after the other. Out: a table, JSON with all
evaluations, and the learning curves as a picture. Ctrl-C keeps finished runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spreeze.commands.bench import seconds_text
from spreeze.commands.bench.curves import draw_curves
from spreeze.commands.bench.machine import describe_benchmark
from spreeze.commands.bench.tasks import Task, read_tasks
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists
from spreeze.errors import ConfigError, RunFailed, UsageError
from spreeze.host.capture_output import capture_output
from spreeze.host.json_text import json_file
from spreeze.host.output_files import require_writable
from spreeze.host.programs import python, python_path
from spreeze.supervision.signals import Signals
from spreeze.views.picture_formats import require_drawable

# Beyond its limit a run has this long to end; one that takes longer hangs.
HANG_EXTRA_S = 120.0
STOP_LIMIT_S = 15.0  # for a run to end after SIGTERM; it needs one or two


@dataclass(frozen=True)
class SolveRequest:
    """What to measure, and where to write the results."""

    tasks: Path
    seeds: int = 3
    json: Path | None = None
    picture: Path | None = None
    runs: Path | None = None
    """Where to keep the run folders; they are deleted otherwise."""


@dataclass(frozen=True)
class EvaluationPoint:
    """One evaluation."""

    wall_s: float
    env_steps: int
    updates: int
    mean_return: float


@dataclass(frozen=True)
class SolveRun:
    """One task with one seed."""

    label: str
    """The label of its task."""
    seed: int
    command: str
    solved: bool
    wall_s: float
    """From the start of the command to the threshold; the limit if it was not reached."""
    best_return: float | None
    env_steps: int
    updates: int
    error: str | None
    """Why it failed, or None."""
    evaluations: tuple[EvaluationPoint, ...]


@dataclass(frozen=True)
class TaskSummary:
    """The results of all runs of one task."""

    label: str
    env: str
    name: str | None
    threshold: float
    limit_s: float
    algo: str | None
    flags: dict[str, Any]
    runs: int
    solved: int
    median_s: float | None
    """None without runs. Unsolved runs count with the limit."""
    median_is_bound: bool
    """Whether the median is a lower bound, because of unsolved runs."""
    best_return: float | None

    @staticmethod
    def of(task: Task, runs: Sequence[SolveRun]) -> TaskSummary:
        """Summarise the runs of a task."""
        ordered = sorted(runs, key=lambda run: (run.wall_s, not run.solved))
        median_s = statistics.median(run.wall_s for run in runs) if runs else None
        # With an even number the median is the mean of the middle two: a bound if the later one is.
        is_bound = bool(runs) and not ordered[len(runs) // 2].solved
        return TaskSummary(
            label=task.label,
            env=task.env,
            name=task.name,
            threshold=task.threshold,
            limit_s=task.limit_s,
            algo=task.algo,
            flags=dict(task.flags),
            runs=len(runs),
            solved=sum(run.solved for run in runs),
            median_s=median_s,
            median_is_bound=is_bound,
            best_return=max((run.best_return for run in runs if run.best_return is not None), default=None),
        )


def bench_solve(request: SolveRequest) -> bool:
    """Train on every task with every seed, print and write the results. Return whether no run failed."""
    tasks = _check(request)
    about = describe_benchmark("solve")
    longest_s = sum(task.limit_s for task in tasks) * request.seeds
    print(
        f"{_count(len(tasks), 'task')}, {_count(request.seeds, 'seed')}, at most {longest_s / 60:.0f} min", flush=True
    )
    runs: list[SolveRun] = []
    with Signals() as signals:
        for run in _runs(tasks, request, signals):
            runs.append(run)
            print(progress_line(run, len(runs), len(tasks) * request.seeds), flush=True)
            with contextlib.suppress(OSError):  # it is written again at the end, where a failure is reported
                _write_json(request, about, tasks, runs)
        # Still within Signals: another Ctrl-C does not lose the results.
        print("\n" + "\n".join(table(tasks, runs)), flush=True)
        _write_results(request, about, tasks, runs)
    if signals.stop_reason is not None:
        raise KeyboardInterrupt
    return all(run.error is None for run in runs)


def _check(request: SolveRequest) -> tuple[Task, ...]:
    """Refuse a wrong request before anything is run."""
    if request.seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, not {request.seeds}")
    tasks = read_tasks(request.tasks)
    require_writable(request.json)
    require_writable(request.picture, "--picture")
    if request.picture is not None:
        require_drawable(request.picture, "--picture", ", or leave it out and use --json")
    for number, task in enumerate(tasks, 1):
        try:
            with capture_output(Path(os.devnull)):
                check_exists(EnvSpec.of(task.config()))  # it imports the user's modules, which may print
        except UsageError as error:
            raise ConfigError(f"--tasks {request.tasks}, task {number}: {error}") from None
    if request.runs is not None:
        _require_new(request.runs, [_folder(task, seed) for task in tasks for seed in range(request.seeds)])
    return tasks


def _require_new(folder: Path, names: Sequence[str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [name for name in names if (folder / name).exists()]
    except OSError as error:
        raise ConfigError(
            f"--runs {folder} cannot be created ({error.strerror}): name a folder you may write to"
        ) from None
    if taken:
        raise ConfigError(f"--runs {folder} already holds {taken[0]}: name another folder, or delete what is there")


# --- runs ------------------------------------------------------------------------------------------------------


def _runs(tasks: Sequence[Task], request: SolveRequest, signals: Signals) -> Iterator[SolveRun]:
    """Make one run after the other, until all are made or a signal comes.

    Seed by seed, so that changes of the machine over time affect all tasks equally.
    """
    for seed in range(request.seeds):
        for task in tasks:
            with tempfile.TemporaryDirectory(prefix="spreeze-solve-") as scratch:
                run_dir = (request.runs or Path(scratch)) / _folder(task, seed)
                try:
                    error = _train(task, seed, run_dir, Path(scratch) / "stderr.txt", signals)
                except KeyboardInterrupt:
                    return  # a run that was cut short is not a result
                yield read_run(task, seed, run_dir, error)


def _train(task: Task, seed: int, run_dir: Path, stderr_path: Path, signals: Signals) -> str | None:
    """Run `spreeze train` to its end; return why it failed, or None."""
    # Without optional processes and checkpoints, which would use the machine during the measurement.
    words = [*task.words(seed), f"--run-dir={run_dir}", "--quiet", "--no-dashboard", "--no-video"]
    words += ["--checkpoint-interval-s=0"]
    with stderr_path.open("wb") as stderr:
        process = subprocess.Popen(  # noqa: S603 (`spreeze train`, with words of the user's own tasks)
            python("-m", "spreeze", *words),
            env={**os.environ, "PYTHONPATH": python_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        limit_s = task.limit_s + HANG_EXTRA_S
        try:
            with signals.raising_after(0):
                code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"it did not end within {limit_s:.0f} s"
        finally:
            stop_process(process)
    if signals.stop_reason is not None:
        raise KeyboardInterrupt  # Ctrl-C went to both, and the run ended first
    output = stderr_path.read_text(errors="replace").strip().splitlines()
    if code == 0:
        return None
    return output[-1].removeprefix("spreeze: ") if output else f"it exited with code {code}"


def stop_process(process: subprocess.Popen[Any]) -> None:
    """End a run by SIGTERM, so that it ends its own processes, or by SIGKILL if that takes too long."""
    process.terminate()  # no effect on one that has ended
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_run(task: Task, seed: int, run_dir: Path, error: str | None) -> SolveRun:
    """Read the results of a run; a failed one may have none."""
    try:
        summary = json.loads((run_dir / "summary.json").read_text())
    except (OSError, ValueError):
        summary, error = {}, error or "it wrote no summary"
    reached_s = summary.get("time_to_target_s")
    # An evaluation that had begun before the limit may end after it.
    is_solved = error is None and reached_s is not None and reached_s <= task.limit_s
    return SolveRun(
        label=task.label,
        seed=seed,
        command=shlex.join(["spreeze", *task.words(seed)]),
        solved=is_solved,
        wall_s=reached_s if is_solved else task.limit_s,
        best_return=summary.get("best_return"),
        env_steps=summary.get("env_steps", 0),
        updates=summary.get("updates", 0),
        error=error,
        evaluations=_read_evaluations(run_dir / "evaluations.jsonl"),
    )


def _read_evaluations(path: Path) -> tuple[EvaluationPoint, ...]:
    lines = []
    for text in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):  # the last line of a killed run may be incomplete
            lines.append(json.loads(text))
    # A return that was not finite is null there.
    return tuple(
        EvaluationPoint(line["wall_s"], line["env_steps"], line["updates"], line["mean_return"])
        for line in lines
        if line["mean_return"] is not None
    )


def _folder(task: Task, seed: int) -> str:
    return f"{task.folder}-seed-{seed}"


def _of(task: Task, runs: Sequence[SolveRun]) -> list[SolveRun]:
    return [run for run in runs if run.label == task.label]


# --- what is shown ---------------------------------------------------------------------------------------------


def progress_line(run: SolveRun, number: int, of: int) -> str:
    """Return the result of one run, as one line."""
    begin = f"{number:>{len(str(of))}}/{of}  {run.label}  seed {run.seed}  {seconds_text(run.wall_s, not run.solved)}"
    if run.error is not None:
        return f"{begin}  FAILED: {run.error}"
    best = _return_text(run.best_return)
    return f"{begin}  best return {best}, {run.env_steps:,} env steps, {run.updates:,} updates"


def table(tasks: Sequence[Task], runs: Sequence[SolveRun]) -> list[str]:
    """Return the results as a table, one line per task."""
    cells = [("task", "threshold", "solved", "median", "each seed", "best return")]
    for task in tasks:
        own = _of(task, runs)
        row = TaskSummary.of(task, own)
        median = "-" if row.median_s is None else seconds_text(row.median_s, row.median_is_bound)
        each = ", ".join(seconds_text(run.wall_s, not run.solved) for run in own) or "-"
        solved, best = f"{row.solved} of {row.runs}", _return_text(row.best_return)
        cells.append((row.label, f"{row.threshold:,g}", solved, median, each, best))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place in (0, 4) else cell.rjust(width)  # texts to the left, numbers to the right
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]


def as_json(
    request: SolveRequest, about: dict[str, Any], tasks: Sequence[Task], runs: Sequence[SolveRun]
) -> dict[str, Any]:
    """Return the results as a JSON object."""
    rows = [asdict(TaskSummary.of(task, _of(task, runs))) for task in tasks]
    is_complete = len(runs) == len(tasks) * request.seeds
    whole = {"seeds": request.seeds, "is_complete": is_complete, "tasks": rows, "runs": [asdict(run) for run in runs]}
    return {**about, **whole}


def _write_results(
    request: SolveRequest, about: dict[str, Any], tasks: Sequence[Task], runs: Sequence[SolveRun]
) -> None:
    if not runs:
        return
    try:
        _write_json(request, about, tasks, runs)
        if request.picture is not None:
            draw_curves(as_json(request, about, tasks, runs), request.picture)
    except OSError as error:
        raise RunFailed(f"the results cannot be written: {error}") from error


def _write_json(
    request: SolveRequest, about: dict[str, Any], tasks: Sequence[Task], runs: Sequence[SolveRun]
) -> None:
    if request.json is not None:
        request.json.write_bytes(json_file(as_json(request, about, tasks, runs)))


def _return_text(best: float | None) -> str:
    return "-" if best is None else f"{best:,.1f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
