"""`spreeze bench throughput`: environment steps and updates per second of a training, compared with upper limits.

In turn: a real training, over a window after its first update; bare environment loops on all cores at once, the upper
limit of sampling on the machine; and the learner without the rest of a run.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from spreeze.channels.weights import read_weights, version_path
from spreeze.commands.bench import spread
from spreeze.commands.bench.machine import write_benchmark
from spreeze.commands.bench.raw_loop import measure_raw_loops
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.own_settings import AUTO, FIRST_GUESS
from spreeze.environments.facts import find_spaces
from spreeze.errors import ConfigError, ProcessFailed, RunFailed
from spreeze.host.hardware import usable_cores
from spreeze.host.json_text import json_text
from spreeze.host.output_files import require_writable
from spreeze.host.programs import python, python_path
from spreeze.host.threads import thread_variables
from spreeze.runs.records import Measurement
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.watch import METRICS_INTERVAL_S
from spreeze.views.display import QuietDisplay

SETTLE_S = 2.0  # after the first update: the first ones are slow, and samplers end the random warm-up
START_LIMIT_S = 120.0  # to the first update; a run that takes longer hangs

# In a separate process: torch is imported there, not here, under the same conditions as in a run's learner.
_LEARNER_ALONE = """
import json, sys
from spreeze.commands.bench.learner import measure_learner
asked = json.loads(sys.argv[1])
print(measure_learner(**{**asked, "hidden": tuple(asked["hidden"])}))
"""


@dataclass(frozen=True)
class TrainingFigures:
    """The results of a training, over the window. Rates without `mean` are medians over its seconds."""

    samplers: int
    envs_per_sampler: int
    backend: str
    batch_size: int
    device: str
    learner_threads: int | str
    update_engine: str
    min_updates_per_step: float
    first_update_s: float
    """From the start of the command until the first updated policy was published."""
    window_s: float
    sampling_hz: float
    sampling_hz_mean: float
    update_hz: float
    update_hz_mean: float
    update_frame_hz: float
    update_frame_hz_mean: float
    ring_wait_share: float
    """Share of the samplers' time spent waiting for room in their channels."""
    ratio_wait_share: float
    """Share of the samplers' time spent waiting for the learner because of min_updates_per_step."""
    learner_wait_share: float
    """Share of the learner's time, as the next three: waiting for the warm-up or because of max_updates_per_step."""
    ingest_share: float
    publish_share: float
    report_share: float
    cpu_percent: float
    gpu_percent: float | None
    warnings: tuple[str, ...]
    """Warnings of the run, such as an engine that this machine cannot use."""
    measurements: tuple[Measurement, ...]
    """The window, one per second; the first is its beginning."""


@dataclass(frozen=True)
class ThroughputFigures:
    """All results. The fields of the JSON."""

    env: str
    seconds: float
    cores: int
    training: TrainingFigures
    raw_hz_each: list[float]
    raw_hz: float
    """Sum over all loops: sampling on all cores without policy, channel and learner."""
    raw_policy_hz: float
    """The same with loops that play the trained policy, whose own time does not count."""
    learner_alone_hz: float
    """Updates per second."""
    ratio_to_raw: float
    ratio_to_used_cores: float
    """sampling_hz divided by the rate of bare loops on as many cores as there are samplers."""
    ratio_to_used_cores_with_policy: float
    """The same, for bare loops that play the policy."""
    ratio_to_learner_alone: float


def bench_throughput(config: Config, seconds: float, json_path: Path | None, started_at: float) -> None:
    """Measure all three, and print rates and ratios. started_at: of the command, for the time to the first update."""
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ConfigError(f"--seconds must be above 0, not {seconds}")
    json_path = require_writable(json_path)
    # The training comes first: it starts with the command, and refuses wrong settings at once.
    cores = usable_cores()
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.safetensors"
        run_config, training = measure_training(config, seconds, started_at, policy)
        raw_hz_each = measure_raw_loops(config.env, seconds, cores)
        raw_policy_hz = sum(measure_raw_loops(config.env, seconds, cores, policy))
    raw_hz, used = sum(raw_hz_each), min(1.0, training.samplers / cores)
    learner_alone_hz = _measure_learner_alone(run_config, training.batch_size, seconds)
    figures = ThroughputFigures(
        env=config.env,
        seconds=seconds,
        cores=cores,
        training=training,
        raw_hz_each=raw_hz_each,
        raw_hz=raw_hz,
        raw_policy_hz=raw_policy_hz,
        learner_alone_hz=learner_alone_hz,
        ratio_to_raw=training.sampling_hz / raw_hz,
        ratio_to_used_cores=training.sampling_hz / (raw_hz * used),
        ratio_to_used_cores_with_policy=training.sampling_hz / (raw_policy_hz * used),
        ratio_to_learner_alone=training.update_hz / learner_alone_hz,
    )
    print("\n".join(_lines(figures)))
    write_benchmark(json_path, "throughput", asdict(figures))


# --- training --------------------------------------------------------------------------------------------------


def measure_training(
    config: Config, seconds: float, started_at: float, policy: Path
) -> tuple[Config, TrainingFigures]:
    """Train as `spreeze train` does until the window is full; return the resolved config and the results.

    policy: where to write the trained policy.
    """
    display = _WindowDisplay(math.ceil(seconds / METRICS_INTERVAL_S), started_at)
    with tempfile.TemporaryDirectory() as folder:
        # The full window ends the run; the limit is for a run that never gets there.
        limit_s = START_LIMIT_S + 2 * seconds
        # Without adaptation: settings must not change within the window.
        config = config.replace(
            run_dir=str(Path(folder) / "run"), max_seconds=limit_s, adapt=False, checkpoint_interval_s=0
        )
        result = supervise(config, EnvSpec.of(config), started_at, display)
        published = sorted((Path(folder) / "run" / "weights").glob("policy-*.safetensors"))
        if published:
            shutil.copyfile(published[-1], policy)
    if display.config is None or not display.is_full:
        if result.stop_reason in ("interrupted", "terminated"):
            raise KeyboardInterrupt  # by the user, before the window was full
        raise RunFailed(f"{result.updates} updates within {limit_s:.0f} s are too few to measure {config.env} by")
    if not published:
        raise RunFailed(f"no version of the policy was published within {seconds:g} s: increase --seconds")
    return display.config, _figures(display.config, display)


class _WindowDisplay(QuietDisplay):
    """Collects the measurements of the window, then ends the run."""

    def __init__(self, windows: int, started_at: float) -> None:
        self._windows, self._started_at = windows, started_at
        self.config: Config | None = None
        self._run_dir = Path()
        self.first_update_s = math.inf
        self.measurements: list[Measurement] = []
        self.warnings: list[str] = []

    @property
    def is_full(self) -> bool:
        """Whether all measurements of the window are there, with the one at its beginning."""
        return len(self.measurements) > self._windows

    def begin(self, config: Config, run_dir: Path, _replay_bytes: int) -> None:
        """Keep the resolved config."""
        self.config, self._run_dir = config, run_dir

    def show(self, measurement: Measurement) -> None:
        """Add a measurement to the window, and interrupt the run when it is full."""
        if measurement.updates and self.first_update_s == math.inf:
            self.first_update_s = self._find_first_update_s(measurement)
        if measurement.wall_s >= self.first_update_s + SETTLE_S and (self.measurements or self._is_engine_ready()):
            self.measurements.append(measurement)
        if self.is_full:
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does, so that the supervisor ends the run

    def warn(self, reason: str) -> None:
        """Remember what the figures should be read with."""
        self.warnings.append(reason)

    def _is_engine_ready(self) -> bool:
        """Return whether updates have reached their final speed: kernels are compiled during the first ones."""
        if self.config is None or self.config.learning.update_engine != "fused":
            return True
        # The learner records an event about them, whether they work or not.
        return "fused kernels" in (self._run_dir / "events.jsonl").read_text()

    def _find_first_update_s(self, measurement: Measurement) -> float:
        """Return when the first policy was published, which is right after the first updates.

        Measurements are one second apart; the file has the exact time.
        """
        try:
            _, about = read_weights(version_path(self._run_dir / "weights", 1))
        except FileNotFoundError:
            return measurement.wall_s  # it is just being written, or the machine slept
        return round(float(about["published_at"]) - self._started_at, 3)


def _figures(config: Config, display: _WindowDisplay) -> TrainingFigures:
    measurements = display.measurements
    first, last, window = measurements[0], measurements[-1], measurements[1:]
    window_s = last.wall_s - first.wall_s
    durations_s = [now.wall_s - before.wall_s for before, now in pairwise(measurements)]

    def mean(rates: Sequence[float]) -> float:
        return sum(rate * s for rate, s in zip(rates, durations_s, strict=True)) / window_s

    def share(name: str) -> float:
        spent_s: float = getattr(last, name) - getattr(first, name)
        return spent_s / window_s

    sampling_hz = [measurement.sampling_hz for measurement in window]
    update_hz = [measurement.update_hz for measurement in window]
    update_frame_hz = [measurement.update_frame_hz for measurement in window]
    gpu_percent = [measurement.gpu_percent for measurement in window if measurement.gpu_percent is not None]
    return TrainingFigures(
        samplers=last.num_samplers,
        envs_per_sampler=int(config.sampling.envs_per_sampler),
        backend=config.environment.backend,
        batch_size=last.batch_size,
        device=config.learning.device,
        learner_threads=config.learning.learner_threads,
        update_engine=config.learning.update_engine,
        min_updates_per_step=float(config.learning.min_updates_per_step),
        first_update_s=display.first_update_s,
        window_s=round(window_s, 3),
        sampling_hz=statistics.median(sampling_hz),
        sampling_hz_mean=mean(sampling_hz),
        update_hz=statistics.median(update_hz),
        update_hz_mean=mean(update_hz),
        update_frame_hz=statistics.median(update_frame_hz),
        update_frame_hz_mean=mean(update_frame_hz),
        ring_wait_share=share("ring_wait_s") / last.num_samplers,
        ratio_wait_share=share("ratio_wait_s") / last.num_samplers,
        learner_wait_share=share("learner_wait_s"),
        ingest_share=share("ingest_s"),
        publish_share=share("publish_s"),
        report_share=share("report_s"),
        cpu_percent=mean([measurement.cpu_percent for measurement in window]),
        gpu_percent=statistics.fmean(gpu_percent) if gpu_percent else None,
        warnings=tuple(display.warnings),
        measurements=tuple(measurements),
    )


# --- the learner alone -----------------------------------------------------------------------------------------


def _measure_learner_alone(config: Config, batch_size: int, seconds: float) -> float:
    spaces = find_spaces(EnvSpec.of(config))
    asked = {
        "device": config.learning.device,
        "batch_size": batch_size,
        "obs_dim": spaces.observation_size,
        "act_dim": spaces.action_size,
        "hidden": config.learning.hidden,
        "algo": FIRST_GUESS if config.algo == AUTO else config.algo,
        "seconds": seconds,
    }
    threads = config.learning.learner_threads
    done = subprocess.run(  # noqa: S603 (a program of ours; what is asked is one word of JSON)
        python("-c", _LEARNER_ALONE, json_text(asked)),
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": python_path(),
            **thread_variables(usable_cores() if threads == "auto" else threads),
        },
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it exited with code {done.returncode}"]
        raise ProcessFailed("learner alone", last[0], done.stderr)
    return float(done.stdout.split()[-1])


# --- report ----------------------------------------------------------------------------------------------------


def _lines(figures: ThroughputFigures) -> list[str]:
    training, each = figures.training, figures.raw_hz_each
    window = training.measurements[1:]
    backends = {"envpool": "environments of EnvPool", "mujoco": "environments stepped together"}
    environments = backends.get(training.backend, "environments")
    samplers = f"{training.samplers} sampler{'s' if training.samplers != 1 else ''}"
    gpu = "" if training.gpu_percent is None else f", GPU {training.gpu_percent:.0f}%"
    rows = [
        (
            "training",
            f"{samplers} x {training.envs_per_sampler} {environments}, "
            f"batch {training.batch_size}, learner on {training.device}",
        ),
        (
            "sampling",
            f"{spread([m.sampling_hz for m in window])} env steps/s, mean {training.sampling_hz_mean:,.0f}",
        ),
        ("updates", f"{spread([m.update_hz for m in window])} updates/s, mean {training.update_hz_mean:,.0f}"),
        (
            "update frames",
            f"{spread([m.update_frame_hz for m in window])} frames/s, mean {training.update_frame_hz_mean:,.0f}",
        ),
        (
            f"bare loops on {figures.cores} cores",
            f"{figures.raw_hz:>9,.0f} env steps/s ({min(each):,.0f} to {max(each):,.0f} each)",
        ),
        ("the same, playing the policy", f"{figures.raw_policy_hz:>9,.0f} env steps/s, without the policy's time"),
        ("learner alone", f"{figures.learner_alone_hz:>9,.0f} updates/s"),
        (
            "sampling to bare loops",
            f"{figures.ratio_to_raw:.3f} of all cores, {figures.ratio_to_used_cores:.3f} of those that samplers use, "
            f"{figures.ratio_to_used_cores_with_policy:.3f} of those playing the policy",
        ),
        ("updates to learner alone", f"{figures.ratio_to_learner_alone:.3f}"),
        (
            "samplers waited",
            f"{training.ring_wait_share:.1%} of their time for room, {training.ratio_wait_share:.1%} for the learner",
        ),
        (
            "the learner's time",
            f"{training.ingest_share:.1%} ingestion, {training.publish_share:.1%} publishing, "
            f"{training.report_share:.1%} reporting, {training.learner_wait_share:.1%} waiting",
        ),
        ("machine", f"CPU {training.cpu_percent:.0f}%{gpu}"),
        ("first update", f"{training.first_update_s:.2f} s after the start of the command"),
        *(("warning", reason) for reason in training.warnings),
    ]
    return [f"{label:<32}{text}" for label, text in rows]
