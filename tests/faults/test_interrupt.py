"""However and whenever a run is interrupted or loses a process: one clear end, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.runs.run_folder import read_run_config

if TYPE_CHECKING:
    from conftest import Finished, Running, Spreeze

STOP_GUARD_S = 15.0  # the grace period is 3 s; a loaded machine needs some more to kill and to sum up

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")

Send = Callable[[int, int], None]


def _ignoring(name: str) -> str:
    """Return a program that becomes spreeze with a signal ignored, which programs inherit."""
    return (
        f"import os, signal, sys; signal.signal(signal.{name}, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, '-m', 'spreeze', *sys.argv[1:]])"
    )


def _wait_for_run_folder(spreeze: Spreeze, run: Running) -> None:
    spreeze.wait_until((spreeze.run_dir / "config.json").exists, "a run folder", run=run)


def _wait_for_policy(spreeze: Spreeze, run: Running) -> None:
    spreeze.wait_for_policy(run)


MOMENTS = {"start-up": _wait_for_run_folder, "training": _wait_for_policy}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
def test_ctrl_c_ends_a_run_in_order(moment: str, send: Send, spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", max_seconds=90)
    MOMENTS[moment](spreeze, run)

    send(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")
    if moment == "training":
        assert spreeze.read("summary.json")["updates"] > 0
        assert list((spreeze.run_dir / "weights").glob("policy-*.safetensors"))


def test_ctrl_c_waits_for_no_video(spreeze: Spreeze) -> None:
    shown = {"no_dashboard": None, "no_video": None, "dashboard": True, "video": True}
    run = spreeze.start_training("Toy/Drawn-v0", max_seconds=90, **shown)
    best = spreeze.run_dir / "best" / "policy.safetensors"
    spreeze.wait_until(best.exists, "a best policy", run=run)
    spreeze.wait_until(lambda: spreeze.processes("dashboard"), "a dashboard", run=run)

    os.kill(run.process.pid, signal.SIGINT)

    finished = _assert_interrupted(spreeze, run, "interrupted")
    assert "watch run --record best.mp4 makes one" in " ".join(finished.stdout.split())
    assert not list(spreeze.run_dir.glob("videos/*.mp4"))
    assert not (spreeze.run_dir / "logs" / "recorder.log").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_termination_ends_a_run_in_order(number: signal.Signals, spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", max_seconds=90)
    _wait_for_policy(spreeze, run)

    os.kill(run.process.pid, number)

    _assert_interrupted(spreeze, run, "terminated")


def test_run_under_nohup_outlives_its_terminal(spreeze: Spreeze) -> None:
    words = ("train", "Toy/Point-v0", *spreeze.small(max_updates=500))
    run = spreeze.start_python("-c", _ignoring("SIGHUP"), *words)
    _wait_for_run_folder(spreeze, run)

    os.kill(run.process.pid, signal.SIGHUP)

    assert run.finish().returncode == 0
    assert spreeze.read("summary.json")["stop_reason"] == "max_updates"


def test_background_job_of_a_script_can_be_interrupted(spreeze: Spreeze) -> None:
    # A shell without job control starts what stands before & with SIGINT ignored.
    run = spreeze.start_python("-c", _ignoring("SIGINT"), "train", "Toy/Point-v0", *spreeze.small(max_seconds=90))
    _wait_for_policy(spreeze, run)

    os.kill(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")


def test_ctrl_c_during_an_evaluation(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/SlowEvaluation-v0", max_seconds=90)

    def under_way() -> list[dict[str, Any]]:
        return [line["evaluating"] for line in spreeze.journal("metrics") if line["evaluating"] is not None]

    spreeze.wait_until(under_way, "an evaluation", run=run)

    os.kill(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")
    first = under_way()[0]
    assert first.pop("version") > 0
    assert first == {"played": 0, "episodes": 2, "mean_return": None}
    assert spreeze.journal("evaluations") == []


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_when_a_step_hangs(signals: int, spreeze: Spreeze) -> None:
    marker = spreeze.folder / "hanging"
    run = spreeze.start_training("Toy/StepHangs-v0", env_kwargs={"marker": str(marker)}, max_seconds=90)
    spreeze.wait_until(marker.exists, "a step that hangs", run=run)

    os.kill(run.process.pid, signal.SIGINT)
    if signals == 2:
        # The others end by themselves; the second signal comes while the supervisor waits for the one that cannot.
        spreeze.wait_until(lambda: not spreeze.processes("evaluator"), "the end of the evaluator")
        os.kill(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")


@pytest.mark.parametrize("had_folder", [False, True])
def test_ctrl_c_while_the_environment_is_made_leaves_nothing(had_folder: bool, spreeze: Spreeze) -> None:
    """There are no settings yet: no command would take the folder for a run's, nor `train` for an empty one."""
    marker, log = spreeze.folder / "hanging", spreeze.run_dir / "logs" / "of-a-run-that-was-killed.log"
    if had_folder:
        log.parent.mkdir(parents=True)
        log.touch()
    before = sorted(spreeze.run_dir.rglob("*"))
    run = spreeze.start_training("Toy/ConstructorHangs-v0", env_kwargs={"marker": str(marker)}, max_seconds=90)
    spreeze.wait_until(marker.exists, "a constructor that hangs", run=run)

    os.kill(run.process.pid, signal.SIGINT)

    finished = run.finish(STOP_GUARD_S)
    assert not spreeze.processes()
    assert (finished.returncode, finished.stderr) == (130, "")
    kept = f"{spreeze.run_dir} is as it was" if had_folder else "no run folder is left"
    assert finished.stdout == f"Ended while Toy/ConstructorHangs-v0 was being made: {kept}\n"
    assert sorted(spreeze.run_dir.rglob("*")) == before
    assert spreeze.run_dir.exists() == had_folder


@pytest.mark.full
@pytest.mark.parametrize("role", ["sampler", "evaluator"])
def test_ctrl_c_when_a_constructor_hangs(role: str, spreeze: Spreeze) -> None:
    marker = spreeze.folder / "hanging"
    env_kwargs = {"marker": str(marker), "role": role}
    run = spreeze.start_training("Toy/ConstructorHangs-v0", env_kwargs=env_kwargs, max_seconds=90)
    spreeze.wait_until(marker.exists, "a constructor that hangs", run=run)

    os.kill(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")


def test_time_is_up_while_the_environment_is_looked_at(spreeze: Spreeze) -> None:
    env_kwargs = {"marker": str(spreeze.folder / "hanging")}
    finished = spreeze.train("Toy/ConstructorHangs-v0", env_kwargs=env_kwargs, max_seconds=3)
    assert finished.returncode == 1, finished.stderr
    assert "no environment step was made: Toy/ConstructorHangs-v0 was not made and examined" in finished.stderr
    summary = spreeze.read("summary.json")
    assert (summary["stop_reason"], summary["env_steps"], summary["checkpoint_s"]) == ("max_seconds", 0, 0.0)
    assert read_run_config(spreeze.run_dir).limits.max_seconds == 3  # the folder is one that commands understand


def test_a_run_whose_steps_never_return_fails_when_its_time_is_up(spreeze: Spreeze) -> None:
    env_kwargs = {"marker": str(spreeze.folder / "hanging")}
    finished = spreeze.train("Toy/StepHangs-v0", env_kwargs=env_kwargs, max_seconds=9, stall_s=1)
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert line.startswith("spreeze: no environment step was made: ")
    (error,) = [event["reason"] for event in spreeze.journal("events") if event["kind"] == "error"]
    assert line == f"spreeze: {error}"
    assert spreeze.read("summary.json")["stop_reason"] == "max_seconds"
    # It was said long before, and once.
    warnings = [event["reason"] for event in spreeze.journal("events") if event["kind"] == "warning"]
    (warning,) = (each for each in warnings if each.startswith("no environment step for "))
    assert "a constructor, reset or step of the environment takes long" in warning, warnings


# What a learner's process runs first: it does not come to its loop.
HANGING_LEARNER = """
import sys
if "learner" in sys.orig_argv and pathlib.Path(HERE, "hangs").exists():
    from spreeze.learning import learner
    def hang(*_):
        pathlib.Path(HERE, "hanging").touch()
        time.sleep(600)
    learner.make_algorithm = hang
"""


def test_ctrl_c_does_not_wait_for_a_learner_that_is_being_started(spreeze: Spreeze) -> None:
    """It may be busy for minutes, with gigabytes of a checkpoint, and has nothing to save that was not saved.

    That it does not learn meanwhile is said.
    """
    (spreeze.folder / "sitecustomize.py").write_text(
        f"import pathlib, time\nHERE = {str(spreeze.folder)!r}\n{HANGING_LEARNER}"
    )
    environment = {"PYTHONPATH": os.pathsep.join((str(spreeze.folder), spreeze.variables()["PYTHONPATH"]))}
    run = spreeze.start_training("Toy/Point-v0", environment=environment, max_updates=50, stall_s=0.5)
    assert run.finish().returncode == 0
    (spreeze.folder / "hangs").touch()
    before = len(spreeze.journal("events"))
    run = spreeze.start("resume", "run", "--max-seconds", 600, environment=environment)
    spreeze.wait_until((spreeze.folder / "hanging").exists, "a learner that is being started", run=run)

    def is_told() -> bool:
        reasons = [event["reason"] for event in spreeze.journal("events")[before:]]
        return any(reason.startswith("no update for ") and "is still starting" in reason for reason in reasons)

    spreeze.wait_until(is_told, "a warning that there are no updates", run=run)

    os.kill(run.process.pid, signal.SIGINT)

    finished = _assert_interrupted(spreeze, run, "interrupted")
    assert "checkpoint" not in finished.stdout  # none is waited for, nor missed
    assert spreeze.read("summary.json")["checkpoint_s"] == 0.0


@pytest.mark.parametrize("moment", ["imports", "imports that turn it into an error"])
def test_ctrl_c_while_a_command_is_being_started(moment: str, spreeze: Spreeze) -> None:
    interrupt = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    if moment == "imports":
        hook = "import sys\nclass Finder:\n    def find_spec(self, name, *_):\n"
        press = "        if name == 'spreeze.commands.cli':\n            raise KeyboardInterrupt\n"
        (spreeze.folder / "sitecustomize.py").write_text(hook + press + "sys.meta_path.insert(0, Finder())\n")
    else:
        indented = interrupt.replace("\n", "\n    ")
        (spreeze.folder / "own.py").write_text(
            f"try:\n    {indented}\nexcept KeyboardInterrupt:\n    raise ImportError('there is no NumPy')\n"
        )
    path = os.pathsep.join((str(spreeze.folder), spreeze.variables()["PYTHONPATH"]))
    words = ("train", "Own-v0", "--env-module", "own", "--serial")  # imports it in its own process
    finished = spreeze.start(*words, environment={"PYTHONPATH": path}).finish()
    said = "Ended while Own-v0 was being made: no run folder is left\n" if "error" in moment else ""
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, said, "")


def test_impatient_ctrl_c(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", max_seconds=90)
    _wait_for_policy(spreeze, run)

    (spreeze.run_dir / "checkpoint").mkdir(exist_ok=True)
    unfinished = spreeze.run_dir / "checkpoint" / ".state-all-000001.safetensors.12345"
    unfinished.touch()  # as of a learner that is killed while it writes

    # Faster than a key repeats, until it has summed up: some fall into the killing, some into what follows.
    summary = spreeze.run_dir / "summary.json"
    deadline = time.monotonic() + STOP_GUARD_S
    while run.process.poll() is None and not summary.exists() and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.process.pid, signal.SIGINT)
        time.sleep(0.005)

    _assert_interrupted(spreeze, run, "interrupted")
    assert not unfinished.exists()


def test_ctrl_c_interrupts_a_script_too(spreeze: Spreeze) -> None:
    script = spreeze.folder / "script.py"
    script.write_text(
        "import spreeze, toy_envs\n"
        "try:\n"
        "    spreeze.train('Toy/Point-v0', run_dir='run', device='cpu', samplers=1, hidden=(8, 8), batch_size=16,\n"
        "                  max_seconds=90, quiet=True, env_module='toy_envs')\n"
        "except KeyboardInterrupt:\n"
        "    print('the script goes on')\n"
    )
    run = spreeze.start_python(script)
    _wait_for_policy(spreeze, run)

    os.killpg(run.process.pid, signal.SIGINT)

    finished = run.finish(STOP_GUARD_S)
    assert finished.stderr == ""
    assert finished.stdout == "the script goes on\n"
    assert finished.returncode == 0
    assert spreeze.read("summary.json")["stop_reason"] == "interrupted"


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_supervisor_takes_all_processes_with_it(moment: str, spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", samplers=2, max_seconds=90)
    MOMENTS[moment](spreeze, run)
    spreeze.wait_until(lambda: spreeze.processes("learner"), "a learner", run=run)
    if moment == "training":
        spreeze.wait_for_updates(run)  # so that there is something in its journals

    run.process.kill()

    run.finish(STOP_GUARD_S)
    spreeze.wait_until(lambda: not spreeze.processes(), "the end of all processes", STOP_GUARD_S)
    assert not (spreeze.run_dir / "summary.json").exists()
    for journal in ("metrics", "evaluations", "events"):
        spreeze.journal(journal)  # what was written before is whole


def test_stopped_process_does_not_keep_a_run_from_ending(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", max_seconds=90)
    _wait_for_policy(spreeze, run)
    (victim,) = spreeze.processes("learner")
    victim.suspend()

    os.kill(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")


def _assert_interrupted(spreeze: Spreeze, run: Running, stop_reason: str) -> Finished:
    finished = run.finish(STOP_GUARD_S)
    assert not spreeze.processes()  # a run that ends in order waits for its processes
    assert "Traceback" not in finished.stderr, finished.stderr
    assert finished.returncode == 130
    assert finished.stderr == ""
    assert spreeze.read("summary.json")["stop_reason"] == stop_reason
    return finished


@pytest.mark.parametrize("where", ["constructor", "import"])
def test_environment_that_takes_over_its_process_leaves_the_run_alone(where: str, spreeze: Spreeze) -> None:
    """It ignores signals, changes the folder, and has a thread that never ends: in a process that is not ours."""
    (spreeze.folder / "takes_over.py").write_text(
        "import os, signal, threading, time\n"
        "import gymnasium, toy_envs\n"
        "def take_over():\n"
        "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "        signal.signal(number, signal.SIG_IGN)\n"
        "    os.chdir('/')\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "class TakesOver(toy_envs.Point):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        if WHERE == 'constructor': take_over()\n"
        f"WHERE = {where!r}\n"
        "if WHERE == 'import': take_over()\n"
        "gymnasium.register('TakesOver-v0', TakesOver, max_episode_steps=20)\n"
    )
    path = {
        "PYTHONPATH": os.pathsep.join(
            (str(spreeze.folder), str(Path(__file__).parents[1] / "integration"), os.environ.get("PYTHONPATH", ""))
        )
    }
    run = spreeze.start_training("TakesOver-v0", environment=path, env_module="takes_over", max_seconds=90)
    _wait_for_policy(spreeze, run)

    os.kill(run.process.pid, signal.SIGINT)

    _assert_interrupted(spreeze, run, "interrupted")
