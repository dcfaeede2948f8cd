"""Registers PyBullet's environments with Gymnasium.

In: `pybullet_envs`, written for `gym`, Gymnasium's predecessor. Out: its ids in Gymnasium's registry, with their time
limits. `gym` itself is not needed: a stand-in takes its place while the package is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

PACKAGE = "pybullet_envs"
# Kuka environments share one physics engine per process, so several would move each other's robot. RacecarZed opens a
# window, and ends the process if there is no screen.
UNUSABLE = ("Kuka", "RacecarZed")


def register_all() -> None:
    """Register the environments of the package with Gymnasium."""
    with _stand_ins():
        if PACKAGE in sys.modules:  # imported before with the real `gym`: it has registered its ids there
            importlib.reload(sys.modules[PACKAGE])
        else:
            importlib.import_module(PACKAGE)


class BulletEnv(gymnasium.Env[Any, Any]):
    """An environment of the package. Its `done` means terminated: it has no time limit of its own."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012 (as in all of Gymnasium's)

    def __init__(self, bullet_class: str, render_mode: str | None = None, **kwargs: Any) -> None:
        module, _, name = bullet_class.partition(":")
        with _stand_ins():
            make = getattr(importlib.import_module(module), name)
        self.render_mode = render_mode
        self._env = make(**kwargs)
        # It would move the camera of a window that is not there, and ask the first engine of the process for it.
        self._env.camera_adjust = _do_nothing
        self.action_space = self._env.action_space
        self.observation_space = self._env.observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._env.seed(seed)
        return np.asarray(self._env.reset()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        observation, reward, done, info = self._env.step(action)
        return np.asarray(observation), float(reward), bool(done), False, info

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture, if the environment was made with a render mode."""
        if self.render_mode is None:
            return None
        picture: NDArray[np.uint8] = np.asarray(self._env.render("rgb_array"), np.uint8)
        return picture

    def close(self) -> None:
        """End the physics engine's session."""
        self._env.close()


# --- in place of gym --------------------------------------------------------------------------------------------


class _OldEnv:
    """Stands in for `gym.Env`, the base class of the package's environments."""

    metadata: ClassVar[dict[str, Any]] = {}
    spec = None

    def close(self) -> None:
        """Do nothing: some classes do not define it."""


class _OldRegistry:
    """Stands in for gym's registry, which the package reads before it registers an id."""

    env_specs = gymnasium.registry


def _register(
    id: str,
    entry_point: str,
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
) -> None:
    if id.startswith(UNUSABLE):
        return
    gymnasium.register(
        id,
        f"{__name__}:{BulletEnv.__name__}",
        reward_threshold=reward_threshold,
        max_episode_steps=max_episode_steps,
        kwargs={"bullet_class": entry_point},
    )


def _do_nothing() -> None:
    pass


def _np_random(seed: int | None = None) -> tuple[np.random.RandomState, int | None]:
    # The generator that gym returned when the package was written: HumanoidFlagrunHarder calls its randint.
    return np.random.RandomState(seed), seed


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _module(name: str, **content: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


def _gym_modules() -> dict[str, ModuleType]:
    spaces = gymnasium.spaces
    seeding = _module("gym.utils.seeding", np_random=_np_random)
    utils = _module("gym.utils", seeding=seeding)
    registration = _module(
        "gym.envs.registration",
        registry=_OldRegistry(),
        register=_register,
        make=gymnasium.make,
        spec=gymnasium.spec,
    )
    envs = _module("gym.envs", registration=registration)
    # The last version of gym with the interface that the package was written for.
    gym = _module("gym", Env=_OldEnv, spaces=spaces, utils=utils, envs=envs, __version__="0.21.0")
    named = {module.__name__: module for module in (gym, utils, seeding, envs, registration)}
    # Removed in setuptools 82; the package uses it to ask whether gym is older than 0.9.6.
    return {**named, "gym.spaces": spaces, "pkg_resources": _module("pkg_resources", parse_version=_parse_version)}


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    """Let imports of `gym` find stand-ins, and restore the real modules afterwards."""
    hidden = {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] in ("gym", "pkg_resources")
    }
    stand_ins = _gym_modules()
    path = list(sys.path)
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(stand_ins)
    # Its modules import each other without the name of the package, and some insert folders at the front of the path.
    sys.path.append(str(_folder()))
    try:
        yield
    finally:
        sys.path[:] = path
        for name in stand_ins:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def _folder() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None, "it comes with pybullet"
    assert found.origin is not None
    return Path(found.origin).parent
