"""The contract of `spreeze train` on a toy task: limits, files and fields, displays, and the Python interface."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import threading
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spreeze as package
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.sampling.process import NICENESS

if TYPE_CHECKING:
    from conftest import Finished, Spreeze

METRICS = {
    *("wall_s", "env_steps", "updates", "episodes", "sampling_hz", "update_hz", "update_frame_hz", "batch_size"),
    *("num_samplers", "updates_per_step", "policy_lag_s", "replay_rows", "ring_wait_s", "train_return"),
    *("cpu_percent", "gpu_percent", "rss_bytes", "gpu_bytes", "critic_loss", "actor_loss"),
    *("ring_fill", "cpu_cores", "cpu_by_role"),
}
EVALUATION = {"wall_s", "env_steps", "updates", "version", "mean_return", "std_return", "returns", "lengths"}
SUMMARY = {
    *("stop_reason", "wall_s", "env_steps", "updates", "best_return", "time_to_target_s", "sampling_hz"),
    "update_frame_hz",
}

# 4 environments of 2 ms a step and two updates for five steps: 600 updates take 2.5 seconds or more, and so at least
# one line of metrics shows them, however fast the machine is.
UPDATES, WARMUP, LOW, HIGH, ENVS = 600, 100, 0.4, 0.5, 4
PACED: dict[str, Any] = {
    "env_kwargs": {"step_s": 0.002},
    "warmup_steps": WARMUP,
    "min_updates_per_step": LOW,
    "max_updates_per_step": HIGH,
    "envs_per_sampler": ENVS,
    "max_updates": UPDATES,
}

# For tests that look at an evaluation: a limit in updates may be reached before the first one.
FIRST_EVALUATION: dict[str, Any] = {"target_return": -1000, "max_seconds": 90}


# --- one run, looked at from all sides ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the environments of the run note each step they really make."""
    return tmp_path_factory.mktemp("played")


@pytest.fixture(scope="module")
def run(module_spreeze: Spreeze, played: Path) -> Finished:
    settings = {**PACED, "env_kwargs": {"step_s": 0.002, "count_dir": str(played)}}
    finished = module_spreeze.train("Toy/Point-v0", **settings)
    assert finished.returncode == 0, finished.stderr
    return finished


def test_max_updates_is_exact(run: Finished, module_spreeze: Spreeze) -> None:
    summary = module_spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_updates"
    assert summary["updates"] == UPDATES
    assert run.stderr == ""


def test_run_folder_has_the_fields_of_the_contract(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    metrics = module_spreeze.journal("metrics")
    assert len(metrics) >= 2  # one for each second
    for line in metrics:
        assert line.keys() >= METRICS
    assert all(a["wall_s"] < b["wall_s"] for a, b in pairwise(metrics))
    assert all(a["updates"] <= b["updates"] for a, b in pairwise(metrics))
    learning = [line for line in metrics if line["updates"]]
    assert learning
    assert all(line["batch_size"] == 32 and line["num_samplers"] == 1 for line in learning)
    assert all(line["update_frame_hz"] == pytest.approx(32 * line["update_hz"], abs=2) for line in learning)
    assert all(line["rss_bytes"] > 2**20 and line["replay_rows"] > 0 for line in learning)
    assert all(0 <= line["ring_fill"] <= 1 for line in metrics)
    assert all(line["cpu_by_role"].keys() >= {"supervisor", "learner", "sampler", "evaluator"} for line in metrics)
    assert metrics[-1]["cpu_by_role"]["learner"] > 0
    assert learning[-1]["train_return"] is not None
    assert learning[-1]["policy_lag_s"] is not None

    evaluations = module_spreeze.journal("evaluations")
    assert len(evaluations) >= 2
    for line in evaluations:
        assert line.keys() >= EVALUATION
        assert len(line["returns"]) == len(line["lengths"]) == 2
        assert line["lengths"] == [20, 20]
        assert line["mean_return"] == pytest.approx(sum(line["returns"]) / 2)

    events = module_spreeze.journal("events")
    assert events
    assert all({"wall_s", "kind", "reason"} <= event.keys() for event in events)
    assert {event["setting"] for event in events if event["kind"] == "choice"} >= {"ring_rows"}

    summary = module_spreeze.read("summary.json")
    assert summary.keys() >= SUMMARY
    assert summary["wall_s"] >= metrics[-1]["wall_s"]
    assert summary["env_steps"] >= metrics[-1]["env_steps"]
    assert summary["best_return"] == max(line["mean_return"] for line in evaluations)
    assert summary["time_to_target_s"] is None
    assert summary["sampling_hz"] > 0
    assert summary["update_frame_hz"] > 0

    config = module_spreeze.read("config.json")
    assert config.keys() == package.Config("Toy/Point-v0").flat().keys()
    # The target entropy stays a rule, and how to compute the learner finds out; all else is a number.
    left = {name for name, value in config.items() if value == "auto"}
    assert left <= {"target_entropy", "learner_threads", "update_engine", "pin_cores", "cluster_samplers"}
    assert config["env"] == "Toy/Point-v0"
    assert config["max_updates"] == UPDATES
    assert (config["split"], config["actor_device"]) == ("no", None)


def test_versions_rise_and_the_best_is_kept(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    evaluations = module_spreeze.journal("evaluations")
    versions = [line["version"] for line in evaluations]
    assert versions == sorted(set(versions))
    files = sorted((module_spreeze.run_dir / "weights").glob("*.safetensors"))
    newest = package.load_policy(files[-1]).version
    assert versions[0] >= 1
    assert versions[-1] <= newest
    assert len(files) < min(newest, 20)

    best = max(evaluations, key=lambda line: float(line["mean_return"]))
    policy = package.load_policy(module_spreeze.run_dir)
    assert policy.version == best["version"]
    assert json.loads((module_spreeze.run_dir / "best" / "evaluation.json").read_text()) == best
    action = policy([1.0])
    assert action.shape == (1,)
    assert -1 <= action[0] <= 1


def test_evaluate_repeats_the_best_evaluation(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    best = max(module_spreeze.journal("evaluations"), key=lambda line: float(line["mean_return"]))

    finished = module_spreeze("evaluate", "run", "--episodes", 3, "--json", "scores.json")

    assert finished.returncode == 0, finished.stderr
    assert f"version {best['version']}" in finished.stdout
    assert "over 3 episodes" in finished.stdout
    scores = json.loads((module_spreeze.folder / "scores.json").read_text())
    assert scores["version"] == best["version"]
    # Not to the bit: the size of the batch decides the order in which products are summed.
    assert scores["mean_return"] == pytest.approx(best["mean_return"], rel=1e-4)
    assert scores["lengths"] == [20, 20, 20]


def test_exported_policy_is_the_best_one(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    first = module_spreeze("export", "run", "--out", "policy.safetensors")
    again = module_spreeze("export", "run", "--out", "policy.safetensors")

    assert first.returncode == 0, first.stderr
    assert again.returncode == 2
    assert "already exists" in again.stderr
    exported = (module_spreeze.folder / "policy.safetensors").read_bytes()
    assert exported == (module_spreeze.run_dir / "best" / "policy.safetensors").read_bytes()


def test_ratio_is_bounded_from_both_sides(run: Finished, module_spreeze: Spreeze, played: Path) -> None:
    del run
    stored = module_spreeze.read("summary.json")["env_steps"]
    assert HIGH * (stored - WARMUP) + 1 >= UPDATES
    # Samplers may be two vector steps ahead, and have one under way.
    assert _steps_played(played) <= WARMUP + UPDATES / LOW + 3 * ENVS


def test_plain_lines_without_a_terminal(run: Finished) -> None:
    lines = run.stdout.splitlines()
    assert "\x1b" not in run.stdout
    assert "Toy/Point-v0" in lines[0]
    assert any(re.search(r"env steps \([\d.,kM]+/s\).* updates \([\d.,kM]+/s\)", line) for line in lines)
    assert lines[-1] == "Next: spreeze evaluate run"


def test_config_file_repeats_a_run(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    again = module_spreeze.folder / "again"
    short = ("--max-updates", 50, "--quiet")

    finished = module_spreeze("train", "--config", "run/config.json", "--run-dir", "again", *short)

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == ""
    assert module_spreeze.read("summary.json", again)["updates"] == 50
    differences = {"run_dir", "max_updates", "quiet"}
    first, second = module_spreeze.read("config.json"), module_spreeze.read("config.json", again)
    assert {name for name in first if first[name] != second[name]} == differences


# --- the other limits --------------------------------------------------------------------------------------------


def test_several_samplers_stop_at_max_env_steps(spreeze: Spreeze) -> None:
    finished = spreeze.train(
        "Toy/Point-v0",
        samplers=3,
        envs_per_sampler=2,
        max_env_steps=6000,
        env_kwargs={"count_dir": str(spreeze.folder)},
    )

    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_env_steps"
    played = _steps_played(spreeze.folder)
    # Each sampler may have one vector step under way when the last one is counted.
    assert 6000 <= summary["env_steps"] <= played <= 6000 + 3 * 2
    assert len(list(spreeze.folder.glob("sampler-*"))) == 3
    assert (spreeze.run_dir / "logs" / "sampler-2.log").exists()


@pytest.mark.parametrize(("ratio", "niceness"), [(0.0, NICENESS), (0.1, 0)], ids=["free-running", "held back"])
def test_samplers_give_way_where_nothing_else_holds_them_back(ratio: float, niceness: int, spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", min_updates_per_step=ratio, max_seconds=600)
    spreeze.wait_for_updates(run)

    (sampler,), (learner,) = spreeze.processes("sampler"), spreeze.processes("learner")
    assert sampler.nice() == max(niceness, learner.nice())
    assert learner.nice() == os.getpriority(os.PRIO_PROCESS, 0)

    run.process.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130


def test_max_seconds_counts_from_the_start_of_the_command(spreeze: Spreeze) -> None:
    spreeze.train("Toy/Point-v0", max_seconds=3)  # on a busy machine, too short for a step: exit code 1

    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "max_seconds"
    assert summary["wall_s"] >= 3


def test_target_return_stops_a_run(spreeze: Spreeze) -> None:
    # A point that is left alone returns -20, an untrained policy that or less; moving towards 0 returns -5 at once.
    finished = spreeze.train("Toy/Point-v0", target_return=-10, eval_interval_s=0, max_seconds=90)

    assert finished.returncode == 0, finished.stderr
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "target_return"
    assert summary["best_return"] >= -10
    reached = [line["wall_s"] for line in spreeze.journal("evaluations") if line["mean_return"] >= -10]
    assert summary["time_to_target_s"] == reached[0]
    assert "-10 reached" in finished.stdout


# --- what is shown -----------------------------------------------------------------------------------------------


def test_quiet_prints_nothing_and_noise_goes_to_the_logs(spreeze: Spreeze) -> None:
    words = spreeze.small(max_updates=5, quiet=True)

    finished = spreeze("train", "Toy/Point-v0", *words, environment={"TOY_NOISE": "1"})

    assert finished.returncode == 0
    assert "noise" in (spreeze.run_dir / "logs" / "sampler-0.log").read_text()
    assert finished.stderr == ""
    assert finished.stdout == ""


def test_live_display_in_a_terminal(spreeze: Spreeze) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    shown: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(ours, shown))

    running = spreeze.start(
        "train",
        "Toy/Point-v0",
        *spreeze.small(**PACED),
        terminal=theirs,
        environment={"TERM": "xterm-256color"},
    )
    os.close(theirs)
    reader.start()
    finished = running.finish()
    reader.join(timeout=30)
    os.close(ours)

    screen = b"".join(shown).decode()
    assert finished.returncode == 0, screen
    assert "\x1b[" in screen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert re.search(r"[\d.,kM]+ env steps/s", text)
    assert re.search(r"[\d.,kM]+ updates/s", text)
    assert re.search(r"[\d.,kM]+ frames/s", text)
    assert re.search(r"CPU \d+%", text)
    assert text.split()[-4:] == ["Next:", "spreeze", "evaluate", "run"]
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l")  # the cursor is shown again


# --- environments: in this process, because it is not processes that these are about -----------------------------

SERIAL: dict[str, Any] = {
    "serial": True,
    "quiet": True,
    "tensorboard": False,
    "device": "cpu",
    "env_module": ("toy_envs",),
    "hidden": (16, 16),
    "batch_size": 32,
    "warmup_steps": 100,
    "eval_episodes": 2,
}


@pytest.fixture(autouse=True)
def _toy_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.mark.parametrize(
    ("env", "observation"),
    [
        ("Toy/DictObservations-v0", {"position": [1.0], "side": 1}),
        ("Toy/TupleObservations-v0", ([1.0], [1, 1])),
    ],
)
def test_structured_observations(env: str, observation: Any, tmp_path: Path) -> None:
    package.train(env, **SERIAL, max_updates=30, run_dir=tmp_path / "run")

    assert package.load_policy(tmp_path / "run")(observation).shape == (1,)


def test_asymmetric_actions_stay_inside_their_bounds(tmp_path: Path) -> None:
    # The environment itself refuses an action outside; both ends are where rounding would put it there.
    envs = EnvBatch(EnvSpec("Toy/AsymmetricActions-v0", ("toy_envs",)), 1, [0])
    for end in (-1.0, 1.0):
        envs.step(np.array([[end]], np.float32))

    package.train("Toy/AsymmetricActions-v0", **SERIAL, max_updates=30, run_dir=tmp_path / "run")

    policy = package.load_policy(tmp_path / "run")
    actions = [float(policy([position])[0]) for position in (-1e6, -1.0, 0.0, 1.0, 1e6)]
    assert all(np.float32(-0.5) <= action <= np.float32(1.9) for action in actions)


def test_module_before_the_id_and_arguments_of_the_environment(spreeze: Spreeze) -> None:
    finished = spreeze.train("toy_envs:Toy/Point-v0", env_module=None, env_kwargs={"bonus": 100}, **FIRST_EVALUATION)

    assert finished.returncode == 0, finished.stderr
    returns = [line["mean_return"] for line in spreeze.journal("evaluations")]
    assert returns
    assert all(1800 < mean_return <= 2000 for mean_return in returns)


def test_time_limit_of_the_user(tmp_path: Path) -> None:
    package.train("Toy/Endless-v0", **SERIAL, max_episode_steps=7, max_updates=30, run_dir=tmp_path / "run")

    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert {length for line in lines for length in line["lengths"]} == {7}


# --- from Python -------------------------------------------------------------------------------------------------

SETTINGS = """
SETTINGS = dict(
    device="cpu", samplers=1, envs_per_sampler=2, warmup_steps=50, hidden=(8, 8), batch_size=16,
    publish_interval_s=0.05, eval_episodes=1, eval_interval_s=0.05, max_episode_steps=20,
)
"""


def test_script_without_guard_and_with_its_own_environment(spreeze: Spreeze) -> None:
    script = spreeze.folder / "script.py"
    script.write_text(
        SETTINGS
        + """
import json
import spreeze
from toy_envs import Point

print("module level")

class MyPoint(Point):
    pass

result = spreeze.train(MyPoint, run_dir="run", env_kwargs={"bonus": 1}, max_updates=20, **SETTINGS)
print(json.dumps([result.stop_reason, result.updates, str(result.run_dir), result.best_return is not None]))
"""
    )

    finished = spreeze.start_script(script).finish()

    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines.count("module level") == 1  # no process runs the script a second time
    assert json.loads(lines[-1])[:3] == ["max_updates", 20, str(spreeze.run_dir)]
    assert spreeze.read("summary.json")["updates"] == 20
    # A command that is suggested has to work, also for an environment that only the script knows.
    if any(line.startswith("Next: spreeze evaluate") for line in lines):
        suggested = spreeze("evaluate", "run")
        assert suggested.returncode == 0, suggested.stderr


def test_closure_twice_in_one_process_leaves_no_descriptors(spreeze: Spreeze) -> None:
    script = spreeze.folder / "script.py"
    script.write_text(
        SETTINGS
        + """
import os
import spreeze

def descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            pass  # the one that lists them
    return found

def experiment(bonus):
    from toy_envs import Point

    class Inner(Point):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, reward + bonus, *rest

    def make():
        return Inner()

    return spreeze.train(make, quiet=True, run_dir=f"run-{bonus}", target_return=0, max_seconds=90, **SETTINGS)

before = descriptors()
for bonus in (100, 200):
    assert experiment(bonus).stop_reason == "target_return"
left_open = descriptors().items() - before.items()
assert not left_open, left_open
"""
    )

    finished = spreeze.start_script(script).finish()

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == ""
    for bonus in (100, 200):
        returns = [line["mean_return"] for line in spreeze.journal("evaluations", spreeze.folder / f"run-{bonus}")]
        assert returns
        assert all(20 * bonus - 200 < mean_return <= 20 * bonus for mean_return in returns)


# --- the other commands ------------------------------------------------------------------------------------------


def test_help_and_version(spreeze: Spreeze) -> None:
    overview, train, version = spreeze("--help"), spreeze("train", "--help-all"), spreeze("--version")

    assert (overview.returncode, train.returncode, version.returncode) == (0, 0, 0)
    assert (overview.stderr, train.stderr, version.stderr) == ("", "", "")
    for command in ("train", "evaluate", "bench", "doctor"):
        assert command in overview.stdout
    for setting in package.Config("Toy/Point-v0").flat():
        assert setting == "env" or "--" + setting.replace("_", "-") in train.stdout
    assert version.stdout == f"spreeze {package.__version__}\n"


def test_doctor_prints_versions_and_checks(spreeze: Spreeze) -> None:
    finished = spreeze("doctor")

    assert finished.returncode == 0, finished.stdout + finished.stderr
    for name in ("Python 3.", "spreeze ", "torch ", "gymnasium ", "numpy ", "CPU cores"):
        assert name in finished.stdout
    assert "missing" not in finished.stdout


def test_bench_sampling_writes_its_figures(spreeze: Spreeze) -> None:
    words = ("--seconds", 1, "--repeats", 1, "--envs-per-sampler", 2, "--json", "figures.json")

    finished = spreeze("bench", "sampling", "Pendulum-v1", *words)

    assert finished.returncode == 0, finished.stderr
    assert "env steps/s" in finished.stdout
    figures = json.loads((spreeze.folder / "figures.json").read_text())
    assert figures["env"] == "Pendulum-v1"
    assert figures["envs_per_sampler"] == 2
    assert len(figures["raw_hz"]) == len(figures["samplers"]) == len(figures["ratios"]) == 1
    assert figures["ratio"] == figures["ratios"][0] > 0
    assert figures["samplers"][0].keys() == {"sampling_hz", "first_step_s", "resident_mb", "ring_wait_s"}
    assert figures["ratio"] == pytest.approx(figures["samplers"][0]["sampling_hz"] / figures["raw_hz"][0])


def test_sampler_of_four_robots_is_light(spreeze: Spreeze) -> None:
    words = ("--seconds", 1, "--repeats", 1, "--envs-per-sampler", 4, "--json", "figures.json")

    # A fork has the memory of the process that it was forked from.
    finished = spreeze.start_program("bench", "sampling", "HalfCheetah-v5", *words).finish()

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert json.loads((spreeze.folder / "figures.json").read_text())["samplers"][0]["resident_mb"] <= 120


def test_example_runs_as_it_stands(spreeze: Spreeze) -> None:
    example = Path(__file__).parents[2] / "examples" / "own_environment.py"

    finished = spreeze.start_script(example).finish(300)

    assert finished.returncode == 0, finished.stderr
    assert "solved after" in finished.stdout
    assert finished.stdout.count("heat with") == 4


def test_environment_that_cannot_be_sent_is_refused(spreeze: Spreeze) -> None:
    script = spreeze.folder / "script.py"
    script.write_text(
        "import threading, gymnasium, spreeze, spreeze.errors\n"
        "lock = threading.Lock()\n"
        "def make():\n"
        "    lock.acquire(blocking=False)\n"
        "    return gymnasium.make('Pendulum-v1')\n"
        "try:\n"
        "    spreeze.train(make, run_dir='run')\n"
        "except spreeze.errors.EnvironmentSetupError as error:\n"
        "    print(error)\n"
    )

    finished = spreeze.start_script(script).finish()

    assert finished.returncode == 0, finished.stderr
    assert "make() cannot be sent to another process" in finished.stdout
    assert not spreeze.run_dir.exists()


def _steps_played(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("sampler-*"))


def _read_all(fd: int, into: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(fd, 65536)
        except OSError:
            return  # the last process has closed its end
        if not chunk:
            return
        into.append(chunk)
