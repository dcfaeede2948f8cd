"""`spreeze bench sampling`: the speed of one sampler compared with the environment alone.

In turn: one real sampler process with policy, channel and a reader that drains it, then the bare loop of one
environment with random actions in a separate process. Rates are environment steps per second. The bare loop always
uses Gymnasium, so that the ratio includes the gain of a faster backend.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from spreeze.adapt.defaults import FREE_RUNNING_ENVS
from spreeze.adapt.plan import plan_memory, plan_processes
from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.transitions import RingChannel, RowLayout
from spreeze.channels.weights import WeightsChannel
from spreeze.commands.bench import spread
from spreeze.commands.bench.machine import write_benchmark
from spreeze.commands.bench.raw_loop import measure_raw_loops
from spreeze.config import Config, PolicyKind
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.facts import find_facts, find_spaces
from spreeze.errors import ConfigError, ProcessFailed
from spreeze.host.capture_output import capture_output
from spreeze.host.hardware import this_machine
from spreeze.host.output_files import require_writable
from spreeze.policy.actor import random_policy
from spreeze.supervision import launch

DRAIN_INTERVAL_S = 0.005  # a learner on a CPU makes about 180 updates per second, and drains its channels before each
SETTLE_S = 0.5  # caches, page faults and the CPU's clock
START_LIMIT_S = 60.0
ENVPOOL_ENVS = 256  # a call of EnvPool costs about 50 microseconds, and an environment in it one


@dataclass(frozen=True)
class SamplerFigures:
    """The results of one sampler process."""

    sampling_hz: float
    first_step_s: float
    """From the start of its process to its first step, including the wait for its brief."""
    resident_mb: float
    ring_wait_s: float


def bench_sampling(
    config: Config, seconds: float, repeats: int, envs_per_sampler: int | None, json_path: Path | None
) -> None:
    """Measure both in turn, and print rates and ratio."""
    env = config.env
    if envs_per_sampler is None:
        envs_per_sampler = ENVPOOL_ENVS if config.environment.backend == "envpool" else FREE_RUNNING_ENVS
    if seconds <= 0 or repeats < 1 or envs_per_sampler < 1:
        raise ConfigError("--seconds, --repeats and --envs-per-sampler must be above 0")
    json_path = require_writable(json_path)
    with capture_output(Path(os.devnull)):
        find_facts(EnvSpec(env))  # for the bare loop, which uses Gymnasium
        backend = str(find_facts(EnvSpec.of(config)).backend.value)
    config = config.replace(
        samplers=1,
        envs_per_sampler=envs_per_sampler,
        min_updates_per_step=0.0,
        backend=backend,
    )
    raw: list[float] = []
    sampled: list[SamplerFigures] = []
    for _ in range(repeats):
        sampled.append(measure_sampler(config, seconds))
        raw += measure_raw_loops(env, seconds, 1)
    rates = [figures.sampling_hz for figures in sampled]
    ratios = [rate / bare for rate, bare in zip(rates, raw, strict=True)]
    figures = {
        "env": env,
        "backend": backend,
        "envs_per_sampler": envs_per_sampler,
        "seconds": seconds,
        "raw_hz": raw,
        "samplers": [asdict(sampler) for sampler in sampled],
        "ratios": ratios,
        "ratio": statistics.median(ratios),
    }
    what = {"envpool": "EnvPool", "mujoco": "together"}.get(backend, "environments")
    print(f"bare loop, 1 environment        {spread(raw)} env steps/s")
    print(f"{f'sampler, {envs_per_sampler:>2} {what}':<32}{spread(rates)} env steps/s")
    print(f"ratio                           {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    first_step_s = statistics.median(sampler.first_step_s for sampler in sampled)
    resident_mb = max(sampler.resident_mb for sampler in sampled)
    print(f"sampler process                 first step after {first_step_s:.2f} s, {resident_mb:.0f} MB resident")
    write_benchmark(json_path, "sampling", figures)


def measure_sampler(config: Config, seconds: float) -> SamplerFigures:
    """Run one sampler with an untrained policy of the usual size and read its counters at both ends of a window."""
    env_spec = EnvSpec.of(config)
    spaces = find_spaces(env_spec)
    layout = RowLayout.of(spaces)
    machine = this_machine()
    config = plan_memory(plan_processes(config, machine), layout, machine).config
    with tempfile.TemporaryDirectory() as folder:
        channels = Channels(
            (RingChannel("bench"),),
            WeightsChannel(Path(folder)),
            MetricsChannel(),
            ControlChannel(),
        )
        channels.transitions[0].allocate(layout, int(config.sampling.ring_rows))
        policy_kind: PolicyKind = "categorical" if spaces.choices else "gaussian"
        channels.weights.writer().publish(*random_policy(spaces, policy_kind, config.learning.hidden, seed=0))
        started_at = time.monotonic()
        sampler = launch.start("sampler", 0, 0, channels, Path(folder) / "sampler.log", threads=1)
        try:
            brief = Brief(0, 0, config, env_spec, spaces, Path(folder), started_at, channels)
            sampler.send_brief(replace(brief, policy_kind=policy_kind))
            return _watch_sampler(sampler, channels, started_at, seconds)
        finally:
            channels.control.stop()
            sampler.kill()
            sampler.close()
            channels.close()


def _watch_sampler(sampler: launch.Child, channels: Channels, started_at: float, seconds: float) -> SamplerFigures:
    counters = channels.metrics.samplers
    reader = channels.transitions[0].reader()

    def drain_until(moment: float) -> None:
        while time.monotonic() < moment:
            for rows in reader.read():
                rows.sum()  # touches every value, as copying it into a replay would
            for message in sampler.messages.read():
                if message["kind"] == "error":
                    raise ProcessFailed(sampler.name, message["reason"], message["traceback"])
            time.sleep(DRAIN_INTERVAL_S)

    while not counters["env_steps"][0]:
        drain_until(time.monotonic() + DRAIN_INTERVAL_S)
        if time.monotonic() > started_at + START_LIMIT_S:
            raise ProcessFailed(sampler.name, f"it made no step within {START_LIMIT_S:.0f} s")
    drain_until(time.monotonic() + SETTLE_S)
    steps, waited_s, began = (
        int(counters["env_steps"][0]),
        float(counters["ring_wait_s"][0]),
        time.monotonic(),
    )
    drain_until(began + seconds)
    steps, spent = int(counters["env_steps"][0]) - steps, time.monotonic() - began
    return SamplerFigures(
        sampling_hz=steps / spent,
        first_step_s=float(counters["first_step_at"][0]) - started_at,
        resident_mb=psutil.Process(sampler.process.pid).memory_info().rss / 2**20,
        ring_wait_s=float(counters["ring_wait_s"][0]) - waited_s,
    )
