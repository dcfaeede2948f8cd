"""The command line: turns words into calls, errors into one line, and results into exit codes."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, TypeVar

from spreeze.commands.arguments import (
    BenchLearnerArguments,
    BenchSamplingArguments,
    BenchSolveArguments,
    BenchSplitArguments,
    BenchThroughputArguments,
    DashboardArguments,
    DoctorArguments,
    EvaluateArguments,
    ExportArguments,
    PlotArguments,
    ResumeArguments,
    TuneArguments,
    WatchArguments,
)
from spreeze.config import Config, WatchingConfig
from spreeze.config.fields import describe_type, flag, leaf_types
from spreeze.errors import ConfigError, ProcessFailed, SpreezeError
from spreeze.runs.run_folder import read_config_file

T = TypeVar("T")

ENV_HELP = "Environment id (Pendulum-v1), or module:id to import the module that registers it first."
NO_ENV = "?"  # stands for the environment that a config file does not name

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main() -> None:
    """Run the command in sys.argv and exit with its code."""
    try:
        code = _run(sys.argv[1:])
    except SpreezeError as error:
        if isinstance(error, ProcessFailed):
            print(error.traceback, file=sys.stderr, end="")
        print(f"spreeze: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, as `| head` does; the interpreter would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one Ctrl-C more must not turn the exit code into a signal
    sys.exit(code)


def _run(words: list[str]) -> int:
    if words and words[0] == "--version":
        from spreeze.host.version import VERSION

        print(f"spreeze {VERSION}")
        return EXIT_DONE
    if not words or words[0] in ("-h", "--help"):
        print(_overview("spreeze COMMAND", COMMANDS))
        return EXIT_DONE
    command = _one_of(words[0], COMMANDS, "command")
    return COMMANDS[command](words[1:])


def _train(words: list[str]) -> int:
    """Train a policy on an environment: spreeze train Pendulum-v1."""
    import tyro

    config_path, words = _take_config_path(words)
    # ENV stands anywhere among the flags, also where a config file has given it a default.
    env = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV", help=ENV_HELP)]
    # Who types a command wants to see something; a call from Python opens no servers that it was not asked for.
    shown = dataclasses.field(default_factory=lambda: WatchingConfig(dashboard=True, video=True))
    changed: list[Any] = [("env", env), ("watching", WatchingConfig, shown)]
    arguments = dataclasses.make_dataclass("TrainArguments", changed, bases=(Config,), frozen=True)
    arguments.__doc__ = "Train a policy. --config FILE takes settings from a JSON file, such as a run's config.json."
    default = None
    if config_path is not None:
        fields = read_config_file(config_path)
        default = arguments(fields.pop("env", NO_ENV)).replace(**fields)
    parsed = _parse(arguments, words, "spreeze train", default)
    if parsed.env == NO_ENV:
        raise ConfigError(
            f"ENV is missing: {config_path} names none, so type spreeze train ENV --config {config_path}"
        )
    config = Config(**{own.name: getattr(parsed, own.name) for own in dataclasses.fields(Config)})
    from spreeze.config.env_spec import EnvSpec
    from spreeze.supervision.supervisor import supervise
    from spreeze.views.terminal import make_display

    result = supervise(config, EnvSpec.of(config), _command_started_at(), make_display(config))
    return EXIT_INTERRUPTED if result.stop_reason in ("interrupted", "terminated") else EXIT_DONE


def _resume(words: list[str]) -> int:
    """Go on with a run that has stopped: spreeze resume RUN."""
    arguments = _parse(ResumeArguments, words, "spreeze resume")
    from spreeze.supervision.resume import LIMITS, ResumeRequest, resume_run

    limits = {name: getattr(arguments, name) for name in LIMITS}
    result = resume_run(ResumeRequest(Path(arguments.run), limits, arguments.quiet), _command_started_at())
    return EXIT_INTERRUPTED if result.stop_reason in ("interrupted", "terminated") else EXIT_DONE


def _evaluate(words: list[str]) -> int:
    """Score the policy of a run: spreeze evaluate RUN --episodes 20."""
    arguments = _parse(EvaluateArguments, words, "spreeze evaluate")
    from spreeze.commands.evaluate import evaluate_run

    evaluate_run(Path(arguments.run), arguments.episodes, arguments.seed, _path(arguments.json))
    return EXIT_DONE


def _watch(words: list[str]) -> int:
    """Look at the policy of a run, in a window or in the browser: spreeze watch RUN."""
    arguments = _parse(WatchArguments, words, "spreeze watch")
    from spreeze.views.watch import WatchRequest, watch_run

    choice = WatchRequest(
        arguments.version, arguments.best, arguments.episodes, arguments.seed, _path(arguments.record), arguments.open
    )
    watch_run(Path(arguments.run), choice)
    return EXIT_DONE


def _export(words: list[str]) -> int:
    """Take the policy home: spreeze export RUN --out policy.safetensors."""
    arguments = _parse(ExportArguments, words, "spreeze export")
    from spreeze.policy.export import export_policy

    export_policy(Path(arguments.run), Path(arguments.out))
    return EXIT_DONE


def _plot(words: list[str]) -> int:
    """Draw learning curves of runs: spreeze plot runs/A runs/B --out curves.pdf."""
    arguments = _parse(PlotArguments, words, "spreeze plot")
    from spreeze.views.plot import AXES, plot_runs

    plot_runs([Path(run) for run in arguments.runs], Path(arguments.out), AXES[arguments.x], arguments.title)
    return EXIT_DONE


def _dashboard(words: list[str]) -> int:
    """Show runs in the browser: spreeze dashboard, or spreeze dashboard RUN RUN."""
    arguments = _parse(DashboardArguments, words, "spreeze dashboard")
    from spreeze.views.dashboard.command import show_runs

    show_runs([Path(run) for run in arguments.runs], arguments.host, arguments.port, arguments.open)
    return EXIT_INTERRUPTED  # nothing but a signal ends it


def _doctor(words: list[str]) -> int:
    """Say what works on this machine, and how to fix what does not."""
    _parse(DoctorArguments, words, "spreeze doctor")
    from spreeze.commands.doctor import examine

    return EXIT_DONE if examine() else EXIT_FAILED


def _tune(words: list[str]) -> int:
    """Find the best samplers and batch size by measuring: spreeze tune HalfCheetah-v5 --picture tune.png."""
    arguments = _parse(TuneArguments, words, "spreeze tune")
    config = Config(arguments.env).replace(device=arguments.device)
    from spreeze.commands.bench.grid import GridRequest, tune_environment

    request = GridRequest(arguments.samplers, arguments.batch_sizes, arguments.samples, arguments.adapt_seconds)
    tune_environment(config, request, _path(arguments.json), _path(arguments.picture))
    return EXIT_DONE


def _bench(words: list[str]) -> int:
    """Measure: spreeze bench throughput HalfCheetah-v5."""
    if not words or words[0] in ("-h", "--help"):
        print(_overview("spreeze bench BENCHMARK", BENCHMARKS))
        return EXIT_DONE
    benchmark = _one_of(words[0], BENCHMARKS, "benchmark")
    return BENCHMARKS[benchmark](words[1:])


def _bench_sampling(words: list[str]) -> int:
    """One sampler beside the bare environment loop: spreeze bench sampling ENV."""
    arguments = _parse(BenchSamplingArguments, words, "spreeze bench sampling")
    config = Config(arguments.env).replace(backend=arguments.backend)
    from spreeze.commands.bench.sampling import bench_sampling

    bench_sampling(config, arguments.seconds, arguments.repeats, arguments.envs_per_sampler, _path(arguments.json))
    return EXIT_DONE


def _bench_throughput(words: list[str]) -> int:
    """A training beside bare loops on all cores and the learner alone: spreeze bench throughput ENV."""
    arguments = _parse(BenchThroughputArguments, words, "spreeze bench throughput")
    config = Config(arguments.env).replace(
        samplers=arguments.samplers,
        envs_per_sampler=arguments.envs_per_sampler,
        backend=arguments.backend,
        batch_size=arguments.batch_size,
        device=arguments.device,
        min_updates_per_step=arguments.min_updates_per_step,
    )
    from spreeze.commands.bench.throughput import bench_throughput

    bench_throughput(config, arguments.seconds, _path(arguments.json), _command_started_at())
    return EXIT_DONE


def _bench_learner(words: list[str]) -> int:
    """Updates without samplers, each way they can run: spreeze bench learner."""
    arguments = _parse(BenchLearnerArguments, words, "spreeze bench learner")
    sizes = (*arguments.batch_sizes, *arguments.hidden, arguments.obs_dim, arguments.act_dim)
    if not arguments.batch_sizes or not arguments.hidden or min(sizes) < 1 or arguments.seconds <= 0:
        raise ConfigError("--batch-sizes, --hidden, --obs-dim, --act-dim and --seconds must be above 0")
    from spreeze.adapt.plan import plan_processes
    from spreeze.host.hardware import this_machine
    from spreeze.host.threads import thread_variables

    machine = this_machine()
    plan = plan_processes(Config(NO_ENV).replace(device=arguments.device), machine)
    os.environ.update(thread_variables(machine.cores))  # before torch is imported, as for a run's learner
    # By name: nothing else that the command line reaches may import torch.
    bench = importlib.import_module("spreeze.commands.bench.learner")
    task = bench.Task(plan.config.learning.device, arguments.obs_dim, arguments.act_dim, arguments.hidden)
    bench.bench_learner(task, arguments.batch_sizes, arguments.seconds, _path(arguments.json))
    return EXIT_DONE


def _bench_split(words: list[str]) -> int:
    """UpdateParts of an update, and what two devices would gain: spreeze bench split."""
    arguments = _parse(BenchSplitArguments, words, "spreeze bench split")
    sizes = (
        *arguments.batch_sizes,
        *arguments.hidden,
        arguments.obs_dim,
        arguments.act_dim,
        arguments.exchange_updates,
    )
    if not arguments.batch_sizes or not arguments.hidden or min(sizes) < 1 or arguments.seconds <= 0:
        raise ConfigError(
            "--batch-sizes, --hidden, --obs-dim, --act-dim, --exchange-updates and --seconds must be above 0"
        )
    from spreeze.adapt.plan import plan_processes, usable_gpu_count
    from spreeze.adapt.remember import UpdatePartsMemory, update_parts_key
    from spreeze.host.hardware import this_machine
    from spreeze.host.threads import thread_variables

    machine = this_machine()
    chosen = "cuda:0" if usable_gpu_count(machine) else "cpu"
    critic = chosen if arguments.critic_device == "auto" else arguments.critic_device
    actor = "cuda:1" if usable_gpu_count(machine) > 1 else chosen
    actor = actor if arguments.actor_device == "auto" else arguments.actor_device
    plan_processes(
        Config(NO_ENV).replace(critic_device=critic, actor_device=actor), machine
    )  # refuses what is not here
    os.environ.update(thread_variables(machine.cores))  # before torch is imported, as for a run's learner
    split = importlib.import_module("spreeze.commands.bench.split")
    task = importlib.import_module("spreeze.commands.bench.learner").Task(
        critic, arguments.obs_dim, arguments.act_dim, arguments.hidden
    )
    measured = split.bench_split(
        task, actor, arguments.batch_sizes, arguments.exchange_updates, arguments.seconds, _path(arguments.json)
    )
    if "cpu" not in (actor, critic):  # for `--split auto`, which asks whether GPUs pay
        UpdatePartsMemory().keep(update_parts_key(machine, arguments.hidden), max(measured))
    return EXIT_DONE


def _bench_solve(words: list[str]) -> int:
    """Time to a return, for a list of tasks: spreeze bench solve --tasks FILE."""
    arguments = _parse(BenchSolveArguments, words, "spreeze bench solve")
    if arguments.tasks is None:
        raise ConfigError("--tasks is missing: spreeze bench solve --tasks FILE (see `spreeze bench solve --help`)")
    from spreeze.commands.bench.solve import SolveRequest, bench_solve

    request = SolveRequest(
        Path(arguments.tasks), arguments.seeds, _path(arguments.json), _path(arguments.picture), _path(arguments.runs)
    )
    return EXIT_DONE if bench_solve(request) else EXIT_FAILED


BENCHMARKS: dict[str, Callable[[list[str]], int]] = {
    "sampling": _bench_sampling,
    "learner": _bench_learner,
    "throughput": _bench_throughput,
    "split": _bench_split,
    "solve": _bench_solve,
}

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
    "bench": _bench,
}


def _overview(usage: str, commands: Mapping[str, Callable[[list[str]], int]]) -> str:
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {str(command.__doc__).strip()}" for name, command in commands.items()]
    return "\n".join([f"usage: {usage} ...", "", *lines, "", f"`{usage} --help` lists what it takes."])


def _parse(kind: type[T], words: list[str], program: str, default: T | None = None) -> T:
    """Parse words into a dataclass; wrong words raise an error of one line."""
    import tyro

    leaves = leaf_types(kind)
    _refuse_unknown_flags(words, leaves, program)
    said = io.StringIO()
    # Required fields are positional, and nested groups do not show in the flags' names.
    markers = (tyro.conf.PositionalRequiredArgs, tyro.conf.OmitArgPrefixes)
    keywords: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(said):
            parsed: T = tyro.cli(kind, prog=program, args=words, config=markers, **keywords)
            return parsed
    except SystemExit as stop:
        if stop.code in (0, None):
            raise  # --help
        raise ConfigError(_one_line(said.getvalue(), words, leaves, program)) from None


def _refuse_unknown_flags(words: list[str], leaves: Mapping[str, Any], program: str) -> None:
    known = ["--help"]
    for name, hint in leaves.items():
        known += [flag(name), f"--no-{flag(name)[2:]}"] if hint is bool else [flag(name)]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name.replace("_", "-") not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"`{program} --help` lists them all"
            raise ConfigError(f"there is no flag '{name}': {hint}")


def _one_line(panel: str, words: list[str], leaves: Mapping[str, Any], program: str) -> str:
    """Reduce the parser's framed message to one line that says what is wrong and what would be right."""
    lines = [line.strip("╭╮╰╯│─ ") for line in panel.splitlines()]
    text = " ".join(line for line in lines[1:] if line and not line.startswith("For full helptext"))
    wrong = re.match(r"Error parsing (--[\w-]+)", text)
    if wrong is not None and (hint := leaves.get(wrong[1][2:].replace("-", "_"))) is not None:
        # Written with _ for - , or with = before the value, a flag is the same flag.
        spread = [
            part if i or not word.startswith("--") else part.replace("_", "-")
            for word in words
            for i, part in enumerate(word.split("=", 1))
        ]
        given = takewhile(lambda part: not part.startswith("--"), spread[spread.index(wrong[1]) + 1 :])
        return f"{wrong[1]} must be {describe_type(hint)}, not '{' '.join(given)}'"
    if text.startswith("Missing from"):
        required = next(iter(leaves)).upper()
        return f"{required} is missing: {program} {required} (see `{program} --help`)"
    return f"{text} (see `{program} --help`)"


def _one_of(word: str, known: Any, kind: str) -> str:
    if word in known:
        return word
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ConfigError(f"there is no {kind} '{word}': {hint}")


def _take_config_path(words: list[str]) -> tuple[Path | None, list[str]]:
    for i, word in enumerate(words):
        if word == "--config":
            if i + 1 == len(words):
                raise ConfigError("--config needs a file: --config runs/NAME/config.json")
            return Path(words[i + 1]), words[:i] + words[i + 2 :]
        if word.startswith("--config="):
            return Path(word.removeprefix("--config=")), words[:i] + words[i + 1 :]
    return None, words


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _command_started_at() -> float:
    """Return when this process started, on the clock of time.monotonic(): the user's clock, imports included."""
    try:
        # Field 22 of stat, counted in ticks since boot; the command's own name before it may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        import psutil  # elsewhere than Linux; there it is off by up to a second

        age_s = time.time() - psutil.Process().create_time()
    return time.monotonic() - max(0.0, age_s)


if __name__ == "__main__":
    main()
