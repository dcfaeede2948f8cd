"""What is imported from the folder where a command is started: the modules that the user names, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Spreeze

RUN = Path(__file__).parent.parent / "fixtures" / "runs-0.1" / "sac-pendulum"

# Of the standard library, of what we depend on, and of our own processes' first imports.
DECOYS = (
    *("__future__", "typing", "random", "json", "signal", "dataclasses", "pathlib", "multiprocessing"),
    *("torch", "numpy", "gymnasium", "tyro", "rich", "cloudpickle", "psutil"),
)
TASK = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
from spreeze.algorithms.sac import Sac

class Mine(Sac):
    pass

gymnasium.register("Mine/Pendulum-v0", PendulumEnv, max_episode_steps=20)
"""
WAYS = {"module": ("-m", "spreeze"), "script": ("bin/spreeze",)}


@pytest.fixture
def decoyed(spreeze: Spreeze) -> Spreeze:
    """A folder of the user's, with modules named like libraries, and with a task and an algorithm of the user's."""
    for name in DECOYS:
        (spreeze.folder / f"{name}.py").write_text(
            f"open({str(spreeze.folder / 'imported')!r}, 'a').write('{name} ')"
        )
    (spreeze.folder / "mytask.py").write_text(TASK)
    (spreeze.folder / "bin").mkdir()
    # What pip installs for the entry point.
    (spreeze.folder / "bin" / "spreeze").write_text("from spreeze.__main__ import main\nmain()\n")
    return spreeze


def test_own_modules_are_found_and_none_stands_in_for_a_library(decoyed: Spreeze) -> None:
    train = ("train", "Mine/Pendulum-v0", *decoyed.small(algo="mytask:Mine", env_module="mytask", max_updates=20))
    for way, *words in (
        ("module", *train),
        ("script", "resume", "run", "--max-updates", 40),  # makes every process of a run, as a training does
        ("module", "evaluate", "run", "--episodes", 1),
        ("script", "watch", "run", "--episodes", 1, "--record", "mine.mp4"),
    ):
        done = decoyed.start_python(*WAYS[way], *words).finish()
        assert done.returncode == 0, (way, words, done.stderr)
    assert not imported_in(decoyed.folder)


@pytest.mark.parametrize("way", WAYS)
def test_module_that_is_nowhere_is_named(decoyed: Spreeze, way: str) -> None:
    for flag, word in (("--algo", "nothere:Mine"), ("--env-module", "nothere")):
        refused = decoyed.start_python(*WAYS[way], "train", "Pendulum-v1", flag, word).finish()
        assert refused.returncode == 2
        assert f"{flag}: there is no module 'nothere'" in refused.stderr
    assert not imported_in(decoyed.folder)


@pytest.mark.parametrize(
    "words", [("evaluate", "."), ("watch", ".", "--record", "mine.mp4"), ("resume", ".", "--max-updates", "1000")]
)
def test_run_folder_brings_no_modules(spreeze: Spreeze, words: tuple[str, ...]) -> None:
    """One from elsewhere, of somebody who has gone into it."""
    shutil.copytree(RUN, spreeze.folder, dirs_exist_ok=True)
    config = json.loads((spreeze.folder / "config.json").read_text())
    (spreeze.folder / "config.json").write_text(json.dumps({**config, "env": "Mine-v0", "env_module": ["mine"]}))
    (spreeze.folder / "mine.py").write_text("print('mine was imported')")
    refused = spreeze(*words)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.endswith(
        "' names the module 'mine', which is not installed: from inside a run folder, nothing else is imported; "
        "go to another folder"
    )
    assert refused.stdout == ""


def imported_in(folder: Path) -> str:
    """Return the decoys that were imported."""
    mark = folder / "imported"
    return mark.read_text() if mark.exists() else ""
