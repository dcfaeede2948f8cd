"""Sends figures of a running run to experiment trackers: TensorBoard, and Weights & Biases with --wandb.

In: measurements and evaluations. Out: the same figures under the names that people know from other libraries, against
environment steps and true wall time. A tracker that fails is dropped with a warning, and the run continues; after a
failure of the disk it is tried again.
"""

from __future__ import annotations

import math
import os
import queue
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spreeze.config import Config
from spreeze.errors import ConfigError, one_line
from spreeze.host.own_files import make_own_folder
from spreeze.host.write_failures import WriteFailures
from spreeze.runs.records import Evaluation, Measurement
from spreeze.views.tensorboard import EventFile

FOLDER = "tensorboard"
STEPS, ELAPSED = "time/total_timesteps", "time/time_elapsed"
MAX_WAITING = 3600  # lines for Weights & Biases: one hour without a network
EVERY_LINE_S = 3600.0  # one measurement per second is 100 MB per day in an event file, more points than can be seen
CONNECT_S = 20.0  # wandb's own limit for a server that does not answer, 90 s, is longer than short runs
# At the end, and after an interrupt: who presses Ctrl-C wants it gone. Later data stays on the disk.
UPLOAD_GRACE_S, INTERRUPTED_GRACE_S = 30.0, 2.0


class Tracker(Protocol):
    """Receives figures of a run. An OSError loses these figures; other exceptions end the tracker, never the run."""

    @property
    def name(self) -> str:
        """Its name in warnings."""
        ...

    def log(self, scalars: Mapping[str, float], env_steps: int, wall_s: float) -> None:
        """Record figures of one moment."""
        ...

    def close(self, has_failed: bool, grace_s: float) -> None:
        """Finish, and make sure that all recorded figures are kept. grace_s: how long an upload may take."""
        ...


class TensorBoard:
    """An event file in the run folder, created with the first figures."""

    name = "TensorBoard"

    def __init__(self, folder: Path, started_at: float) -> None:
        self._folder = folder
        self._epoch = time.time() - (time.monotonic() - started_at)
        self._file: EventFile | None = None

    def log(self, scalars: Mapping[str, float], env_steps: int, wall_s: float) -> None:
        """Write figures to the file."""
        if self._file is not None and self._file.is_deleted:
            self._file.close()
            self._file = None
        if self._file is None:
            self._file = EventFile.in_folder(self._folder)
        self._file.write(scalars, env_steps, self._epoch + wall_s)

    def close(self, has_failed: bool, grace_s: float) -> None:
        """Close the file."""
        del has_failed, grace_s  # an event file has no such state, and waits for nobody
        if self._file is not None:
            self._file.close()


class WeightsAndBiases:
    """A run of `wandb`, in a separate thread: starting one takes seconds, and the network may be down."""

    name = "Weights & Biases"

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._run_dir, self._config = run_dir.absolute(), config
        self._waiting: queue.Queue[dict[str, float] | None] = queue.Queue(MAX_WAITING)
        self._failure: str | None = None
        self._exit_code = 0
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._thread.start()

    def log(self, scalars: Mapping[str, float], env_steps: int, wall_s: float) -> None:
        """Queue figures for the thread."""
        if self._failure is not None:
            raise RuntimeError(self._failure)
        self._waiting.put_nowait({**scalars, STEPS: env_steps, ELAPSED: wall_s})

    def close(self, has_failed: bool, grace_s: float) -> None:
        """Wait for the upload."""
        self._exit_code = 1 if has_failed else 0
        self._waiting.put_nowait(None)
        self._thread.join(grace_s)
        if self._failure is not None:
            raise RuntimeError(self._failure)
        if self._thread.is_alive():
            raise TimeoutError(f"the upload takes longer than {grace_s:.0f} s; `wandb sync` can finish it")

    def _work(self) -> None:
        try:
            run = self._begin()
            # Evaluations arrive after later steps, which wandb's own step counter does not allow.
            run.define_metric("*", step_metric=STEPS)
            while (line := self._waiting.get()) is not None:
                run.log(line)
            run.finish(exit_code=self._exit_code)
        except BaseException as error:  # the supervisor reports it, whatever it is
            self._failure = one_line(error)

    def _begin(self) -> Any:
        import wandb

        # It writes to a folder of this name in the run folder, by names that it makes up.
        make_own_folder(self._run_dir / "wandb", self._run_dir)
        wandb.setup(settings=wandb.Settings(silent=True))  # its messages would break our display
        # Its console capture would redirect ours, and our figures already include the machine's usage.
        settings = wandb.Settings(
            silent=True, console="off", x_disable_stats=True, reinit="create_new", init_timeout=CONNECT_S
        )
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "spreeze"),
            name=self._run_dir.name,
            dir=str(self._run_dir),
            config=dict(self._config),
            settings=settings,
        )


class Trackers:
    """All trackers of a run. Its methods return warnings, about trackers that were dropped or lost figures."""

    def __init__(self, trackers: Sequence[Tracker] = ()) -> None:
        self._trackers = list(trackers)
        self._due_s = 0.0
        self._write_failures = {
            tracker.name: WriteFailures(f"the figures for {tracker.name}", "they are lost, the run continues")
            for tracker in trackers
        }

    def measured(self, measurement: Measurement) -> list[str]:
        """Send a measurement: all of the first hour, then fewer and fewer, for runs of days."""
        if EVERY_LINE_S < measurement.wall_s < self._due_s:
            return []
        self._due_s = measurement.wall_s * (1 + 1 / EVERY_LINE_S)
        scalars = scalars_of_measurement(measurement)
        return self._send(lambda tracker: tracker.log(scalars, measurement.env_steps, measurement.wall_s))

    def evaluated(self, evaluation: Evaluation) -> list[str]:
        """Send an evaluation."""
        scalars = scalars_of_evaluation(evaluation)
        return self._send(lambda tracker: tracker.log(scalars, evaluation.env_steps, evaluation.wall_s))

    def close(self, has_failed: bool, is_interrupted: bool = False) -> list[str]:
        """Close all trackers."""
        grace_s = INTERRUPTED_GRACE_S if is_interrupted else UPLOAD_GRACE_S
        warnings = self._send(lambda tracker: tracker.close(has_failed, grace_s), is_last=True)
        self._trackers = []
        return warnings

    def _send(self, send: Callable[[Tracker], None], is_last: bool = False) -> list[str]:
        warnings: list[str | None] = []
        for tracker in list(self._trackers):
            try:
                send(tracker)
                warnings.append(self._write_failures[tracker.name].succeeded())
            except Exception as error:  # a full disk, a network, somebody else's library
                if isinstance(error, OSError) and not is_last:
                    warnings.append(self._write_failures[tracker.name].failed(error))
                    continue
                self._trackers.remove(tracker)
                warnings.append(f"{tracker.name} gets no more figures, the run continues: {one_line(error)}")
        return [warning for warning in warnings if warning is not None]


def make_trackers(config: Config, run_dir: Path, started_at: float) -> Trackers:
    """Make the trackers that the config enables."""
    trackers: list[Tracker] = []
    if config.output.tensorboard:
        trackers.append(TensorBoard(run_dir / FOLDER, started_at))
    if config.output.wandb:
        trackers.append(WeightsAndBiases(run_dir, config.flat()))
    return Trackers(trackers)


def require_trackers(config: Config) -> None:
    """Refuse a run whose trackers are not available, before anything is started."""
    if not config.output.wandb:
        return
    try:
        import wandb
    except ModuleNotFoundError:
        raise ConfigError("--wandb needs Weights & Biases, which is not installed: pip install wandb") from None
    except Exception as error:
        raise ConfigError(f"--wandb: importing wandb raised {type(error).__name__}: {one_line(error)}") from error
    if os.environ.get("WANDB_MODE") in ("offline", "disabled") or os.environ.get("WANDB_API_KEY"):
        return  # no login is needed, and wandb would print about it
    try:
        wandb.login(verify=False)  # here and not in the thread: it may ask the user for the key
    except Exception as error:
        raise ConfigError(
            f"--wandb: {one_line(error)} Or set WANDB_MODE=offline, and use `wandb sync` afterwards"
        ) from None


# --- names that people know: those of Stable-Baselines3, as far as it has them -------------------------------------


KNOWN_AS = {"temperature": "ent_coef", "temperature_loss": "ent_coef_loss"}


def scalars_of_measurement(measurement: Measurement) -> dict[str, float]:
    """Return the figures of a measurement by name, without those that are missing."""
    m = measurement
    scalars = {
        "rollout/ep_rew_mean": m.train_return,
        "rollout/episodes": m.episodes,
        "time/fps": m.sampling_hz,
        "time/updates_per_second": m.update_hz,
        "time/update_frames_per_second": m.update_frame_hz,
        STEPS: m.env_steps,
        ELAPSED: m.wall_s,
        **{f"train/{KNOWN_AS.get(name, name)}": value for name, value in m.figures.items()},
        "train/n_updates": m.updates,
        "train/updates_per_step": m.updates_per_step,
        "system/cpu_percent": m.cpu_percent,
        "system/gpu_percent": m.gpu_percent,
        "system/rss_bytes": m.rss_bytes,
        "system/gpu_bytes": m.gpu_bytes,
        "system/policy_lag_s": m.policy_lag_s,
        "system/batch_size": m.batch_size,
        "system/samplers": m.num_samplers,
        "system/replay_rows": m.replay_rows,
        "system/ring_fill": m.ring_fill,
        **{f"system/cores_{role}": cores for role, cores in m.cpu_by_role.items()},
    }
    return _finite(scalars)


def scalars_of_evaluation(evaluation: Evaluation) -> dict[str, float]:
    """Return the figures of an evaluation by name."""
    return _finite(
        {
            "eval/mean_reward": evaluation.mean_return,
            "eval/mean_ep_length": statistics.fmean(evaluation.lengths) if evaluation.lengths else None,
        }
    )


def _finite(scalars: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scalars.items() if value is not None and math.isfinite(value)}
