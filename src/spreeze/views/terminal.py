"""Shows a run: a live panel in a terminal, plain lines in a pipe or a file, nothing with --quiet."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
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
from spreeze.config.own_settings import is_built_in, short_name
from spreeze.host.shell import from_folder
from spreeze.runs.records import Evaluation, EvaluationUnderWay, Measurement
from spreeze.runs.result import Result
from spreeze.views.amounts import byte_text, clock, rate
from spreeze.views.closing import closing_lines
from spreeze.views.display import Display, QuietDisplay
from spreeze.views.machines import summarise_machines
from spreeze.views.panel import BORDER_AND_PADDING, Row, draw, figure, part, reason
from spreeze.views.punctuality import summarise_punctuality
from spreeze.views.under_way import describe_under_way

LINE_INTERVAL_S = 2.0
SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 32
MAX_FIGURES_SHOWN = 6  # of the algorithm: more would take too many lines
LABEL_WIDTH = 11  # of "Dashboard", the longest, and the gap behind it
FULL_HEIGHT = 24  # a terminal with fewer lines has none to spare
LINES_AROUND = 5  # above and below the rows: the frame, the state, the progress, and where the cursor is


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
        self.under_way: EvaluationUnderWay | None = None
        self.adaptation = ""
        self.address = ""

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        self.config, self.run_dir, self.replay_bytes = config, from_folder(self.here, run_dir), replay_bytes

    def show(self, measurement: Measurement) -> None:
        self.measurement, self.under_way = measurement, measurement.evaluating

    def evaluated(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)
        self.under_way = None

    def evaluating(self, under_way: EvaluationUnderWay) -> None:
        self.under_way = under_way

    def adapted(self, reason: str) -> None:
        self.adaptation = reason

    def show_address(self, address: str) -> None:
        self.address = address

    @property
    def best(self) -> Evaluation | None:
        return max(self.evaluations, key=lambda evaluation: evaluation.mean_return, default=None)

    def memory(self) -> str:
        """Describe the planned size of the replay, and its device."""
        assert self.config is not None
        learning = self.config.learning
        return f"{int(learning.replay_rows):,} transitions, {byte_text(self.replay_bytes)}, on {learning.device}"

    def task(self) -> str:
        """Describe what is trained."""
        assert self.config is not None
        algo = self.config.algo
        return f"{algo.upper() if is_built_in(algo) else short_name(algo)} on {self.config.env}"

    def workers(self) -> list[str]:
        """Describe who works on it."""
        assert self.config is not None
        learning, sampling = self.config.learning, self.config.sampling
        samplers = f"{sampling.samplers} sampler{'s' if sampling.samplers != 1 else ''}"
        where = f"learner on {learning.device}"
        if learning.is_split:
            where = f"critics on {learning.critic_device}, actor on {learning.actor_device}"
        elsewhere = ["samplers on other machines"] if self.config.cluster.cluster is not None else []
        return [f"{samplers} x {sampling.envs_per_sampler} environments", *elsewhere, where]


class LineDisplay(_RunDisplay):
    """Prints one line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._line_due_at = 0.0

    def begin(self, config: Config, run_dir: Path, replay_bytes: int) -> None:
        """Print what is trained, and the run folder."""
        super().begin(config, run_dir, replay_bytes)
        self._print(f"{self.task()}   {', '.join(self.workers())}")
        self._print(f"run folder: {self.run_dir}   replay: {self.memory()}")

    def show_address(self, address: str) -> None:
        """Print the address of the dashboard."""
        if address != self.address:
            self._print(f"dashboard: {address}")
        super().show_address(address)

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
            f"{measurement.env_steps:>9,} env steps ({rate(measurement.sampling_hz)}/s)  "
            f"{measurement.updates:>8,} updates ({rate(measurement.update_hz)}/s)  "
            f"ratio {measurement.updates_per_step:.3g}  CPU {measurement.cpu_percent:.0f}%  "
            f"{byte_text(measurement.rss_bytes)}{''.join(f'  {text}' for text in _rejected(measurement))}"
            f"{''.join(f'  {text}' for text in summarise_machines(measurement))}"
            f"{'  ' if (period := summarise_punctuality(measurement)) else ''}{period}"
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

    def show_address(self, address: str) -> None:
        """Keep the address of the dashboard on the panel."""
        if address != self.address and not self._fits(address, self.console.width - BORDER_AND_PADDING):
            self.note(f"dashboard: {address}")  # the panel has it without its token, which stopping a run needs
        super().show_address(address)
        if self._live is not None:
            self._live.refresh()

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
        head.add_row(Text(self._phase(), style="bold"), Text(f"{clock(elapsed_s)}   {wanted}", style="dim"))
        width, height = self.console.size
        padding = 1 if height >= FULL_HEIGHT else 0
        rows = draw(
            self._rows(width - BORDER_AND_PADDING), width - BORDER_AND_PADDING, height - 2 * padding - LINES_AROUND
        )
        return Panel(
            Group(head, ProgressBar(total=1.0, completed=fraction), Text(), rows),
            title=Text.assemble(("Spreeze", "bold"), f"  {self.task()}"),
            title_align="left",
            subtitle=Text(f"Ctrl-C ends the run   {self.run_dir}"),
            subtitle_align="left",
            box=box.ROUNDED,
            border_style="cyan",
            padding=(padding, 2),
        )

    def _phase(self) -> str:
        if self.measurement is None or self.measurement.env_steps == 0:
            return "starting"
        return "collecting experience" if self.measurement.updates == 0 else "learning"

    def _rows(self, width: int) -> list[Row]:
        workers = Row("Workers", [part(text) for text in self.workers()], may_go=True)
        rows = [*self._address(width), workers, Row("Return", self._returns()), *self._under_way(width)]
        if (m := self.measurement) is None:
            return [*rows, Row("Replay", [part(f"room for {self.memory()}")])]
        lag = "-" if m.policy_lag_s is None else f"{m.policy_lag_s:.2f} s"
        machine = [f"CPU {m.cpu_percent:.0f}%", f"memory {byte_text(m.rss_bytes)}"]
        if m.gpu_percent is not None and m.gpu_bytes is not None:
            machine.append(f"GPU {m.gpu_percent:.0f}%, {byte_text(m.gpu_bytes)}")
        taken = (f"{m.env_steps:,} in total", f"{m.episodes:,} episodes", *_rejected(m))
        made = (f"batch {m.batch_size}", f"{rate(m.update_frame_hz)} frames/s", f"{m.updates:,} in total")
        waits = (f"policy lag {lag}", f"waited: ring {m.ring_wait_s:.1f} s, ratio {m.ratio_wait_s:.1f} s")
        known = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in m.figures.items() if value is not None]
        adapting = Row("Adapting", reason(self.adaptation, width - LABEL_WIDTH), may_go=True)
        return [
            *rows,
            Row("Sampling", [figure(rate(m.sampling_hz), "env steps/s"), *_dim(taken)]),
            Row("Learning", [figure(rate(m.update_hz), "updates/s"), *_dim(made)]),
            Row("Ratio", [figure(f"{m.updates_per_step:.3g}", "updates/env step"), *_dim(waits)]),
            *([Row("Machines", _dim(machines), may_go=True)] if (machines := summarise_machines(m)) else []),
            *([Row("Period", [part(period)])] if (period := summarise_punctuality(m)) else []),
            *([Row("Update", _dim(known[:MAX_FIGURES_SHOWN]), may_go=True)] if known else []),
            Row("Machine", [part(text) for text in machine]),
            *([adapting] if self.adaptation else []),
        ]

    def _address(self, width: int) -> list[Row]:
        if not self.address:
            return []
        shown = self.address if self._fits(self.address, width) else self.address.partition("?")[0]
        return [Row("Dashboard", [part(shown, "bold")])]

    def _under_way(self, width: int) -> list[Row]:
        if (found := self.under_way) is None:
            return []
        mean = "" if found.mean_return is None else f"{found.mean_return:.1f}"
        text = describe_under_way(found.version, found.played, found.episodes, mean)
        return [Row("", reason(text, width - LABEL_WIDTH), may_go=True)]

    def _fits(self, address: str, width: int) -> bool:
        return len(address) <= width - LABEL_WIDTH

    def _returns(self) -> list[Text]:
        if not self.evaluations:
            return [part("no evaluation yet", "dim")]
        last, best = self.evaluations[-1], self.best
        assert best is not None
        has_bars = self.console.encoding.lower().startswith("utf")  # else each would be a question mark
        bars = sparkline([evaluation.mean_return for evaluation in self.evaluations])
        parts = [
            Text.assemble(
                (f"{last.mean_return:.1f}", "bold green"), f" {'±' if has_bars else '+-'} {last.std_return:.1f}"
            ),
            part(f"best {best.mean_return:.1f} at {best.wall_s:.0f} s"),
            *([part(bars, "green")] if has_bars else []),
        ]
        if self.measurement is not None and self.measurement.train_return is not None:
            parts.append(part(f"training {self.measurement.train_return:.1f}", "dim"))
        return parts


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
        candidates.append((elapsed_s / limits.max_seconds, f"of {clock(limits.max_seconds)}"))
    if limits.max_env_steps is not None and measurement is not None:
        candidates.append((measurement.env_steps / limits.max_env_steps, f"of {limits.max_env_steps:,} env steps"))
    if limits.max_updates is not None and measurement is not None:
        candidates.append((measurement.updates / limits.max_updates, f"of {limits.max_updates:,} updates"))
    fraction, wanted = max(candidates, default=(0.0, "until Ctrl-C"))
    return min(1.0, max(0.0, fraction)), wanted


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


def _dim(texts: Sequence[str]) -> list[Text]:
    return [part(text, "dim") for text in texts]


def _rejected(measurement: Measurement) -> list[str]:
    return [f"{measurement.rows_rejected:,} transitions rejected"] if measurement.rows_rejected else []
