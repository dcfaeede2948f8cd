"""Steps Gymnasium's own MuJoCo robots together: physics one by one, observations and rewards for all at once.

In: environments of one robot, as `gymnasium.make` makes them. Out: the rows that they would give themselves, sooner:
up to a third of a step in Gymnasium is Python, which is done once for all of them here. Resets are Gymnasium's own,
and so are all the numbers that an environment was made with.
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

Numbers = NDArray[np.float64]
MOST_SPEED = 10.0  # that a walker or a hopper observes


class Robots:
    """Several robots of one kind: what MuJoCo says of them, and the rows that this makes. As it is, HalfCheetah-v5.

    reads: arrays of MuJoCo's data, by name. Below are Gymnasium's rules, and its names for what they depend on.
    """

    reads: tuple[str, ...] = ("qpos", "qvel")
    needs_contact_forces = False
    """Which a step of MuJoCo leaves out."""
    own_place = 1
    """Coordinates that are left out of observations where the environment says so."""

    def __init__(self, env: Any, count: int) -> None:
        """Make room. env: one of them, for what all have in common."""
        self._env, self._count = env, count
        self.now = {name: np.zeros((count, *getattr(env.data, name).shape)) for name in self.reads}
        self._first = self.own_place * bool(env._exclude_current_positions_from_observation)

    def places(self) -> Numbers:
        """Return how far forward each of them is."""
        return self._forward().copy()

    def observe(self, into: NDArray[np.float32]) -> None:
        """Write what each of them observes."""
        parts = [part.reshape(self._count, -1) for part in self._observed()]
        np.concatenate(parts, axis=1, out=into, casting="same_kind")

    def rewards(self, speeds: Numbers, actions: NDArray[Any]) -> tuple[Numbers, NDArray[np.bool_]]:
        """Return rewards for a step at these speeds, and whose episode is over because of how it stands."""
        env, rewards = self._env, self._env._forward_reward_weight * speeds
        healthy = self._healthy()
        if healthy is None:
            return rewards - self._costs(actions), np.zeros(self._count, np.bool_)
        rewards += healthy * env._healthy_reward
        return rewards - self._costs(actions), ~healthy & env._terminate_when_unhealthy

    def _forward(self) -> Numbers:
        return self.now["qpos"][:, 0]

    def _observed(self) -> list[Numbers]:
        return [self.now["qpos"][:, self._first :], self.now["qvel"]]

    def _healthy(self) -> NDArray[np.bool_] | None:
        return None  # however it lies, it goes on

    def _costs(self, actions: NDArray[Any]) -> NDArray[Any]:
        effort: NDArray[Any] = self._env._ctrl_cost_weight * np.square(actions).sum(axis=1)
        return effort


class Walkers(Robots):
    """Walker2d-v5: it may fall."""

    def _observed(self) -> list[Numbers]:
        place, speed = super()._observed()
        return [place, speed.clip(-MOST_SPEED, MOST_SPEED)]

    def _healthy(self) -> NDArray[np.bool_]:
        height, angle = self.now["qpos"][:, 1], self.now["qpos"][:, 2]
        return _within(height, self._env._healthy_z_range) & _within(angle, self._env._healthy_angle_range)


class Hoppers(Walkers):
    """Hopper-v5: it may fall, or bend too far."""

    def _healthy(self) -> NDArray[np.bool_]:
        bounds = self._env._healthy_state_range
        bent = [_within(part, bounds).all(axis=1) for part in (self.now["qpos"][:, 2:], self.now["qvel"])]
        return super()._healthy() & bent[0] & bent[1]


class Ants(Robots):
    """Ant-v5: it observes what pushes it, and pays for that."""

    reads = ("qpos", "qvel", "cfrc_ext", "xpos")
    needs_contact_forces = True
    own_place = 2

    def __init__(self, env: Any, count: int) -> None:
        super().__init__(env, count)
        self._body = env.data.body(env._main_body).id

    def _forward(self) -> Numbers:
        return self.now["xpos"][:, self._body, 0]

    def _observed(self) -> list[Numbers]:
        pushed = [self._pushed()[:, 1:]] if self._env._include_cfrc_ext_in_observation else []
        return [*super()._observed(), *pushed]

    def _healthy(self) -> NDArray[np.bool_]:
        bounds: tuple[float, float] = self._env._healthy_z_range
        height = self.now["qpos"][:, 2]
        finite = [np.isfinite(self.now[name]).all(axis=1) for name in ("qpos", "qvel")]
        return (bounds[0] <= height) & (height <= bounds[1]) & finite[0] & finite[1]

    def _costs(self, actions: NDArray[Any]) -> NDArray[Any]:
        pushed: Numbers = self._env._contact_cost_weight * _sum_of_squares(self._pushed())
        return super()._costs(actions) + pushed

    def _pushed(self) -> Numbers:
        return self.now["cfrc_ext"].clip(*self._env._contact_force_range)


class Humanoids(Robots):
    """Humanoid-v5: it observes all of its masses, speeds and forces."""

    reads = ("qpos", "qvel", "cinert", "cvel", "qfrc_actuator", "cfrc_ext", "xipos")
    needs_contact_forces = True
    own_place = 2

    def __init__(self, env: Any, count: int) -> None:
        super().__init__(env, count)
        self._masses = env.model.body_mass.copy()

    def _forward(self) -> Numbers:
        centre: Numbers = np.einsum("b,nb->n", self._masses, self.now["xipos"][:, :, 0]) / self._masses.sum()
        return centre

    def _observed(self) -> list[Numbers]:
        # From where on: the world is no part of it, and no motor moves the free joint.
        firsts = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}
        asked = [name for name in firsts if getattr(self._env, f"_include_{name}_in_observation") is True]
        return [*super()._observed(), *(self.now[name][:, firsts[name] :] for name in asked)]

    def _healthy(self) -> NDArray[np.bool_]:
        return _within(self.now["qpos"][:, 2], self._env._healthy_z_range)

    def _costs(self, actions: NDArray[Any]) -> NDArray[Any]:
        pushed: Numbers = self._env._contact_cost_weight * _sum_of_squares(self.now["cfrc_ext"])
        limited: Numbers = pushed.clip(*self._env._contact_cost_range)
        return super()._costs(actions.astype(np.float64)) + limited


# By where Gymnasium's registry says that they are.
KINDS: Mapping[str, type[Robots]] = {
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": Robots,
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": Hoppers,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": Walkers,
    "gymnasium.envs.mujoco.ant_v5:AntEnv": Ants,
    "gymnasium.envs.mujoco.humanoid_v5:HumanoidEnv": Humanoids,
}


KNOWN = "HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5 and Humanoid-v5"


class MujocoSteps:
    """Environments of one robot, stepped together."""

    def __init__(self, name: str, envs: Sequence[Any], next_observations: NDArray[np.float32]) -> None:
        """Take environments, without wrappers around them; observations will be written to the array."""
        import mujoco

        first = envs[0]
        kind = KINDS.get(f"{type(first).__module__}:{type(first).__qualname__}")
        if kind is None:
            raise EnvironmentSetupError(f"--backend mujoco is for Gymnasium's {KNOWN}, not for {name}: leave it out")
        self._robots = kind(first, len(envs))
        self._mj_step, self._mj_contact_forces = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self._frames, self._step_s = first.frame_skip, first.dt
        self._next_observations = next_observations
        # MuJoCo's own memory, and the rows that it is copied to.
        self._copies = [
            [(rows[i], getattr(env.data, name)) for name, rows in self._robots.now.items()]
            for i, env in enumerate(envs)
        ]
        # One model for all, since they are alike, and to and fro: for what is in the cache already.
        self._there = [(i, env.data.ctrl, env.data, self._copies[i]) for i, env in enumerate(envs)]
        self._back = self._there[::-1]
        self._model = first.model
        skip_islands(self._model)
        self._places = np.zeros(len(envs))

    def begin(self, i: int) -> None:
        """Note where an environment stands that was reset."""
        for row, numbers in self._copies[i]:
            row[:] = numbers
        self._places[i] = self._robots.places()[i]

    def step(self, actions: NDArray[Any]) -> tuple[Numbers, NDArray[np.bool_]]:
        """Take one step in each environment; return rewards, and which episodes were terminated."""
        robots, model, mj_step, frames = self._robots, self._model, self._mj_step, self._frames
        self._there, self._back = self._back, self._there
        for i, ctrl, data, copies in self._there:
            ctrl[:] = actions[i]
            mj_step(model, data, frames)
            if robots.needs_contact_forces:
                self._mj_contact_forces(model, data)
            for row, numbers in copies:
                row[:] = numbers
        robots.observe(self._next_observations)
        before, self._places = self._places, robots.places()
        return robots.rewards((self._places - before) / self._step_s, actions)


def _within(values: Numbers, bounds: tuple[float, float]) -> NDArray[np.bool_]:
    low, high = bounds
    return (low < values) & (values < high)


def _sum_of_squares(values: Numbers) -> Numbers:
    total: Numbers = np.square(values).reshape(len(values), -1).sum(axis=1)
    return total


def stop_its_stopwatch() -> None:
    """Let MuJoCo, where this process has it, time the stages of its steps no more.

    Its Python bindings give it a clock that is read at every stage of every frame, for `MjData.timer` alone. They
    cannot take it away again, so the pointer to it is cleared in the library. A clock that somebody has set stays.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        return
    # A version that has none of these, or keeps its clock elsewhere, keeps time.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if mujoco.get_mjcb_time() is None:
            library = ctypes.CDLL(mujoco._functions.__file__)  # looks in what it was linked with, too
            ctypes.c_void_p.in_dll(library, "mjcb_time").value = None


def skip_islands(model: Any) -> None:
    """Tell a model of one robot not to look for parts that could be solved on their own: one tree is one island.

    The mid phase of collisions could go too, since bodies have few geoms, but contacts then come in another order.
    """
    import mujoco

    flags = mujoco.mjtDisableBit
    if model.ntree == 1 and hasattr(flags, "mjDSBL_ISLAND"):  # in older versions they are off by default
        model.opt.disableflags |= int(flags.mjDSBL_ISLAND)
