"""The command line: turns words into calls, and results into exit codes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from spreeze.commands.arguments import (
    DashboardArguments,
    DoctorArguments,
    DoctorClusterArguments,
    EvaluateArguments,
    ExportArguments,
    PlotArguments,
    ResumeArguments,
    TuneArguments,
    WatchArguments,
)
from spreeze.commands.bench_commands import run_benchmark
from spreeze.commands.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, run_and_exit
from spreeze.commands.overview import command_started_at, overview
from spreeze.commands.parsing import flags_in, one_of, parse, path_of, with_defaults_as_before
from spreeze.commands.train import training_config
from spreeze.config import SHOWN, Config


def main() -> None:
    """Run the command in sys.argv and exit with its code."""
    run_and_exit(_run, sys.argv[1:])


def _run(words: list[str]) -> int:
    if words and words[0] == "--version":
        from spreeze.host.version import VERSION

        print(f"spreeze {VERSION}")
        return EXIT_DONE
    if not words or words[0] in ("-h", "--help"):
        print(overview("spreeze COMMAND", COMMANDS))
        return EXIT_DONE
    command = one_of(words[0], COMMANDS, "command")
    return COMMANDS[command](words[1:])


def _train(words: list[str]) -> int:
    """Train a policy on an environment: spreeze train Pendulum-v1."""
    config = training_config(words)
    from spreeze.commands.start_run import train

    result = train(config, command_started_at())
    return EXIT_INTERRUPTED if result.stop_reason in ("interrupted", "terminated") else EXIT_DONE


def _resume(words: list[str]) -> int:
    """Continue a run that has stopped: spreeze resume RUN."""
    arguments = parse(with_defaults_as_before(ResumeArguments, SHOWN), words, "spreeze resume")
    from spreeze.commands.start_run import resume

    result = resume(arguments, flags_in(words), command_started_at())
    return EXIT_INTERRUPTED if result.stop_reason in ("interrupted", "terminated") else EXIT_DONE


def _evaluate(words: list[str]) -> int:
    """Score the policy of a run: spreeze evaluate RUN --episodes 20."""
    arguments = parse(EvaluateArguments, words, "spreeze evaluate")
    from spreeze.commands.evaluate import evaluate_run
    from spreeze.host.process_group import ending_what_is_started

    run, json_path = Path(arguments.run), path_of(arguments.json)
    with ending_what_is_started():
        evaluate_run(run, arguments.episodes, arguments.seed, json_path, arguments.which)
    return EXIT_DONE


def _watch(words: list[str]) -> int:
    """Show the policy of a run, in a window or in the browser: spreeze watch RUN."""
    arguments = parse(WatchArguments, words, "spreeze watch")
    from spreeze.host.process_group import ending_what_is_started
    from spreeze.views.watch import WatchRequest, watch_run

    choice = WatchRequest(
        arguments.chosen,
        arguments.episodes,
        arguments.seed,
        path_of(arguments.record),
        arguments.open,
    )
    # A browser that was opened stays.
    with contextlib.nullcontext() if arguments.open else ending_what_is_started():
        watch_run(Path(arguments.run), choice)
    return EXIT_DONE


def _export(words: list[str]) -> int:
    """Copy the policy of a run into one file: spreeze export RUN --out policy.safetensors."""
    arguments = parse(ExportArguments, words, "spreeze export")
    from spreeze.policy.export import export_policy

    export_policy(Path(arguments.run), Path(arguments.out), arguments.which)
    return EXIT_DONE


def _plot(words: list[str]) -> int:
    """Draw learning curves of runs: spreeze plot runs/A runs/B --out curves.pdf."""
    arguments = parse(PlotArguments, words, "spreeze plot")
    from spreeze.views.plot import AXES, plot_runs

    plot_runs([Path(run) for run in arguments.runs], Path(arguments.out), AXES[arguments.x], arguments.title)
    return EXIT_DONE


def _dashboard(words: list[str]) -> int:
    """Show runs in the browser: spreeze dashboard, or spreeze dashboard RUN RUN."""
    arguments = parse(DashboardArguments, words, "spreeze dashboard")
    from spreeze.views.dashboard.command import show_runs

    show_runs([Path(run) for run in arguments.runs], arguments.host, arguments.port, arguments.open)
    return EXIT_INTERRUPTED  # nothing but a signal ends it


def _doctor(words: list[str]) -> int:
    """Find what is wrong with this machine, or with an environment, and how to fix it: spreeze doctor [ENV]."""
    if "--cluster" in flags_in(words):
        from spreeze.commands.doctor_cluster import examine_machines

        address = parse(DoctorClusterArguments, words, "spreeze doctor").cluster
        return EXIT_DONE if examine_machines(address) else EXIT_FAILED
    arguments = parse(DoctorArguments, words, "spreeze doctor") if words else None
    from spreeze.commands import doctor
    from spreeze.host.process_group import ending_what_is_started

    if arguments is None:
        return EXIT_DONE if doctor.examine_machine() else EXIT_FAILED
    config = Config(arguments.env).replace(
        env_module=arguments.env_module,
        env_kwargs=arguments.env_kwargs,
        max_episode_steps=arguments.max_episode_steps,
        hang_s=arguments.hang_s,
    )
    with ending_what_is_started():
        return EXIT_DONE if doctor.examine_environment(config) else EXIT_FAILED


def _tune(words: list[str]) -> int:
    """Find the best samplers and batch size by measuring: spreeze tune HalfCheetah-v5 --picture tune.png."""
    arguments = parse(TuneArguments, words, "spreeze tune")
    config = Config(arguments.env).replace(device=arguments.device)
    from spreeze.commands.bench.grid import GridRequest, tune_environment

    request = GridRequest(arguments.samplers, arguments.batch_sizes, arguments.samples, arguments.adapt_seconds)
    tune_environment(config, request, path_of(arguments.json), path_of(arguments.picture))
    return EXIT_DONE


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "resume": _resume,
    "watch": _watch,
    "evaluate": _evaluate,
    "export": _export,
    "dashboard": _dashboard,
    "plot": _plot,
    "doctor": _doctor,
    "tune": _tune,
    "bench": run_benchmark,
}
