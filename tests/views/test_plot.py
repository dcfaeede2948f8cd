"""Pictures from run folders alone: what is joined, what is drawn, what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from spreeze.config import Config
from spreeze.errors import UsageError
from spreeze.views.plot import AXES, COLOURS, DOTS_PER_INCH, PANEL_INCHES, describe, group_drawn, plot_runs, read_run

if TYPE_CHECKING:
    from conftest import Spreeze

LINE = tuple[float, int, float | None]


def write_run(
    folder: Path, *evaluations: LINE, events: Sequence[dict[str, Any]] = (), stop_reason: str = "", **fields: Any
) -> Path:
    """Write what a run leaves behind, as far as pictures look at it; evaluations: wall_s, env_steps, mean_return."""
    folder.mkdir(parents=True)
    env = fields.pop("env", "Pendulum-v1")
    (folder / "config.json").write_text(json.dumps(Config(env, "sac").replace(**fields).flat()))
    lines = [{"wall_s": wall_s, "env_steps": steps, "mean_return": mean} for wall_s, steps, mean in evaluations]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if stop_reason:
        (folder / "summary.json").write_text(json.dumps({"stop_reason": stop_reason}))
    return folder


RISING: tuple[LINE, ...] = ((1.0, 100, 0.0), (2.0, 200, 50.0), (3.0, 300, 100.0))


def seeds(folder: Path, count: int, **fields: Any) -> list[Path]:
    name = "-".join(map(str, fields.values())) or "plain"
    return [write_run(folder / f"{name}-{seed}", *RISING, seed=seed, **fields) for seed in range(count)]


def pixels_of(path: Path) -> tuple[tuple[int, int], set[tuple[int, ...]]]:
    """Return width and height of a picture, and its colours."""
    with Image.open(path) as picture:
        found: Any = picture.convert("RGB").getcolors(maxcolors=1 << 24)
        return picture.size, {colour for _, colour in found}


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


# --- what is joined ---------------------------------------------------------------------------------------------


def test_curves_are_configs_and_panels_are_environments(tmp_path: Path) -> None:
    paths = [
        *seeds(tmp_path, 3),
        *seeds(tmp_path, 2, algo="td3"),
        *seeds(tmp_path, 2, env="HalfCheetah-v5", batch_size=64),
        *seeds(tmp_path, 1, env="HalfCheetah-v5", batch_size=32),
    ]
    groups = group_drawn([read_run(path) for path in paths])
    assert [(group.env, group.label, len(group.runs)) for group in groups] == [
        ("Pendulum-v1", "sac", 3),
        ("Pendulum-v1", "td3", 2),
        ("HalfCheetah-v5", "batch_size 64", 2),
        ("HalfCheetah-v5", "batch_size 32", 1),
    ]


def test_what_runs_have_chosen_themselves_does_not_part_them(tmp_path: Path) -> None:
    choice = {"wall_s": 0.1, "kind": "choice", "reason": "it pays", "setting": "batch_size"}
    paths = [
        write_run(tmp_path / str(size), *RISING, events=[{**choice, "value": size}], batch_size=size)
        for size in (64, 128)
    ]
    assert len(group_drawn([read_run(path) for path in paths])) == 1


def test_only_a_run_that_has_reached_its_target_stays_there(tmp_path: Path) -> None:
    long = write_run(tmp_path / "long", (1.0, 100, 0.0), (9.0, 900, 80.0))
    solved = write_run(tmp_path / "solved", (1.0, 100, 0.0), (4.0, 400, 100.0), stop_reason="target_return")
    cut = write_run(tmp_path / "cut", (1.0, 100, 0.0), (5.0, 500, 40.0), stop_reason="failed")

    (group,) = group_drawn([read_run(path) for path in (long, solved)])
    curve = group.curve("env_steps")
    assert curve is not None
    assert (curve.x[-1], curve.median[-1]) == (900.0, 90.0)
    assert describe([group], "env_steps") == [
        "Pendulum-v1  sac (2 runs): median return 90.0 (quartiles 85.0 to 95.0) at 900 env steps"
    ]

    (group,) = group_drawn([read_run(path) for path in (long, solved, cut)])
    curve = group.curve("wall_s")
    assert curve is not None
    assert (curve.x[-1], curve.median[-1]) == (5.0, 40.0)
    assert describe([group], "wall_s")[1] == "  it ends where cut ends: without that run it would be longer"


HUGE = (1e308, -1e308, 1.7e308, -1.7e308, 1e101, 1e99, -1e99, 5e-324, 0.0)


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_returns_of_any_size_are_drawn_or_left_out(suffix: str, spreeze: Spreeze) -> None:
    """Four runs: their quartiles are between returns that have no difference."""
    for run in range(4):
        lines: list[LINE] = [(1.0 + at, 100 * at, HUGE[(at * 3 + run) % len(HUGE)]) for at in range(30)]
        write_run(
            spreeze.folder / f"run-{run}", (0.5, 0, 1.0), *lines, (1e308, 2**62, 2.0), (31.0, 4000, 3.0), seed=run
        )
    out = spreeze.folder / f"curves.{suffix}"
    done = spreeze("plot", *sorted(spreeze.folder.glob("run-*")), "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "median return 3.0 (quartiles 3.0 to 3.0) at 31.0 s" in done.stdout
    assert out.stat().st_size > 1000


def test_run_with_nothing_but_returns_that_cannot_be_drawn_is_named(spreeze: Spreeze) -> None:
    write_run(spreeze.folder / "huge", (1.0, 10, 1e308), (2.0, 20, -1e308))
    done = spreeze("plot", "huge", "--out", "curves.png")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "spreeze: 'huge' has no evaluation to draw: wait for its first one, or leave it out"
    ]


def test_a_run_ends_with_the_evaluation_that_reached_its_target(tmp_path: Path) -> None:
    path = write_run(tmp_path / "solved", *RISING, (3.1, 310, -5.0), stop_reason="target_return")
    (path / "summary.json").write_text(json.dumps({"stop_reason": "target_return", "time_to_target_s": 3.0}))
    drawn = read_run(path)
    assert drawn.series["wall_s"][-1] == (3.0, 100.0)
    assert drawn.series["env_steps"][-1] == (300.0, 100.0)


def test_damage_in_a_run_folder_is_passed_over(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", *RISING, (4.0, 400, None))
    with (path / "evaluations.jsonl").open("a") as file:
        file.write('{"wall_s": 5.0}\nnot json\n{"wall_s": 6.0, "env_steps": 600, "mean_re')
    assert list(read_run(path).series["wall_s"]) == [(1.0, 0.0), (2.0, 50.0), (3.0, 100.0)]


# --- what is drawn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["curves.png", "curves.svg", "curves.pdf"])
def test_every_format_is_written(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    plot_runs(seeds(tmp_path, 2), out, AXES["both"], None)
    beginning = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[out.suffix[1:]]
    assert out.read_bytes().startswith(beginning)


def test_each_curve_has_its_colour_and_each_axis_its_panel(tmp_path: Path) -> None:
    one, other = seeds(tmp_path, 2), seeds(tmp_path, 1, algo="td3")
    plot_runs([*one, *other], tmp_path / "both.png", AXES["both"], None)
    (width, _), colours = pixels_of(tmp_path / "both.png")
    assert width == round(2 * PANEL_INCHES[0] * DOTS_PER_INCH)
    assert {rgb(COLOURS[0]), rgb(COLOURS[1])} <= colours

    plot_runs(one, tmp_path / "one.png", AXES["wall_s"], None)
    (width, _), colours = pixels_of(tmp_path / "one.png")
    assert width == round(PANEL_INCHES[0] * DOTS_PER_INCH)
    assert rgb(COLOURS[0]) in colours
    assert rgb(COLOURS[1]) not in colours


def test_more_curves_than_colours_are_drawn(tmp_path: Path) -> None:
    paths = [path for size in range(1, 12) for path in seeds(tmp_path, 1, batch_size=size)]
    plot_runs(paths, tmp_path / "many.png", AXES["both"], "many")
    assert {rgb(colour) for colour in COLOURS} <= pixels_of(tmp_path / "many.png")[1]


def test_titles_and_axes_are_in_the_picture(tmp_path: Path) -> None:
    paths = [*seeds(tmp_path, 2), *seeds(tmp_path, 1, batch_size=64)]
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):  # texts as texts, not as outlines
        plot_runs(paths, tmp_path / "curves.svg", AXES["both"], "Ours <and> theirs")
    text = (tmp_path / "curves.svg").read_text()
    for said in ("Ours &lt;and&gt; theirs", "batch_size auto (2 runs)", "batch_size 64 (1 run)", "evaluation return"):
        assert said in text
    assert "wall time (s)" in text
    assert "environment steps" in text


# --- what is refused --------------------------------------------------------------------------------------------


def _fine(folder: Path) -> None:
    write_run(folder / "run", *RISING)


def _not_evaluated(folder: Path) -> None:
    write_run(folder / "run", (1.0, 100, None))


def _not_a_run(folder: Path) -> None:
    (folder / "run").mkdir()


def _damaged(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text("{")


def _nothing_in_common(folder: Path) -> None:
    write_run(folder / "run", *RISING)
    write_run(folder / "late", (7.0, 700, 0.0), (8.0, 800, 1.0))


@pytest.mark.parametrize(
    ("prepare", "words", "says"),
    [
        (_fine, ["nowhere"], "there is no run folder 'nowhere'"),
        (_not_a_run, ["run"], "'run' is not a run folder"),
        (_damaged, ["run"], "'run' is not a run folder"),
        (_not_evaluated, ["run"], "'run' has no evaluation to draw"),
        (_nothing_in_common, ["run", "late"], "run, late: one of them ended before another was first evaluated"),
        (_fine, ["run", "--out", "curves.gif"], "--out curves.gif must end in .png, .svg, .pdf"),
        (_fine, ["run", "--out", "no/such/folder.png"], "--out no/such/folder.png cannot be written"),
        (_fine, ["run", "--x", "updates"], "Expected one of ('wall_s', 'env_steps', 'both')"),
        (_fine, ["run", "--outt", "a.png"], "did you mean --out?"),
        (_fine, [], "RUNS is missing"),
    ],
)
def test_wrong_input_is_one_line_and_changes_nothing(
    spreeze: Spreeze, prepare: Any, words: list[str], says: str
) -> None:
    prepare(spreeze.folder)
    before = sorted(spreeze.folder.rglob("*"))
    finished = spreeze("plot", *words)
    assert finished.returncode == 2, finished.stderr
    (line,) = finished.stderr.splitlines()
    assert says in line
    assert sorted(spreeze.folder.rglob("*")) == before


def test_without_matplotlib_the_line_that_installs_it(spreeze: Spreeze) -> None:
    _fine(spreeze.folder)
    finished = spreeze.start("plot", "run", environment=spreeze.without("matplotlib")).finish()
    assert (finished.returncode, finished.stderr) == (
        2,
        'spreeze: --out needs matplotlib: pip install "spreeze[plot]"\n',
    )


def test_folder_named_twice_is_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path / "run", *RISING)
    plot_runs([path, tmp_path / "run" / ".." / "run"], tmp_path / "a.png", AXES["wall_s"], None)
    assert "sac (1 run)" in capsys.readouterr().out


def test_unreadable_run_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UsageError, match="there is no run folder"):
        read_run(tmp_path / "file")


# --- a real run -------------------------------------------------------------------------------------------------


def test_a_real_run_is_drawn_with_its_evaluations(spreeze: Spreeze) -> None:
    trained = spreeze.train("Toy/Point-v0", target_return=-1000, max_seconds=90)
    assert trained.returncode == 0, trained.stderr
    finished = spreeze("plot", "run", "--out", "run.png")
    assert finished.returncode == 0, finished.stderr
    # A curve ends with the evaluation that reached the target; another one may have been under way.
    first = spreeze.journal("evaluations")[0]
    assert f"Toy/Point-v0  sac (1 run): median return {first['mean_return']:,.1f}" in finished.stdout
    assert rgb(COLOURS[0]) in pixels_of(spreeze.folder / "run.png")[1] or len(spreeze.journal("evaluations")) == 1
