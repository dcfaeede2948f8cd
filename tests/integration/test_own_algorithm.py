"""An algorithm from outside: the example, looked at from all sides, and classes that are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import Look, free_port, open_chromium

import spreeze as package
from spreeze.algorithms import ALGORITHMS
from spreeze.commands import cli
from spreeze.commands.train import training_config
from spreeze.config import Config
from spreeze.config.own_settings import short_name
from spreeze.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Finished, Spreeze

EXAMPLES = Path(__file__).parents[2] / "examples"
ALGO = "own_algorithm:FixedTemperatureSac"
FIGURES = ["critic_loss", "actor_loss", "smoothness_loss"]
OWN = {"fixed_temperature": 0.1, "smoothness": 0.5}
UPDATES = 200
# Steps of 4 ms: at least one line of metrics shows updates, however fast the machine is.
PACED: dict[str, Any] = {"env_kwargs": {"step_s": 0.004}, "warmup_steps": 40, "eval_episodes": 1}
HANG_GUARD_S = 600.0


# --- one run, looked at from all sides ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(module_spreeze: Spreeze) -> Finished:
    """A run in one process, with the example next to where the command is typed."""
    shutil.copy(EXAMPLES / "own_algorithm.py", module_spreeze.folder)
    words = module_spreeze.small(**PACED, **OWN, algo=ALGO, serial=True, max_updates=UPDATES)
    # As the installed command: -P keeps Python from adding the current folder, Spreeze has to.
    finished = module_spreeze.start_python("-P", "-m", "spreeze", "train", "Toy/Point-v0", *words).finish()
    assert finished.returncode == 0, finished.stderr
    return finished


def test_its_figures_and_settings_are_in_the_files_of_the_run(run: Finished, module_spreeze: Spreeze) -> None:
    assert run.stdout.startswith("FixedTemperatureSac on Toy/Point-v0")
    lines = [line for line in module_spreeze.journal("metrics") if line["updates"]]
    assert lines
    for line in lines:
        assert list(line)[-len(FIGURES) :] == FIGURES
    assert lines[-1]["critic_loss"] > 0
    assert lines[-1]["smoothness_loss"] > 0
    config = module_spreeze.read("config.json")
    assert {name: config[name] for name in OWN} == OWN
    assert config["algo"] == ALGO
    # As for a Gaussian policy, which the class declares.
    assert (config["exploration"], config["exploration_high"]) == (1.0, 1.0)


def test_its_loss_is_in_tensorboard(run: Finished, module_spreeze: Spreeze) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    del run
    events = EventAccumulator(str(module_spreeze.run_dir / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    shown = [one.value for one in events.Scalars("train/smoothness_loss")]
    written = [line["smoothness_loss"] for line in module_spreeze.journal("metrics") if line["updates"]]
    assert shown == pytest.approx(written)


def test_its_loss_is_on_the_page(run: Finished, module_spreeze: Spreeze, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    del run
    with open_chromium() as browser:  # first: without one the test is skipped here, and nothing is left to end
        serving = module_spreeze.start("dashboard", "run", "--port", free_port())
        module_spreeze.wait_until(lambda: "token=" in serving.said(), "an address", run=serving)
        address = re.search(r"http://\S+", serving.said())
        assert address
        look = Look(browser, tmp_path)
        page = look(address[0])
        page.get_by_role("tab", name="Learning").click()
        for title in ("Critic loss", "Actor loss", "Smoothness loss"):
            chart = page.get_by_role("img", name=f"{title} against wall time").locator("svg")
            expect(chart).to_be_visible(timeout=30_000)
        page.get_by_role("tab", name="Settings").click()
        expect(page.get_by_role("row", name="smoothness")).to_contain_text("0.5", timeout=30_000)
        assert look.problems == []
    serving.process.terminate()
    serving.finish()


def test_its_policy_is_used_without_it_and_without_torch(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    environment = module_spreeze.without("own_algorithm")
    environment["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"  # the toy environments
    scored = module_spreeze("evaluate", "run", "--episodes", 2, "--json", "scores.json", environment=environment)
    assert scored.returncode == 0, scored.stderr
    best = max(line["mean_return"] for line in module_spreeze.journal("evaluations"))
    assert module_spreeze.read("scores.json", module_spreeze.folder)["mean_return"] == pytest.approx(best, rel=1e-4)

    exported = module_spreeze("export", "run", "--out", "policy.safetensors", environment=environment)
    assert exported.returncode == 0, exported.stderr
    program = "import spreeze; print(spreeze.load_policy('policy.safetensors')([1.0]).tolist())"
    acted = module_spreeze.start_python("-c", program, environment=environment).finish()
    assert acted.returncode == 0, acted.stderr
    assert json.loads(acted.stdout) == package.load_policy(module_spreeze.run_dir)([1.0]).tolist()


def test_it_is_resumed_by_its_name(run: Finished, module_spreeze: Spreeze) -> None:
    del run
    lost = module_spreeze("resume", "run", "--max-updates", 220, environment=_without_own_algorithm(module_spreeze))
    assert (lost.returncode, lost.stderr.count("\n")) == (2, 1)
    assert "there is no module 'own_algorithm'" in lost.stderr

    resumed = module_spreeze("resume", "run", "--max-updates", 220)
    assert resumed.returncode == 0, resumed.stderr
    assert module_spreeze.read("summary.json")["updates"] == 220
    assert module_spreeze.read("config.json")["smoothness"] == 0.5


def _without_own_algorithm(spreeze: Spreeze) -> dict[str, str]:
    folder = spreeze.folder / "other"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['own_algorithm'] = None\n")
    return {
        "PYTHONPATH": os.pathsep.join((str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    }


@pytest.mark.usefixtures("modules")
def test_the_page_about_it_shows_the_example_and_a_test_that_passes() -> None:
    text = (EXAMPLES.parent / "docs" / "algorithms" / "your-own.md").read_text()
    example, test = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert example in (EXAMPLES / "own_algorithm.py").read_text()
    names: dict[str, Any] = {}
    exec(test, names)
    names["test_the_penalty_makes_actions_smoother"]()


# --- in processes of its own -------------------------------------------------------------------------------------


def test_it_learns_on_two_devices(spreeze: Spreeze) -> None:
    shutil.copy(EXAMPLES / "own_algorithm.py", spreeze.folder)
    apart = {"split": None, "actor_device": "cpu", "critic_device": "cpu", "exchange_updates": 16}
    settings = {"env_kwargs": {"step_s": 0.002}, "min_updates_per_step": 0.4, "max_updates_per_step": 0.5}

    finished = spreeze.train("Toy/Point-v0", algo=ALGO, **apart, **settings, max_updates=600)

    assert finished.returncode == 0, finished.stderr
    metrics = spreeze.journal("metrics")
    assert metrics[-1]["exchanged_bytes"] > 0
    for name in FIGURES:  # each from the side that computes it
        assert any(line[name] for line in metrics), name


@pytest.mark.gpu
def test_its_updates_are_captured(spreeze: Spreeze) -> None:
    shutil.copy(EXAMPLES / "own_algorithm.py", spreeze.folder)
    finished = spreeze.train("Toy/Point-v0", algo=ALGO, device="cuda", max_updates=400)
    assert finished.returncode == 0, finished.stderr
    events = spreeze.journal("events")
    assert [event for event in events if event["kind"] == "kernels" and "from the eager ones" in event["reason"]]
    assert [event for event in events if event["kind"] == "warning"] == []


# Learners import neither the script nor what its annotations name: the classes travel as they are.
SCRIPT = """
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import spreeze
from own_algorithm import FixedTemperatureSac
from toy_envs import Point

SETTINGS = dict(
    device="cpu", split="no", samplers=1, envs_per_sampler=2, warmup_steps=50, hidden=(8, 8), batch_size=16,
    publish_interval_s=0.05, eval_episodes=1, eval_interval_s=0.05, max_episode_steps=20, quiet=True,
)


@dataclass(frozen=True)
class MySettings:
    fixed_temperature: float = 0.2
    smoothness: float | Literal["auto"] = "auto"


class OfScript(FixedTemperatureSac):
    Settings = MySettings

    def __init__(self, spec):
        super().__init__(spec)
        print("smoothness is", self.settings.smoothness)

    def update_actor(self, batch, noise):
        loss = self.sample_action(self.actor.trainable, batch.observation, noise)[0].square().mean()
        self.descend("actor", self.actor, loss)
        return {"actor_loss": loss, "smoothness_loss": loss}


def experiment():
    class OfFunction(OfScript):
        pass

    result = spreeze.train(Point, algo=OfFunction, smoothness=0.5, max_updates=20, **SETTINGS)
    return spreeze.resume(result.run_dir, env=Point, algo=OfFunction, max_updates=40)


whole = spreeze.Config("toy_envs:Toy/Point-v0", algo="own_algorithm:FixedTemperatureSac")
spreeze.train(whole, run_dir="whole", serial=True, max_updates=20, **SETTINGS)
spreeze.train(Point, algo=OfScript, run_dir="run", max_updates=20, **SETTINGS)
print(experiment().run_dir)
"""


def test_classes_of_a_script_and_of_a_function_are_trained(spreeze: Spreeze) -> None:
    shutil.copy(EXAMPLES / "own_algorithm.py", spreeze.folder)
    (spreeze.folder / "script.py").write_text(SCRIPT)

    finished = spreeze.start_script(spreeze.folder / "script.py").finish()

    assert finished.returncode == 0, finished.stderr
    of_script, of_function = spreeze.run_dir, spreeze.folder / finished.stdout.splitlines()[-1]
    assert re.fullmatch(r"Point-OfFunction-[\d-]+", of_function.name)
    assert [spreeze.read("summary.json", path)["updates"] for path in (of_script, of_function)] == [20, 40]
    assert [spreeze.read("config.json", path)["smoothness"] for path in (of_script, of_function)] == ["auto", 0.5]
    assert spreeze.read("config.json", spreeze.folder / "whole")["smoothness"] == 0.1
    assert "smoothness is auto" in (of_script / "logs" / "learner.log").read_text()

    refused = spreeze("resume", of_function, "--max-updates", 50)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.learning
@pytest.mark.full
def test_example_solves_pendulum_as_it_stands(spreeze: Spreeze) -> None:
    finished = spreeze.start_script(EXAMPLES / "own_algorithm.py").finish(HANG_GUARD_S)
    assert finished.returncode == 0, finished.stderr
    assert "return -200 reached" in finished.stdout


# --- the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, and a module full of mistakes, where this process can import them."""
    before = set(sys.modules)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    (tmp_path / "broken.py").write_text("import json\nx = 1 / 0\n")
    (tmp_path / "needy.py").write_text("import json\n\nimport no_such_package\n")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    for name in {"own_algorithm", "mistakes", "broken", "needy"} - before:
        sys.modules.pop(name, None)


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        training_config([*words, "--help"])
    assert stopped.value.code == 0
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.usefixtures("modules")
def test_help_lists_its_settings_and_no_other_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    own = help_of(capsys, "--algo", ALGO)
    assert "--smoothness FLOAT Weight of the penalty on actions" in own
    assert "(default: 0.1)" in own
    assert "--initial-temperature" not in own
    of_default = help_of(capsys)
    assert "--smoothness" not in of_default
    assert f"MODULE:CLASS for one of your own. Built in: {', '.join(ALGORITHMS)}." in of_default


@pytest.mark.usefixtures("modules")
def test_a_class_that_inherits_from_another_algorithm_has_its_settings(tmp_path: Path) -> None:
    config = training_config(["x", "--algo", "mistakes:MySac", "--initial-temperature", "0.3"])
    assert config.own == {"initial_temperature": 0.3, "target_entropy": "auto"}
    (tmp_path / "config.json").write_text(json.dumps(config.flat()))
    assert training_config(["--config", "config.json"]).own == config.own


@pytest.mark.usefixtures("modules")
def test_a_setting_that_was_removed_since_the_run_is_named() -> None:
    of_run = Config.from_flat({"env": "x", "algo": ALGO, "smoothness": 0.5, "roughness": 1})
    with pytest.raises(ConfigError, match="has no setting 'roughness': it has fixed_temperature, smoothness"):
        of_run.with_all_own_settings()


@pytest.mark.parametrize("name", ["m:Mine", "a.b:Mine", "__main__:Mine", "m:f.<locals>.Mine", "Mine"])
def test_a_folder_is_named_by_the_class(name: str) -> None:
    assert short_name(name) == "Mine"


# --- classes that are refused ------------------------------------------------------------------------------------

MISTAKES = """
from dataclasses import dataclass, field
from own_algorithm import FixedTemperatureSac
from spreeze.algorithms import ActorCritic, Figure
from spreeze.algorithms.sac import Sac

class MySac(Sac):
    pass

class NoAlgorithm:
    pass

class NoSteps(ActorCritic):
    pass

class NoFigures(ActorCritic):
    policy_kind = "gaussian"
    update_critic = update_actor = FixedTemperatureSac.update_critic

class EmptyFigures(FixedTemperatureSac):
    figures = ()

class FigureTwice(FixedTemperatureSac):
    figures = (Figure("critic_loss", "critic"), Figure("critic_loss", "actor"))

class FigureOfSpreeze(FixedTemperatureSac):
    figures = (Figure("critic_loss", "critic"), Figure("env_steps", "actor"))

class LongFigure(FixedTemperatureSac):
    figures = (Figure("very_" * 20 + "long_loss", "critic"),)

class ManyFigures(FixedTemperatureSac):
    figures = tuple(Figure(f"number_{i}", "critic") for i in range(33))

class UnknownPolicy(FixedTemperatureSac):
    policy_kind = "mixture"

class SettingOfSpreeze(FixedTemperatureSac):
    @dataclass(frozen=True)
    class Settings:
        batch_size: int = 3

class NoDefault(FixedTemperatureSac):
    @dataclass(frozen=True)
    class Settings:
        weight: float

class NoFlag(FixedTemperatureSac):
    @dataclass(frozen=True)
    class Settings:
        weights: dict = field(default_factory=dict)

class NoDataclass(FixedTemperatureSac):
    class Settings:
        weight: float = 1.0

class NotFrozen(FixedTemperatureSac):
    @dataclass
    class Settings:
        weight: float = 1.0

class FigureNames(FixedTemperatureSac):
    figures = ("critic_loss", "actor_loss")

class OneFigure(FixedTemperatureSac):
    figures = Figure("critic_loss", "critic")

class FigureOfCritics(FixedTemperatureSac):
    figures = (Figure("critic_loss", "critics"),)

class NoCritics(FixedTemperatureSac):
    critics = 0

class RecipeOfWords(FixedTemperatureSac):
    recipe = {"actor_delay": 2}

class NoNoise(FixedTemperatureSac):
    def update_critic(self, batch):
        return {}

class NoSpec(FixedTemperatureSac):
    def __init__(self):
        pass
"""
REFUSED = {
    "--algo no_such_module:Mine": "there is no module 'no_such_module'",
    "--algo mistakes:Mine": "the module 'mistakes' has no 'Mine'",
    "--algo mistakes": "--algo 'mistakes' is not known: there are auto, sac, td3, ddpg, dqn, and MODULE:CLASS",
    "--algo __main__:Mine": "was defined in a script",
    "--algo mistakes:NoAlgorithm": "must be a class that inherits from ActorCritic",
    "--algo mistakes:NoSteps": "does not define update_actor, update_critic",
    "--algo mistakes:NoFigures": "does not declare figures",
    "--algo mistakes:EmptyFigures": "declares the figures none",
    "--algo mistakes:FigureTwice": "critic_loss, critic_loss: each needs a name of its own",
    "--algo mistakes:FigureOfSpreeze": "the figure 'env_steps' has a name that Spreeze uses",
    "--algo mistakes:LongFigure": "more than 64 letters",
    "--algo mistakes:ManyFigures": "declares 33 figures: there is room for 32",
    "--algo mistakes:UnknownPolicy": "'mixture': it must be gaussian or deterministic",
    "--algo mistakes:SettingOfSpreeze": "the setting 'batch_size' has a name that Spreeze uses",
    "--algo mistakes:NoDefault": "its setting 'weight' needs a default",
    "--algo mistakes:NoFlag": "its setting 'weights' cannot be a flag",
    "--algo mistakes:NoDataclass": "its Settings must be a dataclass",
    "--algo mistakes:NotFrozen": "its Settings must be frozen: @dataclass(frozen=True)",
    "--algo mistakes:FigureNames": 'its figures must be a tuple of Figure, like (Figure("critic_loss", "critic"),)',
    "--algo mistakes:OneFigure": "its figures must be a tuple of Figure",
    "--algo mistakes:FigureOfCritics": "the side 'critics': it must be critic or actor",
    "--algo mistakes:NoCritics": "declares 0 critics: it must be a whole number above 0",
    "--algo mistakes:RecipeOfWords": "its recipe must be a Recipe, like Recipe(actor_delay=2)",
    "--algo mistakes:NoNoise": "its update_critic(self, batch) is called with batch and noise: write `def update_",
    "--algo mistakes:NoSpec": "its __init__(self) is called with spec: write `def __init__(self, spec)`",
    "--algo broken:Mine": "importing 'broken' raised ZeroDivisionError: division by zero (broken.py, line 2)",
    "--algo needy:Mine": "no module 'no_such_package', which 'needy' imports (needy.py, line 3): install",
    "--algo mistakes.py:MySac": "'mistakes.py' is a file: name its module, mistakes, and run in its folder",
    "--algo folder/mistakes:MySac": "'folder/mistakes' is a file: name its module, mistakes",
    "--algo mistakes.MySac": "'mistakes.MySac' is not known: did you mean mistakes:MySac?",
    f"--algo {ALGO} --smoothness -1": "--fixed-temperature and --smoothness must be at least 0",
    f"--algo {ALGO} --smoothness much": "--smoothness must be a number, not 'much'",
    f"--algo {ALGO} --smothness 1": "did you mean --smoothness?",
    f"--algo {ALGO} --target-noise 1": "--target-noise is a setting of td3",
    "--algo sac --target-noise 1": "--target-noise is a setting of td3: leave it out, or use --algo td3",
    "--algo sac --smoothness 1": "there is no flag '--smoothness'",
}


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_trained_is_refused_in_one_line(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt = signal.getsignal(signal.SIGINT)
    # If it were not refused, it would be over soon.
    ends = ("--serial", "--max-env-steps", "10", "--run-dir", "run")
    monkeypatch.setattr(sys, "argv", ["spreeze", "train", "Pendulum-v1", *ends, *words.split()])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    signal.signal(signal.SIGINT, interrupt)  # the command ignores it at its end
    said = capsys.readouterr()
    assert stopped.value.code == 2, said.err
    assert said.err.startswith("spreeze: ")
    assert said.err.count("\n") == 1
    assert REFUSED[words] in said.err
    assert said.out == ""
    assert not Path("run").exists()


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", ["NoFigures", "FigureOfSpreeze", "ManyFigures", "SettingOfSpreeze"])
def test_classes_passed_from_python_are_refused_too(name: str) -> None:
    import mistakes  # type: ignore[import-not-found]

    with pytest.raises(ConfigError, match=name):
        package.train("Pendulum-v1", algo=getattr(mistakes, name), serial=True, max_env_steps=10, run_dir="run")
    assert not Path("run").exists()


@pytest.mark.usefixtures("modules")
def test_what_is_neither_a_name_nor_a_class_is_refused() -> None:
    import mistakes

    for algo in (mistakes, mistakes.NoAlgorithm()):
        with pytest.raises(
            ConfigError, match="algo must be a name, or a class that inherits from ActorCritic, not <m"
        ):
            package.train("Pendulum-v1", algo=algo, serial=True, max_env_steps=10, run_dir="run")
