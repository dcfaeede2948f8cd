"""The supervisor: starts, watches and stops every process of a run, and owns its run folder.

In: a config and an environment. Out: a `Result`, and a run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal, Protocol

from spreeze import child as children
from spreeze.adapt import defaults
from spreeze.adapt.hardware import UsageMeter, this_machine, usable_cores
from spreeze.channels import Channels
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.transitions import RowLayout, make_channel
from spreeze.channels.weights import WeightsChannel
from spreeze.child import Child, ChildSpec
from spreeze.config import Config
from spreeze.envs import EnvSpec, Spaces, check_exists, look_at, output_to
from spreeze.errors import ProcessFailed, RunFailed, UsageError, one_line
from spreeze.measurements import Evaluation, Measurement, Meter
from spreeze.plan import Plan, plan_memory, plan_processes
from spreeze.run_folder import RunFolder

StopReason = Literal[
    "target_return", "max_seconds", "max_env_steps", "max_updates", "interrupted", "terminated", "failed"
]

TICK_S = 0.05  # how late a limit may be noticed; a tick costs about 50 microseconds
METRICS_INTERVAL_S = 1.0
STOP_GRACE_S = 3.0  # a process that has not ended by then hangs in an environment's step
HANG_S = 120.0  # no heartbeat for so long: longer than the slowest reset, shorter than a user's patience


@dataclass(frozen=True)
class Result:
    """What a run reached."""

    run_dir: Path
    stop_reason: StopReason
    wall_s: float
    env_steps: int
    updates: int
    best_return: float | None
    """Best mean return of an evaluation."""
    time_to_target_s: float | None
    sampling_hz: float
    update_frame_hz: float


class Display(Protocol):
    """What shows the run to a person."""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Show that the run starts, and what its replay was planned to take."""
        ...

    def show(self, measurement: Measurement) -> None:
        """Show the latest measurement."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show an evaluation."""
        ...

    def warn(self, reason: str) -> None:
        """Show something that did not go as planned, but does not end the run."""
        ...

    def end(self, result: Result | None) -> None:
        """Show what was reached, or leave the terminal in order after a failure."""
        ...


def supervise(config: Config, env: EnvSpec, started_at: float, display: Display) -> Result:
    """Run a training from its first process to its summary."""
    with output_to(Path(os.devnull)):
        check_exists(env)  # it imports the user's modules, which may print
    plan = plan_processes(config, this_machine())
    with _Signals() as signals:
        folder = RunFolder.create(config)
        try:
            return Supervisor(plan, env, started_at, folder, display).run(signals)
        except UsageError:
            folder.discard()  # the run never began: there is nothing to keep
            raise
        except OSError as error:
            raise RunFailed(
                f"the system refused what the run needs: {one_line(error)} (disk full? `ulimit -n`? folder gone?)"
            ) from error


class Supervisor:
    """One run."""

    def __init__(self, plan: Plan, env: EnvSpec, started_at: float, folder: RunFolder, display: Display) -> None:
        self._plan, self._env, self._started_at = plan, env, started_at
        self._folder, self._display = folder, display
        sampling = plan.config.sampling
        self._channels = Channels(
            tuple(make_channel(sampling.transport, f"ring-{i}") for i in range(int(sampling.samplers))),
            WeightsChannel((folder.path / "weights").absolute()),
            MetricsChannel(),
            ControlChannel(),
        )
        self._children: list[Child] = []
        self._meter = Meter(self._channels.metrics, UsageMeter(), started_at, sampling.warmup_steps)
        self._mean_rates = (0.0, 0.0)
        self._best_return = -math.inf
        self._time_to_target_s: float | None = None

    def run(self, signals: _Signals) -> Result:
        """Start everything, watch until a limit is reached, stop everything, sum up."""
        try:
            stop_reason = self._start_and_watch(signals)
        except UsageError:
            self._end_children(signals)
            self._display.end(None)
            raise
        except BaseException as error:
            self._end_children(signals)
            self._display.end(None)
            with contextlib.suppress(OSError):  # a full disk may be why we are here
                if isinstance(error, ProcessFailed):
                    self._record_event("error", error.reason, role=error.role, traceback=error.traceback)
                self._summarise("failed")
            raise
        self._end_children(signals)
        result = self._summarise(stop_reason)
        self._display.end(result)
        return result

    def _start_and_watch(self, signals: _Signals) -> StopReason:
        try:
            self._start_children()
            with signals.raising_after(0):  # a constructor may take long, or hang
                spaces = look_at(self._env, self._folder.path / "logs" / "supervisor.log")
            self._plan_memory_and_go(spaces)
            self._display.begin(self._plan.config, self._folder.path, self._replay_bytes(spaces))
            return self._watch(signals)
        except KeyboardInterrupt:
            return signals.stop_reason or "interrupted"

    # --- start -------------------------------------------------------------------------------------------------

    def _start_children(self) -> None:
        """Start all processes; they import what they need while the environment is looked at."""
        threads = self._plan.config.learning.learner_threads
        most = max(defaults.learner_thread_candidates(usable_cores())) if threads == "auto" else threads
        self._start_child("learn", 0, most)  # first, because importing torch takes longest
        for index in range(len(self._channels.transitions)):
            self._start_child("sample", index, 1)
        self._start_child("evaluate", 0, 1)

    def _start_child(self, role: children.Role, index: int, threads: int) -> None:
        slot = len(self._children)
        self._channels.control.beat(slot)  # its silence counts from here
        log_path = self._folder.path / "logs" / f"{children.name_of(role, index).replace(' ', '-')}.log"
        self._children.append(children.start(role, index, slot, self._channels, log_path, threads))

    def _plan_memory_and_go(self, spaces: Spaces) -> None:
        layout = RowLayout(spaces.observation_size, spaces.action_size)
        self._plan = plan_memory(self._plan, layout, this_machine())
        config = self._plan.config
        for channel in self._channels.transitions:
            channel.allocate(layout, int(config.sampling.ring_rows))
        self._folder.write("config.json", config.flat())
        for choice in self._plan.choices:
            self._record_event("choice", choice.reason, setting=choice.setting, value=choice.value)
        for child in self._children:
            self._channels.control.beat(child.slot)  # it could not before: making an environment may have taken long
            child.send_spec(
                ChildSpec(
                    index=child.index,
                    slot=child.slot,
                    config=config,
                    env=self._env,
                    spaces=spaces,
                    run_dir=self._folder.path.absolute(),
                    started_at=self._started_at,
                    channels=self._channels,
                )
            )

    def _replay_bytes(self, spaces: Spaces) -> int:
        layout = RowLayout(spaces.observation_size, spaces.action_size)
        return int(self._plan.config.learning.replay_rows) * layout.row_bytes

    # --- watch -------------------------------------------------------------------------------------------------

    def _watch(self, signals: _Signals) -> StopReason:
        metrics_due_at = time.monotonic() + METRICS_INTERVAL_S
        while True:
            self._read_messages()
            self._require_children_alive()
            if (now := time.monotonic()) >= metrics_due_at:
                # After a pause of the machine, one line and not one for each second missed.
                metrics_due_at = max(metrics_due_at + METRICS_INTERVAL_S, now)
                self._measure()
            reason = signals.stop_reason or self._limit_reached()
            if reason is not None:
                return reason
            time.sleep(TICK_S)  # the supervisor waits for nothing in particular, at little cost

    def _read_messages(self) -> None:
        for child in self._children:
            for message in child.messages.read():
                kind = message.pop("kind")
                if kind == "ready":
                    child.is_ready = True
                elif kind == "evaluation":
                    self._take_evaluation(Evaluation(**message))
                elif kind == "event":
                    event, reason = message.pop("event"), message.pop("reason")
                    self._record_event(event, reason, role=child.name, **message)
                    if event == "warning":
                        self._display.warn(reason)
                elif kind == "error":
                    raise ProcessFailed(child.name, message["reason"], message["traceback"])

    def _take_evaluation(self, evaluation: Evaluation) -> None:
        self._folder.append("evaluations", dataclasses.asdict(evaluation))
        self._best_return = max(self._best_return, evaluation.mean_return)
        target = self._plan.config.limits.target_return
        if target is not None and evaluation.mean_return >= target and self._time_to_target_s is None:
            self._time_to_target_s = evaluation.wall_s
        self._display.evaluated(evaluation)

    def _require_children_alive(self) -> None:
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                self._read_messages()  # its last words, if it had any, say more than its exit code
                how = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"
                raise ProcessFailed(child.name, f"{how}; its output is in {child.log_path}")
            if self._channels.control.silence_s(child.slot) > HANG_S:
                raise ProcessFailed(
                    child.name,
                    f"it has shown no sign of life for {HANG_S:.0f} s: an environment's reset or step may hang",
                )

    def _limit_reached(self) -> StopReason | None:
        limits = self._plan.config.limits
        learner = self._channels.metrics.learner[0]
        if self._time_to_target_s is not None:
            return "target_return"
        if limits.max_updates is not None and learner["updates"] >= limits.max_updates:
            return "max_updates"
        if limits.max_env_steps is not None and learner["rows_consumed"] >= limits.max_env_steps:
            return "max_env_steps"
        if limits.max_seconds is not None and time.monotonic() - self._started_at >= limits.max_seconds:
            return "max_seconds"
        return None

    def _measure(self) -> None:
        pids = [os.getpid(), *(child.process.pid for child in self._children)]
        measurement = self._meter.measure(len(self._channels.transitions), pids)
        self._folder.append("metrics", dataclasses.asdict(measurement))
        self._display.show(measurement)

    def _record_event(self, kind: str, reason: str, **details: object) -> None:
        wall_s = round(time.monotonic() - self._started_at, 3)
        self._folder.append("events", {"wall_s": wall_s, "kind": kind, "reason": reason, **details})

    # --- end ---------------------------------------------------------------------------------------------------

    def _end_children(self, signals: _Signals) -> None:
        """Ask all processes to end, wait a little, and kill what is left. A second Ctrl-C shortens the wait."""
        self._mean_rates = self._meter.mean_rates()  # before the stopping, which is not training
        self._channels.control.stop()
        with contextlib.suppress(KeyboardInterrupt), signals.raising_after(min(1, signals.count)):
            deadline = time.monotonic() + STOP_GRACE_S
            waiting = [child for child in self._children if child.is_ready]
            while waiting and time.monotonic() < deadline:
                waiting = [child for child in waiting if child.process.poll() is None]
                time.sleep(0.01)  # for the processes that end now, and need the core to do so
        for child in self._children:
            child.kill()
        with contextlib.suppress(ProcessFailed):  # what went wrong after the stop changes nothing any more
            self._read_messages()
        for child in self._children:
            child.close()
        self._channels.close()  # counters stay readable: the memory is still mapped

    def _summarise(self, stop_reason: StopReason) -> Result:
        learner = self._channels.metrics.learner[0]
        sampling_hz, update_frame_hz = self._mean_rates
        result = Result(
            run_dir=self._folder.path,
            stop_reason=stop_reason,
            wall_s=round(time.monotonic() - self._started_at, 3),
            env_steps=int(learner["rows_stored"]),
            updates=int(learner["updates"]),
            best_return=None if self._best_return == -math.inf else self._best_return,
            time_to_target_s=self._time_to_target_s,
            sampling_hz=round(sampling_hz, 1),
            update_frame_hz=round(update_frame_hz, 1),
        )
        summary = dataclasses.asdict(result)
        del summary["run_dir"]  # the folder may be moved; the summary moves with it
        self._folder.write("summary.json", summary)
        return result


class _Signals:
    """Ctrl-C, SIGTERM and a closed terminal end a run in order; a second one cuts the waiting short.

    They are noted for the watcher to look at, and interrupt nothing halfway, except where waiting may be long.
    """

    _REASONS: ClassVar[dict[int, StopReason]] = {
        signal.SIGINT: "interrupted",
        signal.SIGTERM: "terminated",
        signal.SIGHUP: "terminated",
    }

    def __init__(self) -> None:
        self.stop_reason: StopReason | None = None
        self.count = 0
        self._raise_above = math.inf
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        # Only the main thread may set handlers; elsewhere the program's own stay in force.
        if threading.current_thread() is threading.main_thread():
            for number in self._REASONS:
                # Under nohup, SIGHUP stays ignored. Not so SIGINT, which shells ignore for what a script starts with
                # &: there it is sent on purpose.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was set from C

    @contextlib.contextmanager
    def raising_after(self, count: int) -> Iterator[None]:
        """Within this block, more signals than this in all raise KeyboardInterrupt."""
        try:
            self._raise_above = count
            if self.count > count:
                raise KeyboardInterrupt
            yield
        finally:
            self._raise_above = math.inf

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.stop_reason = self.stop_reason or self._REASONS[number]
        if self.count > self._raise_above:
            raise KeyboardInterrupt
