"""Makes environments with the backend that is asked for: Gymnasium one at a time, MuJoCo in batches, or EnvPool.

In: an `EnvSpec`. Out: `Environments` that are stepped together, and the choice of the backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np

from spreeze.config.choice import Choice
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.batch import EnvBatch
from spreeze.environments.envpool import EnvPoolBatch, check_installed
from spreeze.environments.make import check_registered, import_modules
from spreeze.environments.mujoco import ROBOTS
from spreeze.environments.stepped import Environments, Watcher
from spreeze.environments.threaded import ThreadedEnvs
from spreeze.errors import EnvironmentSetupError, SpreezeError, one_line

CHECKED_STEPS = 8
TOLERANCE = 1e-5  # sums over several environments may be taken in another order


def check_exists(spec: EnvSpec) -> None:
    """Raise unless Gymnasium knows the id, or EnvPool is installed. Makes no environment."""
    if spec.backend == "envpool":
        import_modules(spec)
        check_installed(spec)
    else:
        check_registered(spec)


def make_envs(
    spec: EnvSpec,
    count: int,
    seeds: Sequence[int],
    beat: Callable[[], None] = lambda: None,
    watcher: Watcher | None = None,
) -> Environments:
    """Make environments that are stepped together; `beat` is called between them, since some take seconds.

    watcher: of environments that are stepped one by one, in this thread.
    """
    if spec.backend == "envpool":
        beat()
        return EnvPoolBatch(spec, count, seeds)
    if spec.has_threads:
        return ThreadedEnvs(spec, count, seeds, beat)
    return EnvBatch(spec, count, seeds, beat, watcher)


def choose_serial_backend(spec: EnvSpec) -> Choice:
    """Choose the backend of a serial run: the one that calls the `step` of each environment."""
    if spec.backend not in ("auto", "gymnasium"):
        raise EnvironmentSetupError(
            f"--backend {spec.backend} steps environments in batches, --serial one at a time: leave one of them out"
        )
    if spec.has_threads:
        raise EnvironmentSetupError("--env-threads yes steps environments at once, --serial in turn: leave one out")
    return Choice("backend", "gymnasium", "serial: every environment is stepped by its own code")


def choose_backend(spec: EnvSpec) -> Choice:
    """Choose the backend; raise if the one that is asked for does not work."""
    if spec.is_realtime:
        return Choice("backend", "gymnasium", "--realtime: it is stepped by its own code")
    if spec.has_threads:
        if spec.backend not in ("auto", "gymnasium"):
            raise EnvironmentSetupError(
                f"--backend {spec.backend} steps environments in batches, --env-threads yes each in a thread: "
                "leave one of them out"
            )
        return Choice("backend", "gymnasium", "--env-threads steps each by its own code")
    if spec.backend not in ("auto", "mujoco"):
        return Choice("backend", spec.backend, "as asked for")
    if spec.backend == "auto" and not _is_robot(spec):
        return Choice("backend", "gymnasium", f"{spec.name} is not one of the robots that are stepped in batches")
    try:
        check_steps(spec)
    except EnvironmentSetupError as error:
        if spec.backend == "mujoco":
            raise
        return Choice("backend", "gymnasium", one_line(error))
    return Choice("backend", "mujoco", f"{spec.name}: batches give the same transitions faster")


def check_steps(spec: EnvSpec) -> None:
    """Raise unless this robot is supported, and its rows are the same as in the installed version of Gymnasium."""
    try:
        differs = _first_difference(spec)
    except SpreezeError:
        raise
    except Exception as error:  # attributes that another version has renamed or added
        differs = f"rules ({type(error).__name__}: {one_line(error)})"
    if differs is not None:
        raise EnvironmentSetupError(
            f"{spec.name} has other {differs} in this version of Gymnasium than --backend mujoco knows: leave it out"
        )


def _is_robot(spec: EnvSpec) -> bool:
    """Return whether the batched backend is worth trying. Makes no environment, which may take seconds."""
    found = gymnasium.registry.get(spec.name.rpartition(":")[2]) if spec.factory is None else None
    return found is not None and found.entry_point in ROBOTS


def _first_difference(spec: EnvSpec) -> str | None:
    """Take a few steps with both backends; return the name of the first array that differs."""
    with contextlib.ExitStack() as closing:
        ours, theirs = (EnvBatch(spec.with_backend(backend), 2, [0, 1]) for backend in ("mujoco", "gymnasium"))
        closing.callback(ours.close)
        closing.callback(theirs.close)
        rng = np.random.default_rng(0)
        for _ in range(CHECKED_STEPS):
            actions = rng.uniform(-1, 1, (2, ours.spaces.action_size)).astype(np.float32)
            for envs in (ours, theirs):
                envs.step(actions)
            for name in ("next_observations", "rewards", "terminated"):
                if not np.allclose(getattr(ours, name), getattr(theirs, name), rtol=TOLERANCE, atol=TOLERANCE):
                    return name.replace("_", " ")
    return None
