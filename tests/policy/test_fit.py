"""A policy plays only in the environment that it was trained in: others are refused in one line, with both values."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from spreeze.channels.spaces import ContinuousActions, DiscreteActions, Spaces
from spreeze.commands.evaluate import evaluate_run
from spreeze.environments.spaces import spaces_of
from spreeze.errors import RunFolderError
from spreeze.policy.export import export_policy
from spreeze.policy.file import load_policy
from spreeze.policy.fit import require_fit
from spreeze.views import video
from spreeze.views.watch import WatchRequest, watch_run

RUN = Path(__file__).parent.parent / "fixtures" / "runs-0.1" / "sac-pendulum"


class Robot(gymnasium.Env[Any, Any]):
    """Has the spaces that it is given."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, high: float = 2.0, render_mode: str | None = None) -> None:
        self.action_space = spaces.Box(-2.0, high, (1,), np.float32)
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), float(action[0]), False, False, {}

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was trained on Pendulum, whose config names an environment with an argument of its own."""
    monkeypatch.setitem(gymnasium.registry, "Robot-v0", gymnasium.envs.registration.EnvSpec("Robot-v0", Robot))
    run = Path(shutil.copytree(RUN, tmp_path / "run"))
    set_high(run, 2.0)
    return run


def set_high(run: Path, high: float) -> None:
    config = json.loads((run / "config.json").read_text())
    changed = {"env": "Robot-v0", "env_kwargs": json.dumps({"high": high}), "max_episode_steps": 5}
    (run / "config.json").write_text(json.dumps({**config, **changed}))


USES: dict[str, Callable[[Path], object]] = {
    "evaluate": lambda run: evaluate_run(run, 1, 0, None),
    "evaluate a file": lambda run: evaluate_run(next((run / "weights").iterdir()), 1, 0, None),
    "watch": lambda run: watch_run(run, WatchRequest(episodes=1, record=run.parent / "video.mp4")),
}


@pytest.mark.parametrize("use", USES)
def test_another_range_of_actions_is_refused_with_both_values(run: Path, use: str) -> None:
    if use == "watch" and not video.is_installed():
        pytest.skip("needs PyAV")
    USES[use](run)
    set_high(run, 3.0)
    with pytest.raises(RunFolderError) as refused:
        USES[use](run)
    assert refused.value.exit_code == 2
    line = str(refused.value)
    assert line.startswith(f"Robot-v0 is not the environment that the policy of '{run}' was trained in: ")
    assert "action high was 2.0 and is 3.0 now; " in line


def test_an_exported_policy_has_the_spaces_that_it_was_trained_with(run: Path, tmp_path: Path) -> None:
    export_policy(run, tmp_path / "policy.safetensors")
    require_fit(load_policy(tmp_path / "policy.safetensors").spaces, spaces_of(Robot(), "Robot-v0"), "Robot-v0", run)
    with pytest.raises(RunFolderError, match=r"action high was 2\.0 and is 3\.0 now"):
        require_fit(load_policy(tmp_path / "policy.safetensors").spaces, spaces_of(Robot(3.0), "x"), "x", run)


def box(low: Any, high: Any, dtype: Any = np.float32) -> ContinuousActions:
    return ContinuousActions(np.array(low, dtype), np.array(high, dtype), (len(low),))


SEEN = {"kind": "box", "shape": [3]}
BOX, CHOICE = box([-1, -1], [1, 0.1]), DiscreteActions("discrete", (3,), (0,), (), "<i8")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Spaces(SEEN, box([-1, -1], [1, 0.5])), "action high[1] was 0.10"),
        (Spaces(SEEN, box([-1], [1])), "action shape was [2] and is [1] now"),
        (Spaces(SEEN, CHOICE), 'action space was "continuous" and is "discrete" now'),
        (
            Spaces({"kind": "box", "shape": [4]}, BOX),
            'was {"kind": "box", "shape": [3]} and is {"kind": "box", "shape": [4]}',
        ),
    ],
)
def test_the_first_difference_is_told(made: Spaces, said: str) -> None:
    with pytest.raises(RunFolderError) as refused:
        require_fit(Spaces(SEEN, BOX), made, "Toy-v0", Path("run"))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("trained", "made"),
    [(BOX, box([-1, -1], [1, 0.1], np.float64)), (CHOICE, DiscreteActions("discrete", (3,), (0,), (), "<i4"))],
)
def test_libraries_may_differ_in_the_type_of_the_same_actions(trained: Any, made: Any) -> None:
    require_fit(Spaces(SEEN, trained), Spaces(SEEN, made), "Toy-v0", Path("run"))


def test_another_number_of_choices_is_told() -> None:
    more = DiscreteActions("discrete", (4,), (0,), (), "<i8")
    with pytest.raises(RunFolderError, match=r"action choices was \[3\] and is \[4\] now"):
        require_fit(Spaces(SEEN, CHOICE), Spaces(SEEN, more), "Toy-v0", Path("run"))
