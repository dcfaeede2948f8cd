from __future__ import annotations

import ast
import dataclasses
import io
import math
import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from spreeze.config import Config, LimitsConfig
from spreeze.config.env_spec import CALLABLE_MARK
from spreeze.runs.checkpoint_format import Manifest, describe, state_path, write_manifest
from spreeze.runs.records import ClusterFigures, Evaluation, EvaluationUnderWay, MachineFigures, Measurement
from spreeze.runs.result import Result, StopReason
from spreeze.views.closing import closing_lines
from spreeze.views.display import QuietDisplay
from spreeze.views.terminal import (
    SPARKLINE_BARS,
    SPARKLINE_WIDTH,
    LineDisplay,
    LiveDisplay,
    make_display,
    progress,
    sparkline,
)

CONFIG = Config("Pendulum-v1").replace(
    replay_rows=1_000_000, samplers=3, envs_per_sampler=16, device="cpu", max_seconds=60
)
RUN_DIR = Path("runs/pendulum")
HERE = Path("/home/somebody")
BRACKETS = Path("runs/[bold]a[/b] [1]")  # names that the markup of the display could take for its own

REPLAY_BYTES = 3 * 2**29
MEASUREMENT = Measurement(
    wall_s=12.5,
    env_steps=1_234_567,
    updates=89_012,
    episodes=345,
    sampling_hz=98_765.0,
    update_hz=432.0,
    update_frame_hz=3_538_944.0,
    batch_size=8192,
    num_samplers=3,
    updates_per_step=0.0721,
    policy_lag_s=0.31,
    replay_rows=1_000_000,
    ring_wait_s=1.5,
    ratio_wait_s=2.5,
    learner_wait_s=0.5,
    ingest_s=0.5,
    publish_s=0.25,
    report_s=0.125,
    actor_updates=0,
    actor_lag_updates=0,
    critic_lag_updates=0,
    exchange_s=0.0,
    actor_exchange_s=0.0,
    exchanged_bytes=0,
    train_return=-321.5,
    cpu_percent=87.0,
    gpu_percent=None,
    rss_bytes=3 * 2**29,
    gpu_bytes=None,
    rows_rejected=0,
    ring_fill=0.25,
    cpu_cores=(90.0, 84.0),
    cpu_by_role={"sampler": 1.1, "learner": 0.6},
    figures={"critic_loss": 1.0, "actor_loss": 2.0, "temperature": None},
)


def evaluation(mean_return: float, wall_s: float = 1.0) -> Evaluation:
    return Evaluation(
        wall_s=wall_s,
        env_steps=1000,
        updates=500,
        version=3,
        mean_return=mean_return,
        std_return=12.5,
        returns=(mean_return,) * 10,
        lengths=(200,) * 10,
    )


def result(stop_reason: StopReason = "max_seconds", run_dir: Path = RUN_DIR, **changes: Any) -> Result:
    reached = Result(
        run_dir=run_dir,
        stop_reason=stop_reason,
        wall_s=61.25,
        env_steps=1_234_567,
        updates=89_012,
        best_return=-150.25,
        time_to_target_s=42.5 if stop_reason == "target_return" else None,
        sampling_hz=98_765.0,
        update_frame_hz=3_538_944.0,
    )
    return dataclasses.replace(reached, **changes)


def text_console(width: int = 80, terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(), width=width, height=40, record=True, highlight=False, force_terminal=terminal, _environ={}
    )


def lines_of(console: Console) -> list[str]:
    return console.export_text(clear=False).splitlines()


# --- sparkline --------------------------------------------------------------------------------------------------


def test_sparkline_rises_with_its_values() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == SPARKLINE_BARS
    assert sparkline([7, 0]) == SPARKLINE_BARS[-1] + SPARKLINE_BARS[0]
    assert len(set(sparkline([3.0, 3.0, 3.0]))) == 1


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=500))
def test_sparkline_shows_the_whole_run_in_a_bounded_width(values: list[float]) -> None:
    drawn = sparkline(values)
    assert len(drawn) == min(SPARKLINE_WIDTH, len(values))
    assert set(drawn) <= set(SPARKLINE_BARS)


def test_sparkline_of_many_values_keeps_their_shape() -> None:
    drawn = sparkline([float(i) for i in range(1000)])
    heights = [SPARKLINE_BARS.index(bar) for bar in drawn]
    assert heights == sorted(heights)
    assert (heights[0], heights[-1]) == (0, len(SPARKLINE_BARS) - 1)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_sparkline_survives_returns_that_are_not_finite(odd: float) -> None:
    assert len(sparkline([1.0, odd, 3.0])) == 3


# --- progress ---------------------------------------------------------------------------------------------------


def test_progress_without_a_limit_says_how_to_end() -> None:
    assert progress(LimitsConfig(), 100.0, MEASUREMENT, []) == (0.0, "until Ctrl-C")


@pytest.mark.parametrize(
    ("limits", "elapsed_s", "fraction", "words"),
    [
        (LimitsConfig(max_seconds=100), 25.0, 0.25, "01:40"),
        (LimitsConfig(max_seconds=7200), 3600.0, 0.5, "2:00:00"),
        (LimitsConfig(max_seconds=10), 25.0, 1.0, "00:10"),
        (LimitsConfig(max_env_steps=2 * MEASUREMENT.env_steps), 1.0, 0.5, "env steps"),
        (LimitsConfig(max_updates=4 * MEASUREMENT.updates), 1.0, 0.25, "updates"),
        # The limit that is nearest counts.
        (LimitsConfig(max_seconds=100, max_updates=2 * MEASUREMENT.updates), 10.0, 0.5, "updates"),
        (LimitsConfig(max_seconds=100, max_updates=2 * MEASUREMENT.updates), 60.0, 0.6, "01:40"),
    ],
)
def test_progress_towards_limits(limits: LimitsConfig, elapsed_s: float, fraction: float, words: str) -> None:
    shown, wanted = progress(limits, elapsed_s, MEASUREMENT, [])
    assert shown == pytest.approx(fraction)
    assert words in wanted


@pytest.mark.parametrize(
    ("returns", "fraction"),
    [
        ([], 0.0),
        ([-1000.0], 0.0),
        ([-1000.0, -600.0], 0.5),
        ([-1000.0, -600.0, -900.0], 0.5),
        ([-1000.0, -100.0], 1.0),
    ],
)
def test_progress_towards_a_return_is_the_best_so_far(returns: list[float], fraction: float) -> None:
    evaluations = [evaluation(mean_return) for mean_return in returns]
    shown, wanted = progress(LimitsConfig(target_return=-200), 1.0, None, evaluations)
    assert shown == pytest.approx(fraction)
    assert "-200" in wanted


def test_progress_before_the_first_measurement() -> None:
    assert progress(LimitsConfig(max_updates=10, max_env_steps=10), 1.0, None, [])[0] == 0.0


# --- the closing lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_reason", get_args(StopReason))
def test_every_way_to_end_has_its_words(stop_reason: StopReason) -> None:
    config = CONFIG.replace(target_return=-200)
    lines = [line.plain for line in closing_lines(result(stop_reason), config, evaluation(-150.25), HERE)]
    assert "61.2" in lines[0] or "61.3" in lines[0]
    assert ("-200" in lines[0]) == (stop_reason == "target_return")
    text = "\n".join(lines)
    assert "-150.2" in text
    assert "1,234,567 env steps" in text
    assert "89,012 updates" in text
    assert "frames/s" in text
    assert lines[-1].endswith(f"evaluate {RUN_DIR}")


@pytest.mark.parametrize("name", ["a run", "it's", 'say "a"', "$(touch hit)", "a;b", "-f"])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_next_command_reaches_the_shell_with_the_folder_as_one_word(
    name: str, has_checkpoint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if has_checkpoint:
        checkpoints = tmp_path / name / "checkpoint"
        checkpoints.mkdir(parents=True)
        state = state_path(checkpoints, 1, "all")
        state.write_bytes(b"")
        write_manifest(checkpoints, Manifest(1, (describe(state),), (), 4, {"updates": 1}))
    ended = dataclasses.replace(result("interrupted" if has_checkpoint else "max_seconds"), run_dir=Path(name))
    command = closing_lines(ended, CONFIG, evaluation(-150.25), HERE)[-1].plain.removeprefix("Next: ")
    printed = subprocess.run(
        ["sh", "-c", f"spreeze() {{ printf '%s|' \"$@\"; }}; {command}"], capture_output=True, text=True, check=True
    )
    word = f"./{name}" if name.startswith("-") else name
    assert printed.stdout == f"{'resume' if has_checkpoint else 'evaluate'}|{word}|"


def test_folder_is_named_from_where_the_run_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(HERE / ".venv/bin/spreeze")])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # as an environment may do in a serial run
    for folder, shown in ((HERE / "runs" / "1", "runs/1"), (tmp_path / "1", str(tmp_path / "1"))):
        lines = closing_lines(dataclasses.replace(result(), run_dir=folder), CONFIG, evaluation(-150.25), HERE)
        assert [line.plain for line in lines[-2:]] == [
            f"  run folder {shown}",
            f"Next: .venv/bin/spreeze evaluate {shown}",
        ]


def test_next_call_in_python_names_the_folder() -> None:
    folder = Path('it\'s "mine"')
    ended = dataclasses.replace(result(), run_dir=folder)
    config = CONFIG.replace(env=f"make{CALLABLE_MARK}")
    call = closing_lines(ended, config, evaluation(-150.25), HERE)[-1].plain.removeprefix("Next: ")
    named = ast.parse(call, mode="eval").body.func.args[0].value  # type: ignore[attr-defined]
    assert Path(named) == folder


def test_ways_to_end_are_told_apart() -> None:
    config = CONFIG.replace(target_return=-200)
    firsts = {closing_lines(result(reason), config, None, HERE)[0].plain for reason in get_args(StopReason)}
    assert len(firsts) == len(get_args(StopReason))


def test_run_without_an_evaluation_has_nothing_to_evaluate() -> None:
    lines = [line.plain for line in closing_lines(result(best_return=None), CONFIG, None, HERE)]
    assert not any("best return" in line or "evaluate" in line for line in lines)
    assert any(str(RUN_DIR) in line for line in lines)


# --- lines, for logs and pipes ----------------------------------------------------------------------------------


def test_line_display_prints_whole_lines() -> None:
    console = text_console(width=30)
    display = LineDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.evaluated(evaluation(-150.25))
    display.show(MEASUREMENT)
    display.end(result())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "Pendulum-v1" in lines[0]
    assert "3 samplers x 16 environments" in lines[0]
    assert str(RUN_DIR) in lines[1]
    for figure in (
        "12.5 s",
        "-150.2",
        "-321.5",
        "1,234,567 env steps",
        "98.8k/s",
        "89,012 updates",
        "432/s",
        "1.50 GB",
    ):
        assert figure in lines[2]  # all in one line, however narrow the console thinks it is
    assert "61.2" in lines[3]


@pytest.mark.parametrize("kind", [LineDisplay, LiveDisplay])
@pytest.mark.parametrize(("rows", "is_shown"), [(0, False), (1234, True)])
def test_rejected_rows_are_shown_where_there_are_any(
    kind: type[LineDisplay | LiveDisplay], rows: int, is_shown: bool
) -> None:
    console = text_console(width=120)
    display = kind(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.show(dataclasses.replace(MEASUREMENT, rows_rejected=rows))
    display.end(None)
    assert ("1,234 transitions rejected" in "\n".join(lines_of(console))) == is_shown
    assert ("rejected" in "\n".join(lines_of(console))) == is_shown


def test_line_display_prints_now_and_then() -> None:
    console = text_console()
    display = LineDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    header = len(lines_of(console))
    for tenth in range(101):  # ten seconds, a measurement each tenth
        display.show(dataclasses.replace(MEASUREMENT, wall_s=tenth / 10))
    assert 2 <= len(lines_of(console)) - header <= 11


def test_line_display_without_episodes_or_evaluations() -> None:
    console = text_console()
    display = LineDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.show(dataclasses.replace(MEASUREMENT, train_return=None))
    assert re.search(r"eval return +- +train return +- ", lines_of(console)[-1])


def test_line_display_ends_silently_after_a_failure() -> None:
    console = text_console()
    LineDisplay(console).end(None)
    assert lines_of(console) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_names_with_brackets_are_shown_as_they_are(terminal: bool) -> None:
    console = text_console(width=200, terminal=terminal)
    display = LiveDisplay(console) if terminal else LineDisplay(console)
    display.begin(CONFIG.replace(env="pkg:smile:Robot[arm]-v0"), BRACKETS, REPLAY_BYTES)
    display.show(MEASUREMENT)
    display.end(result(run_dir=BRACKETS))
    text = "\n".join(lines_of(console))
    assert text.count(str(BRACKETS)) >= 2
    assert "pkg:smile:Robot[arm]-v0" in text


# --- the panel --------------------------------------------------------------------------------------------------


def panel_lines(width: int, display_actions: Any, config: Config = CONFIG) -> list[str]:
    console = text_console(width=width, terminal=True)
    display = LiveDisplay(console)
    display.begin(config, RUN_DIR, REPLAY_BYTES)
    display_actions(display)
    display.end(None)
    lines = lines_of(console)
    # The display is redrawn as it changes: the last panel is the one that stands.
    tops = [number for number, line in enumerate(lines) if line.startswith("╭")]
    return lines[tops[-1] :]


@pytest.mark.parametrize("width", [100, 60])
def test_panel_shows_rates_with_their_units(width: int) -> None:
    def actions(display: LiveDisplay) -> None:
        display.evaluated(evaluation(-900.0, wall_s=3))
        display.evaluated(evaluation(-150.25, wall_s=9))
        display.show(MEASUREMENT)

    lines = panel_lines(width, actions)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    assert re.search(r"Sampling +98\.8k env steps/s", text)
    assert re.search(r"Learning +432 updates/s", text)
    assert re.search(r"Ratio +0\.0721 updates/env step", text)
    assert "-150.2 ± 12.5" in text
    assert "best -150.2 at 9 s" in text
    assert "CPU 87%" in text
    assert "1.50 GB" in text
    assert "learning" in text
    assert "01:00" in text  # the limit
    assert "Pendulum-v1" in text
    assert "GPU" not in text


def under_way(mean_return: float | None) -> EvaluationUnderWay:
    return EvaluationUnderWay(12_345, 0 if mean_return is None else 3, 10, mean_return)


def test_panel_shows_how_far_an_evaluation_is_until_it_is_complete() -> None:
    def nothing_yet(display: LiveDisplay) -> None:
        display.evaluating(under_way(None))

    def one_more(display: LiveDisplay) -> None:
        display.evaluated(evaluation(-900.0))
        display.evaluating(under_way(-12.34))

    def complete(display: LiveDisplay) -> None:
        one_more(display)
        display.evaluated(evaluation(-150.25))

    def measured(display: LiveDisplay) -> None:
        one_more(display)
        display.show(MEASUREMENT)  # it was given up

    words = "evaluating version 12,345: 0 of 10 episodes"
    assert any(f"{words} " in line for line in panel_lines(80, nothing_yet))
    shown = "\n".join(panel_lines(80, one_more))
    assert "-900.0 ± 12.5" in shown
    assert "evaluating version 12,345: 3 of 10 episodes, mean so far -12.3" in shown
    for ended in (complete, measured):
        assert "evaluating" not in "\n".join(panel_lines(80, ended))


ADDRESS = "http://127.0.0.1:8420/?token=abcdefghijklmnopqrstuvwx"


def show_everything(display: LiveDisplay) -> None:
    display.show_address(ADDRESS)
    for i in range(40):
        display.evaluated(evaluation(-1150.25 + 20 * i, wall_s=1000.0 + i))
    display.adapted("kept samplers 4 -> 5 x 16 environments, batch 8192: objective +18.2%, after three tries " * 3)
    names = ("critic_loss", "actor_loss", "temperature_loss", "temperature", "q_mean", "entropy")
    figures = dict.fromkeys(names, -12.345678)
    more = {"gpu_percent": 100.0, "gpu_bytes": 140 * 2**30, "rows_rejected": 1234, "env_steps": 123_456_789}
    display.show(dataclasses.replace(MEASUREMENT, figures=figures, evaluating=under_way(-1370.25), **more))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50), (80, 16), (56, 40)])
def test_panel_breaks_no_figure_and_fits_the_terminal(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, _environ={})
    display = LiveDisplay(console)
    display.config, display.run_dir, display.replay_bytes = CONFIG, RUN_DIR, REPLAY_BYTES
    show_everything(display)
    with console.capture() as captured:
        console.print(display.panel())
    lines = re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).splitlines()
    assert all(len(line) == width for line in lines)
    assert len(lines) < height
    for shown in (
        ADDRESS if width >= 80 else "http://127.0.0.1:8420/ ",
        "-370.2 ± 12.5",
        "best -370.2 at 1039 s",
        "training -321.5",
        "98.8k env steps/s",
        "123,456,789 in total",
        "345 episodes",
        "1,234 transitions rejected",
        "432 updates/s",
        "batch 8192",
        "3.54M frames/s",
        "0.0721 updates/env step",
        "policy lag 0.31 s",
        "waited: ring 1.5 s, ratio 2.5 s",
        "memory 1.50 GB",
        "GPU 100%, 140.00 GB",
        *(
            (
                "temperature loss -12.3",
                "entropy -12.3",
                "3 samplers x 16 environments",
                "after",
                "evaluating version 12,345",
            )
            if height > 16
            else ()
        ),
    ):
        assert any(shown in line for line in lines), shown


def test_terminal_without_unicode_gets_no_question_marks() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=file, width=80, height=24, force_terminal=True, _environ={})
    display = LiveDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.evaluated(evaluation(-900.0))
    display.evaluated(evaluation(-150.25))
    display.show(MEASUREMENT)
    display.end(None)
    file.flush()
    shown = file.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "+- 12.5" in shown
    assert "?" not in shown.replace("\x1b[?25", "")


def test_panel_has_the_address_from_its_first_moment_to_the_last() -> None:
    console = text_console(width=80, terminal=True)
    display = LiveDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.show_address(ADDRESS)
    display.note("something that scrolls by")
    display.show(MEASUREMENT)
    display.end(None)
    panels = console.export_text(clear=False).split("╭")[1:]
    assert all(ADDRESS in panel for panel in panels[1:])  # the first was drawn before
    assert len(panels) > 1


def test_address_that_is_too_long_for_the_panel_is_printed_whole_above_it() -> None:
    console = text_console(width=60, terminal=True)
    display = LiveDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.show_address(ADDRESS)
    display.end(None)
    text = console.export_text(clear=False)
    assert text.count(ADDRESS) == 1
    assert "http://127.0.0.1:8420/ " in text.rpartition("╭")[2]


def test_line_display_prints_the_address_once() -> None:
    console = text_console(width=40)
    display = LineDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    for _ in range(2):
        display.show_address(ADDRESS)
    assert console.file.getvalue().count(ADDRESS) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("dashboard", [False, True])
def test_closing_lines_say_how_to_look_again(dashboard: bool) -> None:
    pytest.importorskip("nicegui")
    config = CONFIG.replace(dashboard=dashboard)
    lines = [line.plain for line in closing_lines(result(), config, evaluation(-150.25), HERE)]
    assert (f"Look: spreeze dashboard {RUN_DIR}" in lines) == dashboard
    assert lines[-1] == f"Next: spreeze evaluate {RUN_DIR}"


def test_panel_shows_the_gpu_if_there_is_one() -> None:
    measurement = dataclasses.replace(MEASUREMENT, gpu_percent=55.0, gpu_bytes=2**30)
    text = "\n".join(panel_lines(100, lambda display: display.show(measurement)))
    assert "GPU 55%, 1.00 GB" in text


def test_panel_says_what_the_run_is_doing() -> None:
    def phase(**counters: int) -> str:
        measurement = dataclasses.replace(MEASUREMENT, **counters) if counters else None
        actions = (lambda display: display.show(measurement)) if measurement else (lambda _display: None)
        return "\n".join(panel_lines(100, actions))

    assert "starting" in phase()
    assert "starting" in phase(env_steps=0, updates=0)
    assert "collecting experience" in phase(updates=0)
    assert "learning" in phase(updates=1)


def test_panel_before_anything_is_known() -> None:
    text = "\n".join(panel_lines(60, lambda _display: None))
    assert "no evaluation yet" in text
    assert "env steps/s" not in text


def test_panel_survives_returns_that_are_not_finite() -> None:
    def actions(display: LiveDisplay) -> None:
        display.evaluated(evaluation(-900.0))
        display.evaluated(evaluation(math.nan))
        display.show(MEASUREMENT)

    assert "env steps/s" in "\n".join(panel_lines(100, actions))


@pytest.mark.parametrize(
    ("sampling_hz", "shown"),
    [(0.0, "0 env"), (999.6, "1,000 env"), (12_345.0, "12.3k env"), (2_500_000.0, "2.50M env")],
)
def test_rates_are_short_and_readable(sampling_hz: float, shown: str) -> None:
    measurement = dataclasses.replace(MEASUREMENT, sampling_hz=sampling_hz)
    assert shown in "\n".join(panel_lines(100, lambda display: display.show(measurement)))


def test_live_display_prints_what_was_reached() -> None:
    console = text_console(width=100, terminal=True)
    display = LiveDisplay(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.evaluated(evaluation(-150.25))
    display.end(result())
    after_the_panel = "\n".join(lines_of(console)).rpartition("╰")[2]
    assert "61.2" in after_the_panel
    assert f"evaluate {RUN_DIR}" in after_the_panel


def test_live_display_that_never_began_can_end() -> None:
    console = text_console(terminal=True)
    LiveDisplay(console).end(None)
    assert lines_of(console) == []


# --- the choice -------------------------------------------------------------------------------------------------


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    display = make_display(CONFIG.replace(quiet=True))
    assert isinstance(display, QuietDisplay)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.evaluated(evaluation(1.0))
    display.show(MEASUREMENT)
    display.end(result())
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_pipe_gets_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    display = make_display(CONFIG)
    assert isinstance(display, LineDisplay)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", [LineDisplay, LiveDisplay])
def test_start_says_what_the_replay_takes_and_where(kind: type[LineDisplay | LiveDisplay]) -> None:
    console = Console(file=io.StringIO(), width=100, record=True)
    display = kind(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.end(None)
    assert "1,000,000 transitions, 1.50 GB, on cpu" in console.export_text()


@pytest.mark.parametrize("kind", [LineDisplay, LiveDisplay])
def test_warnings_are_shown(kind: type[LineDisplay | LiveDisplay]) -> None:
    console = Console(file=io.StringIO(), width=100, record=True)
    display = kind(console)
    display.begin(CONFIG, RUN_DIR, REPLAY_BYTES)
    display.warn("out of GPU memory: from here on batches of 4096")
    display.end(None)
    assert "warning: out of GPU memory: from here on batches of 4096" in console.export_text()


def test_other_machines_are_shown_with_what_they_send() -> None:
    def machine(name: str, state: str, waits_for: str | None = None) -> MachineFigures:
        return MachineFigures(name, state, 4, 12_300.0, 2e6, 0.2, 0.001, waits_for, 9, 9, 0, 0)

    machines = (machine("alpha", "at_work", "link"), machine("beta", "away"))
    cluster = ClusterFigures(18, 18, 0, 0, machines)
    console = text_console(width=200)
    display = LineDisplay(console)
    display.begin(CONFIG.replace(cluster="auto"), RUN_DIR, REPLAY_BYTES)
    display.show(dataclasses.replace(MEASUREMENT, cluster=cluster))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "samplers on other machines" in lines[0]
    assert "alpha 12.3k/s, waits for the link" in lines[-1]
    assert "beta away" in lines[-1]
