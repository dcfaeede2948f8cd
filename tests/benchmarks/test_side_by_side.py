"""The comparison with the peers: runners by the protocol, runs that fail, tables and pictures from the JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import protocol  # noqa: E402

import side_by_side as script  # noqa: E402
from peer_environments import find_peers, read_peer  # noqa: E402
from side_by_side import (  # noqa: E402
    SOLVE,
    THROUGHPUT,
    Run,
    peer_flags,
    picture,
    run_peer,
    spreeze_flags,
    spreeze_rates,
    table,
)

# A peer that learns nothing: what the protocol does is the same.
RUNNER = """
# /// script
# dependencies = ["gymnasium==1.4.0"]
# [tool.peer]
# title = "Idle"
# actions = "continuous"
# ///
import sys
sys.path.insert(0, {peers!r})
import numpy as np
import protocol

arguments = protocol.parse_arguments("Nothing.", envs=2)
trial = protocol.Trial("idle", ("gymnasium",), arguments)
rounds = 0
while trial.goes_on(2 * rounds, rounds, lambda observations: np.zeros((len(observations), 1))):
    rounds += 1
    if rounds == {crash_at}:
        raise ValueError("the third round is one too many")
trial.finish("cpu", rounds=rounds)
"""


def write_runner(folder: Path, crash_at: int = -1) -> Path:
    path = folder / "idle_sac.py"
    path.write_text(RUNNER.format(peers=str(BENCHMARKS / "peers"), crash_at=crash_at))
    return path


def arguments(**changed: Any) -> argparse.Namespace:
    settings: dict[str, Any] = {
        "env": "Pendulum-v1",
        "batch_size": 256,
        "device": "cpu",
        "envs": None,
        "updates_per_vector_step": None,
        "subprocesses": False,
        "eval_interval_s": 1.0,
        "spreeze_args": [],
        "target_return": -5000.0,  # below what any policy has
        "max_seconds": 60.0,
        "shorter": {},
        "window": None,
        "systems": ["spreeze", "sb3"],
        "seeds": 2,
        "json": None,
        "part_seconds": None,
    }
    return argparse.Namespace(**{**settings, **changed})


def make_content(benchmark: str, runs: list[Run], gpus: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    names = ("env", "target_return", "max_seconds", "shorter", "systems", "seeds", "window")
    settings = {name: getattr(arguments(**changed), name) for name in names}
    settings["systems"] = list(dict.fromkeys(run.system for run in runs))
    content = {
        "benchmark": benchmark,
        "machine": {"cores": 2, "gpus": list(gpus)},
        "settings": settings,
        "runs": [dataclasses.asdict(run) for run in runs],
    }
    result: dict[str, Any] = json.loads(json.dumps(content))  # as from a file
    return result


# --- runners ---------------------------------------------------------------------------------------------------


def test_every_runner_states_what_it_needs_with_the_peer_itself_pinned() -> None:
    peers = find_peers()
    assert {"sb3", "sbx", "rllib", "torchrl", "tianshou"} <= set(peers)
    for peer in peers.values():
        assert "==" in peer.dependencies[0], peer
        assert "torch" in peer.dependencies, peer  # so that the pin of constraints.txt applies


def test_a_new_file_is_a_new_peer(tmp_path: Path) -> None:
    write_runner(tmp_path)
    assert [(peer.name, peer.title) for peer in find_peers(tmp_path).values()] == [("idle", "Idle")]


def test_a_runner_is_run_to_the_target_by_the_protocol(tmp_path: Path) -> None:
    peer = read_peer(write_runner(tmp_path))
    run = run_peer(peer, Path(sys.executable), 0, arguments(batch_size=None))
    assert run.failed is None
    assert run.batch_size == 256  # as the runner chose
    assert run.reached
    assert run.time_to_target_s == run.evaluations[-1][0]
    assert run.evaluation_s > 0  # subtracted
    assert run.evaluations[-1][2] > -5000.0
    assert run.env_steps == 2 * run.updates
    assert run.settings["envs"] == 2
    assert run.settings["updates_per_vector_step"] == 2
    assert "gymnasium" in run.versions
    assert run.cpu is not None
    assert run.cpu.own_s > 0


def test_environments_made_for_a_benchmark_are_found(tmp_path: Path) -> None:
    peer = read_peer(write_runner(tmp_path))
    sleeping = {"env": "sleeping_envs:SleepingPendulum20ms-v0", "subprocesses": True, "envs": 4}
    run = run_peer(peer, Path(sys.executable), 0, arguments(**sleeping, window=0.2, target_return=None))
    assert run.failed is None
    assert {name: run.settings[name] for name in sleeping} == sleeping


def test_episodes_side_by_side_have_the_returns_of_those_one_by_one() -> None:
    def act(observations: Any) -> Any:
        return np.sin(observations[:, :1])

    one_by_one, side_by_side = (protocol.Evaluator("Pendulum-v1", 3, 7, threads) for threads in (False, True))
    assert one_by_one.mean_return(act) == side_by_side.mean_return(act)


def test_a_window_has_rates_and_no_evaluations(tmp_path: Path) -> None:
    peer = read_peer(write_runner(tmp_path))
    run = run_peer(peer, Path(sys.executable), 0, arguments(window=0.5, target_return=None, batch_size=8))
    assert run.failed is None
    assert not run.evaluations
    assert run.window_s is not None
    assert run.window_s >= 0.5
    assert run.update_hz is not None
    assert run.sampling_hz == pytest.approx(2 * run.update_hz, rel=1e-3)
    assert run.update_frame_hz == pytest.approx(8 * run.update_hz, rel=1e-3)


def test_a_runner_that_crashes_is_a_result_with_its_last_line(tmp_path: Path) -> None:
    peer = read_peer(write_runner(tmp_path, crash_at=3))
    run = run_peer(peer, Path(sys.executable), 0, arguments(target_return=None))
    assert run.failed == "ValueError: the third round is one too many"
    assert "| Idle | failed: ValueError: the third round is one too many |" in table(make_content(SOLVE, [run]))


# In a process of its own: one that adopts orphans keeps doing so.
LEAVES_A_PROCESS = """
import os, sys, tempfile
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
import session as runs
runs.ORPHANS_S = 0.5
runs.adopt_orphans()
leave = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'while True: pass']).pid)"
with tempfile.TemporaryDirectory() as folder:
    cpu, _ = runs.run_alone([sys.executable, "-c", leave], Path(folder), 10.0)
try:
    os.wait()
    print("a child is left")
except ChildProcessError:
    print("none is left", cpu.own_s > 0.1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt others")
def test_what_a_run_leaves_running_is_ended_and_its_cpu_time_counted() -> None:
    program = LEAVES_A_PROCESS.format(benchmarks=str(BENCHMARKS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "none is left True", done.stderr


# --- Spreeze ---------------------------------------------------------------------------------------------------


def test_spreeze_is_counted_from_two_seconds_after_its_first_update_to_the_end_of_the_window() -> None:
    # 10 updates and 100 steps a second from second 3 on; the batch doubles at second 7.
    metrics = [
        {
            "wall_s": float(second),
            "env_steps": 100 * second,
            "updates": max(0, 10 * (second - 2)),
            "batch_size": 64 if second < 7 else 128,
        }
        for second in range(12)
    ]
    rates = spreeze_rates(metrics, 3.0)
    assert (rates["window_began_s"], rates["window_s"]) == (5.0, 3.0)
    assert (rates["update_hz"], rates["sampling_hz"]) == (10.0, 100.0)
    assert rates["update_frame_hz"] == pytest.approx(10 * (64 + 128 + 128) / 3, abs=1e-3)
    assert spreeze_rates(metrics, None)["window_s"] == 6.0
    assert spreeze_rates(metrics[:3], None) == {}


def test_the_number_in_a_systems_name_is_spreezes_batch() -> None:
    assert "--batch-size=256" in spreeze_flags("spreeze-256", arguments())
    assert not any(flag.startswith("--batch-size") for flag in spreeze_flags("spreeze", arguments()))
    assert "--batch-size=8192" in spreeze_flags("spreeze", arguments(window=5.0, batch_size=8192))
    assert "--batch-size=512" in spreeze_flags("spreeze-512", arguments(window=5.0, batch_size=8192))


# --- report ----------------------------------------------------------------------------------------------------


def solved(system: str, title: str, *times: float | None) -> list[Run]:
    return [
        Run(system, title, seed, reached=at_s is not None, time_to_target_s=at_s, env_steps=1000, updates=100)
        for seed, at_s in enumerate(times)
    ]


def test_runs_that_miss_the_target_make_medians_and_ratios_bounds() -> None:
    runs = [*solved("spreeze", "Spreeze", 8.0, 10.0, 12.0), *solved("sb3", "SB3", 30.0, None, None)]
    runs += [*solved("sbx", "SBX", 20.0, 25.0, None), Run("rllib", "RLlib", 0, failed="no such package")]
    lines = table(make_content(SOLVE, runs)).splitlines()
    assert lines[2] == "| Spreeze | **10.0** | 8.0, 10.0, 12.0 | 1,000 | 100 | - | - | 1.00 |"
    assert lines[3] == "| SB3 | > 60.0 | 30.0, > 60, > 60 | 1,000 | 100 | - | - | > 6.00 |"
    assert lines[4] == "| SBX | 25.0 | 20.0, 25.0, > 60 | 1,000 | 100 | - | - | 2.50 |"
    assert lines[5].startswith("| RLlib | failed: no such package |")


def test_curves_say_how_much_sooner_ours_has_what_the_better_peer_has_at_the_end() -> None:
    runs = [learns("spreeze", "Spreeze", 59.0), learns("sb3", "SB3", 1.0), learns("sbx", "SBX", 5.0)]
    shown = table(make_content(SOLVE, runs, target_return=None))
    # SBX has the mean of 290, 295 and 300 at its end; ours passes that in second 5, theirs in second 59.
    assert shown.endswith("SBX has 295 after 60 s; Spreeze has it after 5.0 s: 12.0 times sooner.")
    assert "| SBX | 60 | 295 | 600 | 600 | - | - | 59.0 | 11.80 |" in shown
    assert "| SB3 | 60 | 59 | 600 | 600 | - | - | > 60.0 | > 12.00 |" in shown


def learns(system: str, title: str, slope: float, seconds: int = 60) -> Run:
    evaluations = [(float(second), 10 * second, slope * second) for second in range(1, seconds + 1)]
    return Run(system, title, 0, evaluations=evaluations, env_steps=600, updates=600)


def test_a_system_with_a_shorter_limit_is_shown_with_what_it_had_then() -> None:
    runs = [learns("spreeze", "Spreeze", 59.0, 6), learns("sb3", "SB3", 1.0, 30), learns("sbx", "SBX", 5.0)]
    shown = table(make_content(SOLVE, runs, target_return=None, shorter={"spreeze": 6.0, "sb3": 30.0}))
    assert shown.endswith("SBX has 295 after 60 s; Spreeze has it after 5.0 s: 12.0 times sooner.")
    assert "| Spreeze | 6 | 295 |" in shown
    assert "| SB3 | 30 | 29 | 600 | 600 | - | - | > 30.0 | > 6.00 |" in shown


def test_a_shorter_limit_is_the_one_that_a_run_gets() -> None:
    settings = arguments(target_return=None, shorter={"sb3": 2.0, "spreeze": 5.0})
    assert "--max-seconds=5.0" in spreeze_flags("spreeze", settings)
    assert "--max-seconds=2.0" in peer_flags("sb3", settings)
    assert "--max-seconds=60.0" in peer_flags("sbx", settings)


def test_throughput_has_ratios_and_on_a_gpu_the_papers_headline() -> None:
    def measured(system: str, title: str, rate: float) -> list[Run]:
        rates = {"update_hz": rate, "update_frame_hz": 256 * rate, "sampling_hz": 10 * rate}
        return [Run(system, title, seed, **rates) for seed in range(3)]

    runs = [*measured("spreeze", "Spreeze", 1000.0), *measured("sb3", "SB3", 100.0)]
    assert "arXiv" not in table(make_content(THROUGHPUT, runs))
    lines = table(make_content(THROUGHPUT, runs, gpus=("H200",))).splitlines()
    assert lines[3].endswith("| - | - | 10.00 | 10.00 |")
    assert "| 370,000 | 15,000 |" in lines[4]
    assert lines[4].endswith("| 0.7 | 0.7 |")  # 256,000 of 370,000 and 10,000 of 15,000


def test_the_picture_is_drawn_from_the_json_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    evaluations = [(1.0, 10, -1200.0), (2.0, 20, -300.0), (4.0, 40, -180.0)]
    runs = [Run("spreeze", "Spreeze", seed, evaluations=evaluations) for seed in range(2)]
    picture(make_content(SOLVE, [*runs, Run("sb3", "SB3", 0, failed="it crashed")]), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


# --- in parts --------------------------------------------------------------------------------------------------


def add(kept: Any, run: Run) -> None:
    kept.fill([{"seed": run.seed, "system": run.system}], lambda **_: dataclasses.asdict(run), str)


def test_a_file_of_the_same_measurement_is_added_to_and_failed_runs_are_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    kept = script.begin(arguments(json=path, systems=["spreeze", "sb3"]))
    add(kept, Run("spreeze", "Spreeze", 0))
    add(kept, Run("sb3", "SB3", 0, failed="it crashed"))
    again = script.begin(arguments(json=path, systems=["sbx"], seeds=3))
    assert again.content["settings"]["systems"] == ["spreeze", "sb3", "sbx"]
    assert again.content["settings"]["seeds"] == 3
    assert len(again.content["parts"]) == 2
    assert again.has(seed=0, system="spreeze")
    assert not again.has(seed=0, system="sb3")
    add(again, Run("sb3", "SB3", 0))
    written = json.loads(path.read_text())
    assert [(run["system"], run["failed"]) for run in written["runs"]] == [("spreeze", None), ("sb3", None)]


def test_a_file_of_another_measurement_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    add(script.begin(arguments(json=path)), Run("spreeze", "Spreeze", 0))
    with pytest.raises(SystemExit) as refused:
        script.begin(arguments(json=path, batch_size=64))
    assert refused.value.code == 2
    assert "differs in its settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["solve", "--systems", "nonsense"],
        ["solve", "--seeds", "0"],
        ["throughput", "--window", "50"],
        ["solve", "--json", "nowhere/result.json"],
        ["solve", "--python", "sb3"],
        ["solve", "--shorter", "sb3"],
        ["solve", "--shorter", "sb3=500"],
        ["show", "nowhere.json"],
    ],
)
def test_wrong_words_are_refused_in_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", *words])
    with pytest.raises(SystemExit) as refused:
        script.main()
    assert refused.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_result_is_shown_again_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(make_content(SOLVE, solved("spreeze", "Spreeze", 8.0))))
    command = [sys.executable, str(BENCHMARKS / "side_by_side.py"), "show", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| Spreeze | **8.0** |" in done.stdout


def test_a_python_for_the_peers_is_found_by_its_name_or_by_its_path() -> None:
    settings = arguments(python={"sbx": sys.executable}, peers_python="python3", systems=["spreeze", "sb3", "sbx"])
    pythons = script.find_pythons(settings, find_peers())
    assert pythons == {"sb3": Path(str(shutil.which("python3"))).absolute(), "sbx": Path(sys.executable)}
