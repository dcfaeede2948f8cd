"""Steps Gymnasium's MuJoCo robots in batches: physics one by one, observations and rewards for all at once.

In: environments of one robot, as `gymnasium.make` makes them. Out: the same rows as theirs, but faster: up to a third
of a step in Gymnasium is Python, which runs once for the whole batch here. Resets and all parameters of the
environments are Gymnasium's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.errors import EnvironmentSetupError

Array = NDArray[np.float64]
MAX_OBSERVED_SPEED = 10.0  # walkers and hoppers observe speeds clipped to it


class Robots:
    """Several robots of one kind: their state in MuJoCo, and the rows that follow from it.

    This class is HalfCheetah-v5; subclasses are the other robots. They repeat Gymnasium's rules, with its names.
    """

    reads: tuple[str, ...] = ("qpos", "qvel")
    """Arrays of MuJoCo's data that the rules need."""
    needs_contact_forces = False
    """Whether they need contact forces, which MuJoCo's step does not compute."""
    own_coordinates = 1
    """Leading coordinates that observations leave out, unless the environment was made to include them."""

    def __init__(self, env: Any, count: int) -> None:
        """Allocate the arrays. env: one of the environments, for the parameters that all share."""
        self._env, self._count = env, count
        self.now = {name: np.zeros((count, *getattr(env.data, name).shape)) for name in self.reads}
        self._first = self.own_coordinates * bool(env._exclude_current_positions_from_observation)

    def positions(self) -> Array:
        """Return how far forward each robot is."""
        return self._forward_positions().copy()

    def observe(self, into: NDArray[np.float32]) -> None:
        """Write the observation of each robot, (envs, observation_size)."""
        parts = [part.reshape(self._count, -1) for part in self._observed()]
        np.concatenate(parts, axis=1, out=into, casting="same_kind")

    def rewards(self, speeds: Array, actions: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
        """Return the rewards of a step at these speeds, and which episodes have terminated."""
        env, rewards = self._env, self._env._forward_reward_weight * speeds
        healthy = self._healthy()
        if healthy is None:
            return rewards - self._costs(actions), np.zeros(self._count, np.bool_)
        rewards += healthy * env._healthy_reward
        return rewards - self._costs(actions), ~healthy & env._terminate_when_unhealthy

    def _forward_positions(self) -> Array:
        return self.now["qpos"][:, 0]

    def _observed(self) -> list[Array]:
        return [self.now["qpos"][:, self._first :], self.now["qvel"]]

    def _healthy(self) -> NDArray[np.bool_] | None:
        return None  # its episodes never terminate

    def _costs(self, actions: NDArray[Any]) -> NDArray[Any]:
        effort: NDArray[Any] = self._env._ctrl_cost_weight * np.square(actions).sum(axis=1)
        return effort


class Walkers(Robots):
    """Walker2d-v5: an episode terminates when it falls."""

    def _observed(self) -> list[Array]:
        place, speed = super()._observed()
        return [place, speed.clip(-MAX_OBSERVED_SPEED, MAX_OBSERVED_SPEED)]

    def _healthy(self) -> NDArray[np.bool_]:
        height, angle = self.now["qpos"][:, 1], self.now["qpos"][:, 2]
        return _within(height, self._env._healthy_z_range) & _within(angle, self._env._healthy_angle_range)


class Hoppers(Walkers):
    """Hopper-v5: an episode terminates when it falls, or bends too far."""

    def _healthy(self) -> NDArray[np.bool_]:
        bounds = self._env._healthy_state_range
        bent = [_within(part, bounds).all(axis=1) for part in (self.now["qpos"][:, 2:], self.now["qvel"])]
        return super()._healthy() & bent[0] & bent[1]


class Ants(Robots):
    """Ant-v5: it observes its contact forces, and they cost reward."""

    reads = ("qpos", "qvel", "cfrc_ext", "xpos")
    needs_contact_forces = True
    own_coordinates = 2

    def __init__(self, env: Any, count: int) -> None:
        super().__init__(env, count)
        self._body = env.data.body(env._main_body).id

    def _forward_positions(self) -> Array:
        return self.now["xpos"][:, self._body, 0]

    def _observed(self) -> list[Array]:
        pushed = [self._pushed()[:, 1:]] if self._env._include_cfrc_ext_in_observation else []
        return [*super()._observed(), *pushed]

    def _healthy(self) -> NDArray[np.bool_]:
        bounds: tuple[float, float] = self._env._healthy_z_range
        height = self.now["qpos"][:, 2]
        finite = [np.isfinite(self.now[name]).all(axis=1) for name in ("qpos", "qvel")]
        return (bounds[0] <= height) & (height <= bounds[1]) & finite[0] & finite[1]

    def _costs(self, actions: NDArray[Any]) -> NDArray[Any]:
        pushed: Array = self._env._contact_cost_weight * _sum_of_squares(self._pushed())
        return super()._costs(actions) + pushed

    def _pushed(self) -> Array:
        return self.now["cfrc_ext"].clip(*self._env._contact_force_range)


class Humanoids(Robots):
    """Humanoid-v5: it observes the inertias, speeds and forces of all its bodies."""

    reads = ("qpos", "qvel", "cinert", "cvel", "qfrc_actuator", "cfrc_ext", "xipos")
    needs_contact_forces = True
    own_coordinates = 2

    def __init__(self, env: Any, count: int) -> None:
        super().__init__(env, count)
        self._masses = env.model.body_mass.copy()

    def _forward_positions(self) -> Array:
        centre: Array = np.einsum("b,nb->n", self._masses, self.now["xipos"][:, :, 0]) / self._masses.sum()
        return centre

    def _observed(self) -> list[Array]:
        # Where each array starts: the first body is the world, and no motor moves the six axes of the free joint.
        firsts = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}
        asked = [name for name in firsts if getattr(self._env, f"_include_{name}_in_observation") is True]
        return [*super()._observed(), *(self.now[name][:, firsts[name] :] for name in asked)]

    def _healthy(self) -> NDArray[np.bool_]:
        return _within(self.now["qpos"][:, 2], self._env._healthy_z_range)

    def _costs(self, actions: NDArray[Any]) -> NDArray[Any]:
        pushed: Array = self._env._contact_cost_weight * _sum_of_squares(self.now["cfrc_ext"])
        limited: Array = pushed.clip(*self._env._contact_cost_range)
        return super()._costs(actions.astype(np.float64)) + limited


# By the entry points in Gymnasium's registry.
ROBOTS: Mapping[str, type[Robots]] = {
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": Robots,
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": Hoppers,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": Walkers,
    "gymnasium.envs.mujoco.ant_v5:AntEnv": Ants,
    "gymnasium.envs.mujoco.humanoid_v5:HumanoidEnv": Humanoids,
}
KNOWN = "HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5 and Humanoid-v5"


class MujocoSteps:
    """Steps environments of one kind of robot together."""

    def __init__(self, name: str, envs: Sequence[Any], next_observations: NDArray[np.float32]) -> None:
        """Take over environments without wrappers; each step writes its observations to the array."""
        import mujoco

        first = envs[0]
        kind = ROBOTS.get(f"{type(first).__module__}:{type(first).__qualname__}")
        if kind is None:
            raise EnvironmentSetupError(f"--backend mujoco is for Gymnasium's {KNOWN}, not for {name}: leave it out")
        self._robots = kind(first, len(envs))
        self._mj_step, self._mj_contact_forces = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self._frames, self._step_s = first.frame_skip, first.dt
        self._next_observations = next_observations
        # Rows of our arrays, and views of MuJoCo's own memory that are copied to them.
        self._copies = [
            [(rows[i], getattr(env.data, name)) for name, rows in self._robots.now.items()]
            for i, env in enumerate(envs)
        ]
        # One model for all, since they are alike, and an order that alternates: both keep data in the cache.
        self._all = [(i, env.data.ctrl, env.data, self._copies[i]) for i, env in enumerate(envs)]
        self._order, self._next_order = self._all, self._all[::-1]
        self._resting: list[int] = []
        self._model = first.model
        skip_islands(self._model)
        self._positions = np.zeros(len(envs))

    def begin(self, i: int) -> None:
        """Read the state of an environment that was reset."""
        for row, numbers in self._copies[i]:
            row[:] = numbers
        self._positions[i] = self._robots.positions()[i]

    def rest(self, i: int) -> None:
        """Leave an environment out of steps until `wake_all`."""
        self._resting.append(i)
        self._order = [each for each in self._order if each[0] != i]
        self._next_order = self._order[::-1]

    def wake_all(self) -> None:
        """Let the next step be one of all environments."""
        self._order, self._next_order = self._all, self._all[::-1]
        self._resting.clear()

    def step(self, actions: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
        """Take one step in each environment; return the rewards, and which episodes were terminated.

        Those that rest earn nothing and do not end.
        """
        robots, model, mj_step, frames = self._robots, self._model, self._mj_step, self._frames
        self._order, self._next_order = self._next_order, self._order
        for i, ctrl, data, copies in self._order:
            ctrl[:] = actions[i]
            mj_step(model, data, frames)
            if robots.needs_contact_forces:
                self._mj_contact_forces(model, data)
            for row, numbers in copies:
                row[:] = numbers
        robots.observe(self._next_observations)
        before, self._positions = self._positions, robots.positions()
        rewards, fell = robots.rewards((self._positions - before) / self._step_s, actions)
        if self._resting:
            rewards[self._resting], fell[self._resting] = 0.0, False
        return rewards, fell


def stop_mujoco_timers() -> None:
    """Stop MuJoCo, if this process has imported it, from timing the stages of its steps.

    Its Python bindings set a clock that is read at every stage of every frame, only for `MjData.timer`. They have no
    function to remove it, so the pointer is cleared in the library. A clock that the user has set stays.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        return
    # In a version without these names, or with its clock elsewhere, the timers stay on.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if mujoco.get_mjcb_time() is None:
            library = ctypes.CDLL(mujoco._functions.__file__)  # finds symbols of the libraries it links to, too
            ctypes.c_void_p.in_dll(library, "mjcb_time").value = None


def skip_islands(model: Any) -> None:
    """Disable the search for independent islands of constraints in a model of one robot: one tree is one island.

    The mid phase of collisions could be skipped too, since bodies have few geoms, but that reorders the contacts.
    """
    import mujoco

    flags = mujoco.mjtDisableBit
    if model.ntree == 1 and hasattr(flags, "mjDSBL_ISLAND"):  # in older versions they are off by default
        model.opt.disableflags |= int(flags.mjDSBL_ISLAND)


def _within(values: Array, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    low, high = bounds
    return (low < values) & (values < high)


def _sum_of_squares(values: Array) -> Array:
    total: Array = np.square(values).reshape(len(values), -1).sum(axis=1)
    return total
