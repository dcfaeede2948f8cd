"""`spreeze bench`: what each benchmark is called with."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

from spreeze.commands.arguments import (
    BenchClusterArguments,
    BenchLearnerArguments,
    BenchSamplingArguments,
    BenchSolveArguments,
    BenchSplitArguments,
    BenchThroughputArguments,
)
from spreeze.commands.exit_codes import EXIT_DONE, EXIT_FAILED
from spreeze.commands.overview import command_started_at, overview
from spreeze.commands.parsing import one_of, parse, path_of
from spreeze.config import Config
from spreeze.errors import ConfigError

ANY_ENV = "?"  # of measurements without an environment


def run_benchmark(words: list[str]) -> int:
    """Measure: spreeze bench throughput HalfCheetah-v5."""
    if not words or words[0] in ("-h", "--help"):
        print(overview("spreeze bench BENCHMARK", BENCHMARKS))
        return EXIT_DONE
    benchmark = one_of(words[0], BENCHMARKS, "benchmark")
    return BENCHMARKS[benchmark](words[1:])


def _bench_sampling(words: list[str]) -> int:
    """One sampler compared with the bare environment loop: spreeze bench sampling ENV."""
    arguments = parse(BenchSamplingArguments, words, "spreeze bench sampling")
    config = Config(arguments.env).replace(backend=arguments.backend)
    from spreeze.commands.bench.sampling import bench_sampling

    bench_sampling(config, arguments.seconds, arguments.repeats, arguments.envs_per_sampler, path_of(arguments.json))
    return EXIT_DONE


def _bench_throughput(words: list[str]) -> int:
    """A training compared with bare loops on all cores and the learner alone: spreeze bench throughput ENV."""
    arguments = parse(BenchThroughputArguments, words, "spreeze bench throughput")
    config = Config(arguments.env).replace(
        samplers=arguments.samplers,
        envs_per_sampler=arguments.envs_per_sampler,
        backend=arguments.backend,
        batch_size=arguments.batch_size,
        device=arguments.device,
        min_updates_per_step=arguments.min_updates_per_step,
    )
    from spreeze.commands.bench.throughput import bench_throughput

    bench_throughput(config, arguments.seconds, path_of(arguments.json), command_started_at())
    return EXIT_DONE


def _bench_learner(words: list[str]) -> int:
    """Updates without samplers, with each update engine: spreeze bench learner."""
    arguments = parse(BenchLearnerArguments, words, "spreeze bench learner")
    sizes = (*arguments.batch_sizes, *arguments.hidden, arguments.obs_dim, arguments.act_dim)
    if not arguments.batch_sizes or not arguments.hidden or min(sizes) < 1 or arguments.seconds <= 0:
        raise ConfigError("--batch-sizes, --hidden, --obs-dim, --act-dim and --seconds must be above 0")
    from spreeze.adapt.plan import plan_processes
    from spreeze.host.hardware import this_machine
    from spreeze.host.threads import thread_variables

    machine = this_machine()
    plan = plan_processes(Config(ANY_ENV).replace(algo=arguments.algo, device=arguments.device), machine)
    os.environ.update(thread_variables(machine.cores))  # before torch is imported, as for a run's learner
    # By name: nothing else that the command line reaches may import torch.
    bench = importlib.import_module("spreeze.commands.bench.learner")
    task = bench.Task(
        plan.config.learning.device, arguments.obs_dim, arguments.act_dim, arguments.hidden, arguments.algo
    )
    bench.bench_learner(task, arguments.batch_sizes, arguments.seconds, path_of(arguments.json))
    return EXIT_DONE


def _bench_split(words: list[str]) -> int:
    """Times of the steps of an update, and what two devices would gain: spreeze bench split."""
    arguments = parse(BenchSplitArguments, words, "spreeze bench split")
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
    from spreeze.adapt.remember import UpdateTimesMemory, update_times_key
    from spreeze.host.hardware import this_machine
    from spreeze.host.threads import thread_variables

    machine = this_machine()
    chosen = "cuda:0" if usable_gpu_count(machine) else "cpu"
    critic = chosen if arguments.critic_device == "auto" else arguments.critic_device
    actor = "cuda:1" if usable_gpu_count(machine) > 1 else chosen
    actor = actor if arguments.actor_device == "auto" else arguments.actor_device
    plan_processes(
        Config(ANY_ENV).replace(algo=arguments.algo, critic_device=critic, actor_device=actor), machine
    )  # refuses what is not here
    os.environ.update(thread_variables(machine.cores))  # before torch is imported, as for a run's learner
    split = importlib.import_module("spreeze.commands.bench.split")
    task = importlib.import_module("spreeze.commands.bench.learner").Task(
        critic, arguments.obs_dim, arguments.act_dim, arguments.hidden, arguments.algo
    )
    measured = split.bench_split(
        task,
        actor,
        arguments.batch_sizes,
        arguments.exchange_updates,
        arguments.seconds,
        path_of(arguments.json),
    )
    if "cpu" not in (actor, critic):  # for `--split auto`, which asks whether GPUs pay
        UpdateTimesMemory().keep(update_times_key(machine, arguments.algo, arguments.hidden), max(measured))
    return EXIT_DONE


def _bench_cluster(words: list[str]) -> int:
    """Rows per second from the other machines of a Ray cluster: spreeze bench cluster."""
    arguments = parse(BenchClusterArguments, words, "spreeze bench cluster")
    from spreeze.commands.bench.cluster import bench_cluster

    bench_cluster(arguments.cluster, arguments.row_bytes, arguments.seconds, path_of(arguments.json))
    return EXIT_DONE


def _bench_solve(words: list[str]) -> int:
    """Time to a return, for a list of tasks: spreeze bench solve --tasks FILE."""
    arguments = parse(BenchSolveArguments, words, "spreeze bench solve")
    if arguments.tasks is None:
        raise ConfigError("--tasks is missing: spreeze bench solve --tasks FILE (see `spreeze bench solve --help`)")
    from spreeze.commands.bench.solve import SolveRequest, bench_solve

    request = SolveRequest(
        Path(arguments.tasks),
        arguments.seeds,
        path_of(arguments.json),
        path_of(arguments.picture),
        path_of(arguments.runs),
    )
    return EXIT_DONE if bench_solve(request) else EXIT_FAILED


BENCHMARKS: dict[str, Callable[[list[str]], int]] = {
    "sampling": _bench_sampling,
    "learner": _bench_learner,
    "throughput": _bench_throughput,
    "split": _bench_split,
    "cluster": _bench_cluster,
    "solve": _bench_solve,
}
