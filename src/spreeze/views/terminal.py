"""Shows a run: a live panel in a terminal, plain lines in a pipe or a file, nothing with --quiet."""

from __future__ import annotations

import math
import shutil
import sys
import time
from itertools import pairwise
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spreeze.config import Config, LimitsConfig
from spreeze.config.env_spec import CALLABLE_MARK
from spreeze.config.own_settings import is_built_in, short_name
from spreeze.host.shell import for_shell, from_folder
from spreeze.runs.checkpoint_format import newest_checkpoints
from spreeze.runs.records import Evaluation, Measurement
from spreeze.runs.result import Result
from spreeze.views.display import Display, QuietDisplay

LINE_INTERVAL_S = 2.0
SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 32
MAX_FIGURES_SHOWN = 6  # of the algorithm: more would not fit into a line


def make_display(config: Config) -> Display:
    """Choose how to show a run."""
    if config.output.quiet:
        return QuietDisplay()
    console = Console(highlight=False)
    return LiveDisplay(console) if console.is_terminal and not console.is_dumb_terminal else LineDisplay(console)


class _RunDisplay:
    """The state of a run that both displays show."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.here = Path.cwd()  # before an environment in this process can change it
        self.config: Config | None = None
        self.run_dir = Path()
        self.replay_bytes = 0
        self.began_at = time.monotonic()
        self.measurement: Measurement | None = None
        self.evaluations: list[Evaluation] = []
        self.adaptation = ""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        self.config, self.run_dir, self.replay_bytes = config, from_folder(self.here, run_dir), replay_bytes

    def show(self, measurement: Measurement) -> None:
        self.measurement = measurement

    def evaluated(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def adapted(self, reason: str) -> None:
        self.adaptation = reason

    @property
    def best(self) -> Evaluation | None:
        return max(self.evaluations, key=lambda evaluation: evaluation.mean_return, default=None)

    def memory(self) -> str:
        """Describe the planned size of the replay, and its device."""
        assert self.config is not None
        learning = self.config.learning
        return f"{int(learning.replay_rows):,} transitions, {_bytes(self.replay_bytes)}, on {learning.device}"

    def title(self) -> str:
        assert self.config is not None
        algo, learning, sampling = self.config.algo, self.config.learning, self.config.sampling
        samplers = f"{sampling.samplers} sampler{'s' if sampling.samplers != 1 else ''}"
        where = f"learner on {learning.device}"
        if learning.is_split:
            where = f"critics on {learning.critic_device}, actor on {learning.actor_device}"
        return (
            f"{algo.upper() if is_built_in(algo) else short_name(algo)} on {self.config.env}   "
            f"{samplers} x {sampling.envs_per_sampler} environments, {where}"
        )


class LineDisplay(_RunDisplay):
    """Prints one line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._line_due_at = 0.0

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Print what is trained, and the run folder."""
        super().begin(config, run_dir, replay_bytes)
        self._print(self.title())
        self._print(f"run folder: {self.run_dir}   replay: {self.memory()}")

    def show(self, measurement: Measurement) -> None:
        """Print the latest figures, if the last line is LINE_INTERVAL_S old."""
        super().show(measurement)
        if measurement.wall_s < self._line_due_at:
            return
        self._line_due_at = measurement.wall_s + LINE_INTERVAL_S
        evaluation = f"{self.evaluations[-1].mean_return:.1f}" if self.evaluations else "-"
        training = "-" if measurement.train_return is None else f"{measurement.train_return:.1f}"
        self._print(
            f"{measurement.wall_s:7.1f} s  eval return {evaluation:>8}  train return {training:>8}  "
            f"{measurement.env_steps:>9,} env steps ({_rate(measurement.sampling_hz)}/s)  "
            f"{measurement.updates:>8,} updates ({_rate(measurement.update_hz)}/s)  "
            f"ratio {measurement.updates_per_step:.3g}  CPU {measurement.cpu_percent:.0f}%  "
            f"{_bytes(measurement.rss_bytes)}{_rejected(measurement)}"
        )

    def adapted(self, reason: str) -> None:
        """Print a change or finding of the adaptation."""
        super().adapted(reason)
        self._print(f"adapting: {reason}")

    def warn(self, reason: str) -> None:
        """Print a problem."""
        self._print(f"warning: {reason}")

    def note(self, text: str) -> None:
        """Print a notice."""
        self._print(text)

    def end(self, result: Result | None) -> None:
        """Print the result."""
        if result is not None:
            for line in closing_lines(result, self.config, self.best, self.here):
                self._print(line.plain)

    def _print(self, line: str) -> None:
        # Not wrapped: a pipe has no width.
        self.console.print(Text(line), soft_wrap=True)
        self.console.file.flush()


class LiveDisplay(_RunDisplay):
    """One panel that is redrawn four times per second."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Draw the panel."""
        super().begin(config, run_dir, replay_bytes)
        self._live = Live(get_renderable=self.panel, console=self.console, refresh_per_second=4, transient=False)
        self._live.start()

    def warn(self, reason: str) -> None:
        """Print a problem above the panel."""
        self.console.print(Text(f"warning: {reason}", style="yellow"), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a notice above the panel."""
        self.console.print(Text(text, style="bold"), soft_wrap=True)

    def end(self, result: Result | None) -> None:
        """Leave the last panel on the screen and print the result."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if result is not None:
            for line in closing_lines(result, self.config, self.best, self.here):
                self.console.print(line, soft_wrap=True)

    def panel(self) -> RenderableType:
        """Draw the current state of the run."""
        assert self.config is not None
        elapsed_s = time.monotonic() - self.began_at
        if self.measurement is not None:
            elapsed_s = max(self.measurement.wall_s, elapsed_s)
        fraction, wanted = progress(self.config.limits, elapsed_s, self.measurement, self.evaluations)
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right")
        head.add_row(Text(self._phase(), style="bold"), Text(f"{_clock(elapsed_s)}   {wanted}", style="dim"))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="cyan", no_wrap=True)
        rows.add_column()
        for label, text in self._figures():
            rows.add_row(label, text)
        return Panel(
            Group(head, ProgressBar(total=1.0, completed=fraction), Text(), rows),
            title=Text.assemble(("Spreeze", "bold"), f"  {self.title()}"),
            title_align="left",
            subtitle=Text(f"{self.run_dir}   Ctrl-C ends the run"),
            subtitle_align="left",
            box=box.ROUNDED,
            border_style="cyan",
            padding=(1, 2),
        )

    def _phase(self) -> str:
        if self.measurement is None or self.measurement.env_steps == 0:
            return "starting"
        return "collecting experience" if self.measurement.updates == 0 else "learning"

    def _figures(self) -> list[tuple[str, Text]]:
        figures = [("Return", self._returns())]
        m = self.measurement
        if m is None:
            return [*figures, ("Replay", Text(f"room for {self.memory()}"))]
        lag = "-" if m.policy_lag_s is None else f"{m.policy_lag_s:.2f} s"
        machine = f"CPU {m.cpu_percent:.0f}%   memory {_bytes(m.rss_bytes)}"
        if m.gpu_percent is not None and m.gpu_bytes is not None:
            machine += f"   GPU {m.gpu_percent:.0f}%, {_bytes(m.gpu_bytes)}"
        waits = f"   waited: ring {m.ring_wait_s:.1f} s, ratio {m.ratio_wait_s:.1f} s"
        return [
            *figures,
            (
                "Sampling",
                _figure(
                    _rate(m.sampling_hz),
                    "env steps/s",
                    f"{m.env_steps:,} in total, {m.episodes:,} episodes{_rejected(m)}",
                ),
            ),
            (
                "Learning",
                _figure(
                    _rate(m.update_hz),
                    "updates/s",
                    f"batch {m.batch_size}, {_rate(m.update_frame_hz)} frames/s, {m.updates:,} in total",
                ),
            ),
            ("Ratio", _figure(f"{m.updates_per_step:.3g}", "updates/env step", f"policy lag {lag}{waits}")),
            *([("Update", _update_figures(m))] if any(value is not None for value in m.figures.values()) else []),
            ("Machine", Text(machine)),
            *([("Adapting", Text(self.adaptation, style="dim"))] if self.adaptation else []),
        ]

    def _returns(self) -> Text:
        if not self.evaluations:
            return Text("no evaluation yet", style="dim")
        last, best = self.evaluations[-1], self.best
        assert best is not None
        text = Text()
        text.append(f"{last.mean_return:.1f}", style="bold green")
        text.append(f" ± {last.std_return:.1f}   best {best.mean_return:.1f} at {best.wall_s:.0f} s   ")
        text.append(sparkline([evaluation.mean_return for evaluation in self.evaluations]), style="green")
        if self.measurement is not None and self.measurement.train_return is not None:
            text.append(f"   training {self.measurement.train_return:.1f}", style="dim")
        return text


def progress(
    limits: LimitsConfig, elapsed_s: float, measurement: Measurement | None, evaluations: list[Evaluation]
) -> tuple[float, str]:
    """Return the progress towards the nearest limit, from 0 to 1, and that limit as text."""
    candidates: list[tuple[float, str]] = []
    if limits.target_return is not None:
        returns = [evaluation.mean_return for evaluation in evaluations]
        distance = limits.target_return - returns[0] if returns else 0.0
        fraction = (max(returns) - returns[0]) / distance if distance > 0 else 0.0
        candidates.append((fraction, f"to return {limits.target_return:g}"))
    if limits.max_seconds is not None:
        candidates.append((elapsed_s / limits.max_seconds, f"of {_clock(limits.max_seconds)}"))
    if limits.max_env_steps is not None and measurement is not None:
        candidates.append((measurement.env_steps / limits.max_env_steps, f"of {limits.max_env_steps:,} env steps"))
    if limits.max_updates is not None and measurement is not None:
        candidates.append((measurement.updates / limits.max_updates, f"of {limits.max_updates:,} updates"))
    fraction, wanted = max(candidates, default=(0.0, "until Ctrl-C"))
    return min(1.0, max(0.0, fraction)), wanted


def closing_lines(result: Result, config: Config | None, best: Evaluation | None, here: Path) -> list[Text]:
    """Return the result, the run folder, and the next command. here: the user's folder."""
    reasons = {
        "target_return": "Solved",
        "max_seconds": "Time is up",
        "max_env_steps": "All environment steps taken",
        "max_updates": "All updates made",
        "measured": "All settings measured",
        "stopped": "Stopped from the dashboard",
        "interrupted": "Interrupted",
        "terminated": "Terminated",
        "failed": "Failed",
    }
    what = Text(f"{reasons[result.stop_reason]} after {result.wall_s:.1f} s", style="bold")
    if result.checkpoint_s > 1:
        what.append(f"; the last checkpoint took {result.checkpoint_s:.1f} s more")
    if result.stop_reason == "target_return" and config is not None:
        what.append(f": return {config.limits.target_return:g} reached at {result.time_to_target_s:.1f} s")
    lines = [what]
    if best is not None:
        spread = f"{best.mean_return:.1f} ± {best.std_return:.1f}"
        lines.append(Text(f"  best return {spread} over {len(best.returns)} episodes"))
    if left_out := result.evaluations_left_out:
        which = "1 evaluation does" if left_out == 1 else f"{left_out:,} evaluations do"
        lines.append(Text(f"  {which} not count: a return was not finite, or beyond all sense", style="yellow"))
    lines.append(
        Text(
            f"  {result.env_steps:,} env steps ({_rate(result.sampling_hz)}/s), {result.updates:,} updates "
            f"({_rate(result.update_frame_hz)} frames/s)"
        )
    )
    run = from_folder(here, result.run_dir)
    lines.append(Text(f"  run folder {run}"))
    if result.stop_reason in ("interrupted", "terminated", "stopped") and newest_checkpoints(
        result.run_dir / "checkpoint"
    ):
        lines.append(Text(f"Next: {program(here)} resume {for_shell(run)}", style="cyan"))
    elif best is not None:
        made_by_callable = config is not None and config.env.endswith(CALLABLE_MARK)
        call = f"spreeze.load_policy({str(run)!r})(observation)"
        command = f"{program(here)} evaluate {for_shell(run)}"
        lines.append(Text(f"Next: {call if made_by_callable else command}", style="cyan"))
    return lines


def program(here: Path) -> str:
    """Return how the user can call spreeze: `make train` installs it in a folder that is not on the path."""
    if shutil.which("spreeze") or not Path(sys.argv[0]).name.startswith("spreeze"):
        return "spreeze"
    return for_shell(from_folder(here, Path(sys.argv[0])))


def sparkline(values: list[float]) -> str:
    """Draw values as a line of bars, the newest at the right."""
    # Each bar is the mean of its share of the values, so that the whole run is visible.
    buckets = min(SPARKLINE_WIDTH, len(values))
    edges = [round(i * len(values) / buckets) for i in range(buckets + 1)] if buckets else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    drawn = [mean for mean in means if math.isfinite(mean)]
    low, span = min(drawn, default=0.0), (max(drawn, default=0.0) - min(drawn, default=0.0)) or 1.0
    top = len(SPARKLINE_BARS) - 1
    return "".join(SPARKLINE_BARS[round((mean - low) / span * top)] if math.isfinite(mean) else " " for mean in means)


def _figure(value: str, unit: str, more: str) -> Text:
    text = Text()
    text.append(f"{value:>7}", style="bold")
    text.append(f" {unit}   ")
    text.append(more, style="dim")
    return text


def _update_figures(measurement: Measurement) -> Text:
    known = [(name, value) for name, value in measurement.figures.items() if value is not None]
    return Text(
        "   ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in known[:MAX_FIGURES_SHOWN]), "dim"
    )


def _rejected(measurement: Measurement) -> str:
    return f"  {measurement.rows_rejected:,} transitions rejected" if measurement.rows_rejected else ""


def _rate(per_second: float) -> str:
    if per_second >= 1e6:
        return f"{per_second / 1e6:.2f}M"
    if per_second >= 10_000:
        return f"{per_second / 1e3:.1f}k"
    return f"{per_second:,.0f}"


def _bytes(count: int) -> str:
    return f"{count / 2**30:.2f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
