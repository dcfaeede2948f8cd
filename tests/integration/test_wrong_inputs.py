"""Wrong inputs teach the fix in one line and change nothing; runs that fail name the process and the cause."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spreeze.adapt.plan import usable_gpu_count
from spreeze.host.hardware import this_machine

if TYPE_CHECKING:
    from conftest import Finished, Spreeze


def _nothing(_folder: Path) -> None:
    pass


def _file(name: str, content: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    return prepare


def _other_run(folder: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "weights/policy-00000003.safetensors", "best/evaluation.json"):
        _file(f"run/{name}", f"{name} of the other run")(folder)


def _run_with_damaged_policy(folder: Path) -> None:
    _file("run/config.json", json.dumps({"env": "Pendulum-v1"}))(folder)
    _file("run/best/policy.safetensors", "\x40\0\0\0\0\0\0\0 not a header")(folder)


@dataclass(frozen=True)
class Wrong:
    """A command that has to be refused."""

    name: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    """What the line has to contain for the user to find the fix."""
    prepare: Callable[[Path], None] = _nothing
    options: dict[str, Any] = field(default_factory=dict)


def train(name: str, flags: str, *says: str, env: str = "Toy/Point-v0", **more: Any) -> Wrong:
    # A run that is started although it should not be must end by itself.
    words = ("train", env, "--env-module", "toy_envs", "--run-dir", "run", "--max-seconds", "20")
    return Wrong(name, (*words, *flags.split()), says, **more)


def evaluate(name: str, words: str, *says: str, **more: Any) -> Wrong:
    return Wrong(name, ("evaluate", *words.split()), says, **more)


NARROW = {"environment": {"COLUMNS": "20"}}
WRONG = [
    Wrong("unknown command", ("trian", "Pendulum-v1"), ("trian", "did you mean train?")),
    Wrong("no environment", ("train",), ("ENV", "spreeze train --help")),
    train("unknown flag", "--batch-sise 32", "--batch-sise", "--batch-size"),
    train(
        "unknown flag on a narrow terminal",
        "--batch-sise 32",
        "--batch-size",
        options={"environment": {"COLUMNS": "20"}},
    ),
    train("word for a number", "--batch-size many", "--batch-size", "many"),
    train("flag with underscores", "--batch_size many", "--batch-size", "many"),
    train("ring above memory", "--ring-rows 100000000000", "--ring-rows", "free"),
    train("constructor exits", "", "could not be made", env="Toy/ConstructorExits-v0"),
    train("fraction for a whole number", "--max-updates 1.5", "--max-updates", "1.5"),
    train("flag of another algorithm", "--target-noise 0.1", "--target-noise is a setting of td3", "--algo td3"),
    train("flag of an earlier version", "--transport queue", "--transport no longer exists", "shared memory"),
    train("unknown choice", "--algo sacc", "--algo", "sacc", "sac"),
    train("negative limit", "--max-updates -3", "--max-updates", "at least 1", "-3"),
    train("negative seconds", "--publish-interval-s -0.5", "--publish-interval-s", "above 0"),
    train("not a number", "--learning-rate nan", "--learning-rate", "nan"),
    train("empty batch", "--batch-size 0", "--batch-size", "at least 1"),
    train("no hidden width", "--hidden 0", "--hidden", "at least 1"),
    train("seed that torch refuses", "--seed 99999999999999999999999", "--seed"),
    train(
        "more samplers than there is room for",
        "--samplers 300",
        "--samplers",
        options={"open_files": 128},
    ),
    train("batch above replay", "--batch-size 64 --replay-rows 32", "--batch-size", "--replay-rows"),
    train(
        "minimum ratio above maximum",
        "--min-updates-per-step 2 --max-updates-per-step 1",
        "--min-updates-per-step",
        "--max-updates-per-step",
    ),
    train("replay above memory", "--replay-rows 1000000000000", "--replay-rows", "GB", "or fewer"),
    train("unknown device", "--device gpu", "--device", "cuda", "cpu"),
    train("unknown environment", "", "NoSuchEnv-v0", "--env-module", env="NoSuchEnv-v0"),
    train("unknown version", "", "HalfCheetah-v55", "HalfCheetah-v5", env="HalfCheetah-v55"),
    train("near name", "", "Pendulm-v1", "Pendulum-v1", env="Pendulm-v1"),
    train("near name of an own environment", "", "Toy/Point-v0", env="Toy/Piont-v0"),
    Wrong(
        "missing module",
        ("train", "Toy/Point-v0", "--env-module", "no_such_module", "--run-dir", "run"),
        ("--env-module", "no_such_module"),
    ),
    train("missing module before the id", "", "no_such_module", env="no_such_module:Toy/Point-v0"),
    train(
        "module that raises at import",
        "--env-module toy_envs broken_module",
        "broken_module",
        "ValueError: half a module",
        prepare=_file("broken_module.py", "raise ValueError('half a\\nmodule')\n"),
    ),
    train("missing package", "", "pip install toyphysics", env="Toy/MissingPackage-v0"),
    train("constructor raises", "", "RuntimeError: the scene file is missing", env="Toy/ConstructorRaises-v0"),
    train("arguments not JSON", "--env-kwargs bonus=3", "--env-kwargs", "not JSON"),
    train("arguments not an object", "--env-kwargs [3]", "--env-kwargs", "object"),
    train("arguments refused", '--env-kwargs {"gravity":3}', "gravity", "Toy/Point-v0"),
    train("mixed actions", "", "Dict actions", "wrap it", env="Toy/MixedActions-v0"),
    train(
        "actions of another algorithm", "--algo td3", "takes continuous actions", "are discrete", env="CartPole-v1"
    ),
    train("continuous actions for dqn", "--algo dqn", "takes discrete or", "Toy/Point-v0 are continuous"),
    train("actor of dqn elsewhere", "--algo dqn --actor-device cpu --critic-device cpu", "no actor", "use --device"),
    train("layers of dqn normalised", "--algo dqn --layer-norm", "--layer-norm", "leave it out"),
    train("delay of no actor", "--algo dqn --actor-delay 2", "--actor-delay 2", "leave it out"),
    train("no probability", "--algo dqn --exploration-high 2", "--exploration-high 2", "give 1 or less"),
    train("setting of the first guess", "--target-entropy -1", "a setting of sac", env="CartPole-v1"),
    train("unbounded actions", "", "unbounded actions", "ClipAction", env="Toy/UnboundedActions-v0"),
    train("images", "", "images", "(64, 64, 3)", env="Toy/ImageObservations-v0"),
    train("run folder is a file", "", "--run-dir run", "is a file", prepare=_file("run", "mine")),
    train("run folder holds a run", "", "--run-dir run", "already holds a run", prepare=_other_run),
    train("run folder not empty", "", "--run-dir run", "not empty", prepare=_file("run/notes.txt", "mine")),
    train("page kept without one", "--keep-dashboard --no-dashboard", "--keep-dashboard", "leave out --no-dashboard"),
    train("page of a serial run kept", "--keep-dashboard --dashboard --serial", "leave out --keep-dashboard"),
    Wrong(
        "run folder below a file",
        ("train", "Pendulum-v1", "--run-dir", "mine/run", "--max-seconds", "20"),
        ("--run-dir mine/run", "cannot be created"),
        _file("mine", "mine"),
    ),
    # The folder exists and is empty, or its parents do not exist: neither may change.
    train(
        "mixed actions, run folder exists",
        "",
        "Dict actions",
        env="Toy/MixedActions-v0",
        prepare=lambda folder: (folder / "run").mkdir(),
    ),
    Wrong(
        "wrong algorithm, run folder by default",
        ("train", "CartPole-v1", "--max-seconds", "20", "--algo", "ddpg"),
        ("CartPole-v1", "discrete"),
    ),
    train("config file missing", "--config none.json", "--config none.json", "No such file"),
    train("config file not named", "--config", "--config needs a file"),
    train("config not JSON", "--config c.json", "c.json", "not JSON", prepare=_file("c.json", "batch_size: 3")),
    train("config not an object", "--config c.json", "c.json", "object", prepare=_file("c.json", "[1]")),
    train(
        "config with an unknown key",
        "--config c.json",
        "batch_sise",
        "did you mean batch_size?",
        prepare=_file("c.json", '{"batch_sise": 3}'),
    ),
    train(
        "config with a wrong type",
        "--config c.json",
        "--batch-size",
        "'many'",
        prepare=_file("c.json", '{"batch_size": "many"}'),
    ),
    Wrong(
        "config with a number for the environment",
        ("train", "--config", "c.json", "--run-dir", "run"),
        ("env", "5"),
        _file("c.json", '{"env": 5}'),
    ),
    Wrong(
        "config without an environment",
        ("train", "--config", "c.json", "--run-dir", "run"),
        ("ENV is missing", "spreeze train ENV"),
        _file("c.json", '{"batch_size": 32}'),
    ),
    Wrong(
        "config without an environment, with a name that a shell would take apart",
        ("train", "--config", "my c.json", "--run-dir", "run"),
        ("type spreeze train ENV --config 'my c.json'",),
        _file("my c.json", '{"batch_size": 32}'),
    ),
    Wrong(
        "config and an environment after the flags",
        ("train", "--config", "c.json", "--run-dir", "run", "NoSuchEnv-v0"),
        ("there is no environment 'NoSuchEnv-v0'",),
        _file("c.json", '{"env": "Pendulum-v1"}'),
    ),
    evaluate("evaluate a missing folder", "none", "'none'", "run folder"),
    evaluate("evaluate nothing", "", "spreeze evaluate --help"),
    evaluate("evaluate a folder without policy", "run", "holds no policy", prepare=_file("run/config.json", "{}")),
    evaluate("evaluate a damaged policy", "run", "policy.safetensors", "damaged", prepare=_run_with_damaged_policy),
    evaluate("evaluate a file of another kind", "notes.txt", "notes.txt", prepare=_file("notes.txt", "mine")),
    evaluate(
        "evaluate no episodes", "run --episodes 0", "--episodes", "at least 1", prepare=_run_with_damaged_policy
    ),
    Wrong("unknown benchmark", ("bench", "samplin", "Pendulum-v1"), ("samplin", "did you mean sampling?")),
    Wrong("bench an unknown environment", ("bench", "sampling", "Pendulm-v1"), ("Pendulm-v1", "Pendulum-v1")),
    Wrong("bench for no time", ("bench", "sampling", "Pendulum-v1", "--seconds", "0"), ("--seconds",)),
    Wrong(
        "bench into a missing folder",
        ("bench", "sampling", "Pendulum-v1", "--seconds", "0.1", "--repeats", "1", "--json", "none/figures.json"),
        ("--json", "none"),
    ),
    Wrong("doctor of an unknown environment", ("doctor", "Pendulm-v1"), ("Pendulm-v1", "Pendulum-v1")),
    Wrong("doctor of two environments", ("doctor", "A-v0", "B-v0"), ("B-v0", "spreeze doctor --help")),
    Wrong(
        "doctor of no environment", ("doctor", "--max-episode-steps", "5"), ("ENV is missing", "spreeze doctor ENV")
    ),
    Wrong(
        "doctor without a module", ("doctor", "Pendulum-v1", "--env-module", "no_such"), ("no_such", "--env-module")
    ),
    Wrong("doctor and no JSON", ("doctor", "Pendulum-v1", "--env-kwargs", "g=3"), ("--env-kwargs", "not JSON")),
    Wrong(
        "doctor of a module that exits",
        ("doctor", "Pendulum-v1", "--env-module", "exits"),
        ("importing 'exits' raised SystemExit: no licence",),
        _file("exits.py", "print('noise')\nraise SystemExit('no licence')\n"),
    ),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name.replace(" ", "-"))
def test_wrong_input_is_refused_in_one_line(wrong: Wrong, spreeze: Spreeze) -> None:
    wrong.prepare(spreeze.folder)
    before = _tree(spreeze.folder)

    finished = spreeze(*wrong.words, **wrong.options)

    _assert_refused(finished, wrong.says)
    assert _tree(spreeze.folder) == before


@pytest.mark.skipif(usable_gpu_count(this_machine()) > 0, reason="there is a GPU")
def test_gpu_that_is_not_there_is_refused(spreeze: Spreeze) -> None:
    finished = spreeze("train", "Pendulum-v1", "--device", "cuda", "--run-dir", "run", "--max-seconds", "20")

    _assert_refused(finished, ("--device cuda", "--device cpu", "spreeze doctor"))
    assert _tree(spreeze.folder) == {}


def test_run_without_a_policy_cannot_be_evaluated(spreeze: Spreeze) -> None:
    # The first limit is reached before the first update, so there is no version and no best policy either.
    short = spreeze.train("Toy/Point-v0", warmup_steps=1000, max_env_steps=40)
    assert short.returncode == 0, short.stderr
    assert "Next:" not in short.stdout  # there is nothing to evaluate

    finished = spreeze("evaluate", "run")

    _assert_refused(finished, ("'run'", "holds no policy"))


@dataclass(frozen=True)
class Failing:
    """A run that starts and cannot go on."""

    name: str
    env: str
    process: str
    """Pattern of the process that has to be named."""
    cause: str
    traceback: tuple[str, ...] = ()
    """What the traceback in events.jsonl has to contain."""
    settings: dict[str, Any] = field(default_factory=dict)
    is_quick: bool = True


ANY_PLAYER = r"(sampler 0|evaluator)"  # both reset their environments when they start
FAILING = [
    Failing(
        "step raises", "StepRaises", "sampler 0", "ZeroDivisionError: the wheel fell off", ("toy_envs.py", "in step")
    ),
    Failing("reset raises", "ResetRaises", ANY_PLAYER, "no start position", ("toy_envs.py", "in reset")),
    Failing(
        "constructor raises in one process",
        "ConstructorRaisesInSampler",
        "sampler 0",
        "RuntimeError: no licence left",
        ("toy_envs.py", "in __init__"),
    ),
    Failing("lying space", "LyingSpace", ANY_PLAYER, r"shape \(1,\).*\(3,\)", ("Traceback",)),
    Failing("lying step", "LyingStep", "sampler 0", r"shape \(1,\).*\(3,\)", ("Traceback",)),
    Failing("NaN", "NotANumber", "learner", "NaN or infinity in its observation", ("Traceback",), is_quick=False),
    Failing(
        "NaN and a short warm-up",
        "NotANumber",
        "learner",
        "NaN or infinity in its observation",
        ("Traceback",),
        # Slow enough that the warm-up is over long before there is a verdict.
        {"warmup_steps": 1, "env_kwargs": {"step_s": 0.005}},
    ),
    Failing("exit", "Exits", "sampler 0", "exited with code 7"),
    Failing(
        "exit without an error",
        "Exits",
        "sampler 0",
        "exited with code 0",
        settings={"env_kwargs": {"code": 0}},
        is_quick=False,
    ),
    Failing("segfault", "Segfault", "sampler 0", "SIGSEGV"),
]


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(failing, id=failing.name.replace(" ", "-"), marks=() if failing.is_quick else pytest.mark.full)
        for failing in FAILING
    ],
)
def test_failing_run_names_process_and_cause(failing: Failing, spreeze: Spreeze) -> None:
    finished = spreeze.train(f"Toy/{failing.env}-v0", max_seconds=30, **failing.settings)

    _assert_failed(finished, failing.process, failing.cause)
    assert spreeze.read("summary.json")["stop_reason"] == "failed"
    errors = [event for event in spreeze.journal("events") if event["kind"] == "error"]
    assert len(errors) == 1
    assert re.search(failing.cause, errors[0]["reason"])
    assert errors[0]["wall_s"] > 0
    for words in failing.traceback:
        assert words in errors[0]["traceback"]


def test_failure_after_updates_keeps_what_was_learned(spreeze: Spreeze) -> None:
    # With a lower bound on the ratio the last sampler cannot come to its last step before the learner has updated. It
    # makes few steps, because one that has sampled for three seconds does not count as a failure.
    finished = spreeze.train(
        "Toy/StepRaises-v0",
        env_kwargs={"after_steps": 25},
        min_updates_per_step=1,
        warmup_steps=20,
        max_seconds=60,
    )

    _assert_failed(finished, "sampler 0", "the wheel fell off")
    summary = spreeze.read("summary.json")
    assert summary["stop_reason"] == "failed"
    assert summary["updates"] >= 300
    assert list((spreeze.run_dir / "weights").glob("policy-*.safetensors"))


def _assert_refused(finished: Finished, says: tuple[str, ...]) -> None:
    assert "Traceback" not in finished.stderr, finished.stderr
    assert finished.returncode == 2, finished.stderr
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    assert finished.stderr.startswith("spreeze: ")
    for words in says:
        assert words in finished.stderr
    assert finished.stdout == ""


def _assert_failed(finished: Finished, process: str, cause: str) -> None:
    assert finished.returncode == 1, finished.stderr
    last_line = finished.stderr.splitlines()[-1]
    assert re.match(f"spreeze: {process} failed: .*{cause}", last_line), finished.stderr


def _tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }
