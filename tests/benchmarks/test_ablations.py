"""Ablations: figures from journals, tables and pictures from the JSON alone, files that are gone on with, probes."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

import ablations  # noqa: E402 (it is a script, in a folder with what it imports)
from ablation.training import probe, time_to, window_figures  # noqa: E402
from ablation.variants import ABLATIONS, Hardware, Variant, baseline_of  # noqa: E402
from session import RunCrashed  # noqa: E402
from spreeze.config import Config  # noqa: E402
from spreeze.config.fields import leaf_types  # noqa: E402

GUARD_S = 60.0
CPU, GPU, GPUS = Hardware(2, 0), Hardware(16, 1), Hardware(16, 2)


def line(second: int, **fields: Any) -> dict[str, Any]:
    """Return a line of metrics of a run that makes the same every second."""
    counted = dict.fromkeys(("ring_wait_s", "ratio_wait_s", "ingest_s", "publish_s", "exchange_s"), 0.1 * second)
    return {
        "wall_s": float(second),
        "env_steps": 1000 * second,
        "updates": 10 * max(0, second - 2),
        "actor_updates": 5 * second,
        "update_frame_hz": 640.0,
        **counted,
        "policy_lag_s": 0.25,
        "cpu_percent": 90.0,
        "gpu_percent": None,
        "num_samplers": 2,
        "batch_size": 64,
        **fields,
    }


def run(variant: str, repeat: int, **fields: Any) -> dict[str, Any]:
    figures = window_figures([line(second) for second in range(12)], 5.0)
    probed = {"limit_s": 12.0, "time_to_target_s": 5.0, "others_cores": 0.0}
    return {"variant": variant, "repeat": repeat, **figures, **probed, **fields}


def arguments_of(name: str) -> argparse.Namespace:
    return argparse.Namespace(values=list(ABLATIONS[name].values), bad_start=None, static=[])


def content_of(name: str, runs: list[dict[str, Any]], hardware: Hardware = CPU) -> dict[str, Any]:
    variants = ABLATIONS[name].variants(arguments_of(name), hardware)
    return {
        "benchmark": "ablations",
        "settings": {"ablation": name, "env": "Pendulum-v1", "target_return": -200.0},
        "machine": {"cores": 2, "gpus": []},
        "variants": [vars(variant) for variant in variants],
        "runs": runs,
    }


# --- figures ----------------------------------------------------------------------------------------------------


def test_rates_are_those_between_both_ends_of_the_window() -> None:
    lines = [line(second) for second in range(12)]
    lines[0]["env_steps"] = -(10**6)  # the start does not count
    figures = window_figures(lines, 5.0)
    assert figures["window_s"] == 6.0
    assert figures["sampling_hz"] == pytest.approx(1000)
    assert figures["update_hz"] == pytest.approx(10)
    assert figures["update_frame_hz"] == pytest.approx(640)
    assert figures["ring_wait_share"] == pytest.approx(0.05)  # of two samplers' time
    assert figures["ingest_share"] == pytest.approx(0.1)
    assert figures["policy_lag_ms"] == pytest.approx(250)
    assert figures["gpu_percent"] is None
    assert figures["objective"] == pytest.approx((1000 * 10 * 640) ** (1 / 3))


def test_the_window_begins_after_the_first_update() -> None:
    lines = [line(second, updates=0 if second < 8 else 10 * second) for second in range(12)]
    assert window_figures(lines, 5.0)["window_s"] == 2.0
    assert window_figures(lines, 5.0)["first_update_s"] == 8.0


def test_a_run_without_a_window_says_so() -> None:
    with pytest.raises(RunCrashed, match="take a longer --seconds"):
        window_figures([line(second, updates=0) for second in range(12)], 5.0)


def test_the_first_evaluation_at_the_target_counts() -> None:
    evaluations = [{"wall_s": 3.0, "mean_return": -900.0}, {"wall_s": 4.0, "mean_return": -200.0}]
    evaluations += [{"wall_s": 5.0, "mean_return": -150.0}]
    assert time_to(-200.0, evaluations) == 4.0
    assert time_to(-100.0, evaluations) is None


# --- variants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", [CPU, GPU, GPUS])
@pytest.mark.parametrize("name", ABLATIONS)
def test_variants_differ_and_their_flags_exist(name: str, hardware: Hardware) -> None:
    variants = ABLATIONS[name].variants(arguments_of(name), hardware)
    assert len({variant.name for variant in variants}) == len(variants) >= 2
    assert len({(v.flags, v.cores, v.start, v.transport) for v in variants}) == len(variants)
    known = {f"--{field.replace('_', '-')}" for field in leaf_types(Config)} | {"--no-adapt"}
    assert {word for variant in variants for word in variant.flags if word.startswith("--")} <= known


def test_what_is_compared_with_what() -> None:
    shared, queued = (vars(Variant(f"{series}, 4", (), series, "4")) for series in ("shm", "queue"))
    fewer = [vars(Variant(f"{series}, 1", (), series, "1")) for series in ("shm", "queue")]
    assert baseline_of(queued, [*fewer, shared, queued]) == shared
    one, two = vars(Variant("1", (), "", "1")), vars(Variant("2", (), "", "2"))
    assert baseline_of(two, [one, two]) == one


def test_minutes_in_the_documentation_are_those_of_the_script() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", (ROOT / "docs" / "ablations.md").read_text(), re.MULTILINE)
    for name, ablation in ABLATIONS.items():
        runs = 3 * len(ablation.variants(arguments_of(name), CPU))
        assert (name, str(ablations.minutes_of(ablation, runs, ablation.skip_s + ablation.seconds))) in rows
    assert len(rows) == len(ABLATIONS)
    assert sum(int(minutes) for _, minutes in rows) <= 42


# --- report -----------------------------------------------------------------------------------------------------


def test_a_cell_has_median_and_range_and_ratios_are_of_one_repeat() -> None:
    runs = [run("1", repeat, update_hz=hz) for repeat, hz in enumerate((100.0, 200.0, 400.0))]
    runs += [run("2", repeat, update_hz=hz) for repeat, hz in enumerate((50.0, 150.0, 100.0))]
    text = ablations.table(content_of("samplers", runs))
    header, _, first, second, third = text.splitlines()
    assert header.startswith("| samplers | env steps/s | updates/s | updates/s, ratio |")
    assert "seconds to -200" in header
    assert "GPU" not in header
    assert first.split(" | ")[2:4] == ["200 (100 to 400)", "1"]
    assert second.split(" | ")[2:4] == ["100 (50 to 150)", "0.50 (0.25 to 0.75)"]
    assert set(third.split(" | ")[1:4]) == {"-"}  # not measured yet


def test_a_target_that_was_not_reached_is_a_bound() -> None:
    runs = [run("64", repeat, time_to_target_s=s) for repeat, s in enumerate((5.0, None, 7.0))]
    runs += [run("128", repeat, time_to_target_s=s) for repeat, s in enumerate((None, None, 7.0))]
    lines = ablations.table(content_of("batch", runs)).splitlines()
    assert lines[2].endswith("| 7.0 (5.0 to > 12.0) |")
    assert lines[3].endswith("| > 12.0 (7.0 to > 12.0) |")


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_is_shown_and_drawn_from_its_json_alone(name: str, tmp_path: Path) -> None:
    content = content_of(name, [])
    probed = {
        key: 1.5 for column in ABLATIONS[name].columns if (key := column.key).endswith(("_ms", "_p99_ms", "_share"))
    }
    content["runs"] = [
        run(variant["name"], repeat, **probed) for variant in content["variants"] for repeat in range(3)
    ]
    content = json.loads(json.dumps(content))
    assert len(ablations.table(content).splitlines()) == 2 + len(content["variants"])
    ablations.picture(content, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


# --- files and flags --------------------------------------------------------------------------------------------


def test_runs_of_a_file_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = []

    def measure(variant: Variant, repeat: int, _: argparse.Namespace) -> dict[str, Any]:
        measured.append((variant.name, repeat))
        return run(variant.name, repeat)

    monkeypatch.setattr(ablations, "measure", measure)
    words = ["ablations.py", "batch", "--values", "64", "128", "--json", str(tmp_path / "batch.json")]
    for repeats in ("1", "2"):
        monkeypatch.setattr(sys, "argv", [*words, "--repeats", repeats])
        assert ablations.main() == 0
    assert measured == [("64", 0), ("128", 0), ("128", 1), ("64", 1)]  # in the other order every second time
    monkeypatch.setattr(sys, "argv", [*words, "--seconds", "7"])
    with pytest.raises(SystemExit, match="2"):
        ablations.main()
    assert "differs in its settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["teleport"],
        ["batch", "--values", "64", "none"],
        ["batch", "--repeats", "0"],
        ["batch", "--json", "no/such/folder/file.json"],
        ["batch", "--picture", "picture.txt"],
        ["restricted", "--values", "100000"],
        ["adaptation", "--bad-start", "samplers=few"],
        ["adaptation", "--static", "--batch-size 64"],
    ],
)
def test_wrong_input_is_refused_before_anything_runs(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablations.py", *words])
    with pytest.raises(SystemExit) as exit_info:
        ablations.parse_arguments(CPU)
    assert exit_info.value.code == 2
    assert "ablations.py" in capsys.readouterr().err


# --- with real processes ----------------------------------------------------------------------------------------


def test_a_start_of_ones_own_is_not_pinned() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from ablation.launch import start_from\n"
        "from spreeze.host.hardware import this_machine\n"
        "from spreeze.config import Config\n"
        "from spreeze.adapt.plan import adaptation_bounds, plan_processes\n"
        "start_from('samplers=3,batch_size=512')\n"
        "asked, machine = Config('Pendulum-v1').replace(device='cpu'), this_machine()\n"
        "plan = plan_processes(asked, machine)\n"
        "bounds = adaptation_bounds(plan, asked, machine)\n"
        "print(plan.config.sampling.samplers, plan.config.learning.batch_size, bounds.batch_size[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=GUARD_S)
    assert done.stdout.split() == ["3", "512", "64"], done.stderr


def test_rows_are_followed_from_their_step_to_the_pool() -> None:
    asked = {"transport": "shm", "samplers": 1, "device": "cpu", "replay_rows": 100_000}
    found = probe("row_latency.py", {**asked, "seconds": 0.3, "observation_size": 4, "action_size": 1})
    assert found["rows_followed"] > 0
    assert 0 < found["row_latency_ms"] <= found["row_latency_p99_ms"]


@pytest.mark.parametrize("transport", ["file", "shm"])
def test_versions_are_followed_from_publication_to_use(transport: str) -> None:
    asked = {"transport": transport, "readers": 1, "interval_s": 0.01, "hidden": [16, 16]}
    found = probe("weight_latency.py", {**asked, "seconds": 0.2, "observation_size": 4, "action_size": 1})
    assert found["versions_followed"] > 0
    assert found["publish_ms"] > 0
    assert 0 < found["weight_latency_ms"] <= found["weight_latency_p99_ms"]
