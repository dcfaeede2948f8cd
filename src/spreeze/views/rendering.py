"""Makes environments draw themselves, also where there is no screen, and plays policies in them.

In: an `EnvSpec` and a policy. Out: a `Stage` with a picture after each step, or `NotRenderable` with the reason.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists
from spreeze.environments.make import make_env, spec_for_evaluation
from spreeze.errors import EnvironmentSetupError, NotRenderable, one_line
from spreeze.policy.file import Policy

Picture = NDArray[np.uint8]
"""(height, width, 3)"""
RenderMode = Literal["rgb_array", "human"]

DEFAULT_FPS = 30.0  # of an environment that does not say how fast its time goes
MAX_JPEG_SIDE = 640  # pixels: as much as fits into the page
JPEG_QUALITY = 80
SLOW_PICTURE_S = 0.03  # at most environments' 20 to 60 pictures a second, more would not be real time
GL_TRIAL_LIMIT_S = 60.0  # a context takes half a second; a trial with little priority on a busy machine much longer

# Drawn by other means than OpenGL: for these nobody has to find out what works.
_WITHOUT_GL = (
    "gymnasium.envs.classic_control",
    "gymnasium.envs.box2d",
    "gymnasium.envs.toy_text",
    "spreeze.environments.pybullet",
)
_GL_TRIAL = "import mujoco; context = mujoco.GLContext(64, 64); context.make_current(); context.free()"


class Stage:
    """An environment that draws itself, and the policy that plays there, one episode after the other."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        self._env, self._name = env, name
        fps = env.metadata.get("render_fps") if isinstance(env.metadata, Mapping) else None
        is_usable = isinstance(fps, int | float) and math.isfinite(fps) and fps > 0
        self.fps = float(fps) if is_usable and fps is not None else DEFAULT_FPS
        self.episode_return, self.episode_steps = 0.0, 0
        self.is_over = True
        self._policy: Policy | None = None
        self._observation: Any = None

    @property
    def version(self) -> int:
        """Of the weights that play."""
        return 0 if self._policy is None else self._policy.version

    def begin(self, policy: Policy, seed: int) -> None:
        """Begin an episode."""
        self._policy = policy
        self._observation, _ = self._env.reset(seed=seed)
        self.episode_return, self.episode_steps, self.is_over = 0.0, 0, False

    def step(self) -> None:
        """Take one step with the policy's most likely action."""
        assert self._policy is not None
        assert not self.is_over, "begin an episode first"
        action = self._policy(self._observation)
        self._observation, reward, terminated, truncated, _ = self._env.step(action)
        self.episode_return += float(reward)
        self.episode_steps += 1
        self.is_over = bool(terminated or truncated)

    def picture(self) -> Picture:
        """Return what it looks like now."""
        rendered: Any = self._env.render()
        if isinstance(rendered, list) and rendered:  # some give all pictures since the last call
            rendered = rendered[-1]
        picture = np.asarray(rendered)
        if picture.ndim != 3 or picture.shape[2] not in (3, 4) or 0 in picture.shape:
            kind = f"an array of shape {picture.shape}" if picture.ndim else type(rendered).__name__
            raise NotRenderable(f"render() of {self._name} gave {kind}, not a picture of height x width x 3")
        return np.ascontiguousarray(picture[:, :, :3], np.uint8)

    def draw_plainly_if_slow(self) -> None:
        """Find out what a picture costs, and draw plainly where it costs much: without a GPU."""
        self.picture()  # the first one costs more than all others
        started = time.monotonic()
        self.picture()
        if time.monotonic() - started > SLOW_PICTURE_S:
            self.draw_plainly()

    def draw_plainly(self, scale: float = 1.0) -> None:
        """Leave out what costs most in software: without shadows, a picture of MuJoCo's takes 19 ms and not 63.

        scale: of both sides; 0.75 takes 12 ms. Works once there was a picture.
        """
        renderer = getattr(self._env.unwrapped, "mujoco_renderer", None)
        # Inside of Gymnasium: where it looks different, everything stays.
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            import mujoco

            viewer = renderer._viewers["rgb_array"]  # type: ignore[union-attr]
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                viewer.scn.flags[flag] = 0
            viewer.viewport.width = round(viewer.viewport.width * scale)
            viewer.viewport.height = round(viewer.viewport.height * scale)

    def close(self) -> None:
        """Close the environment."""
        with contextlib.suppress(Exception):  # nothing can be done about it at the end
            self._env.close()


def open_stage(spec: EnvSpec, mode: RenderMode = "rgb_array", beat: Callable[[], None] = lambda: None) -> Stage:
    """Make an environment that draws itself; raise `NotRenderable` with the reason where that cannot be.

    beat: called now and then, since finding out what works may take seconds.
    """
    spec = spec_for_evaluation(spec)
    if spec.backend != "gymnasium":
        raise NotRenderable(f"{spec.name} of EnvPool cannot be drawn, and Gymnasium has none of this id")
    if mode == "rgb_array":
        _draw_without_screen(spec, beat)
    beat()
    check_exists(spec)
    _require_mode(spec, mode)
    accepts_mode = spec.factory is None or _accepts(spec.factory, "render_mode")
    kwargs = {**(spec.kwargs or {}), **({"render_mode": mode} if accepts_mode else {})}
    try:
        env = make_env(replace(spec, kwargs=kwargs))
    except EnvironmentSetupError as error:
        raise NotRenderable(one_line(error)) from error
    beat()
    if getattr(env, "render_mode", None) != mode:
        env.close()
        hint = "" if accepts_mode else ": let the callable take render_mode, and pass it on"
        raise NotRenderable(f"{spec.name} was made with render_mode {env.render_mode}, not {mode}{hint}")
    _follow(env)
    return Stage(env, spec.name)


def _follow(env: gymnasium.Env[Any, Any]) -> None:
    """Let the camera go with the robot, where its model has one for that: by default it runs out of the picture."""
    unwrapped: Any = env.unwrapped
    # Inside of Gymnasium: where it looks different, everything stays. A camera that the user chose stays too.
    with contextlib.suppress(AttributeError, TypeError):
        if unwrapped.mujoco_renderer.camera_id in (None, -1):
            import mujoco

            camera = mujoco.mj_name2id(unwrapped.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
            if camera >= 0:
                unwrapped.mujoco_renderer.camera_id = camera


def has_screen() -> bool:
    """Say whether a window can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def jpeg(picture: Picture) -> bytes:
    """Return a picture as JPEG, made smaller where a side has more than MAX_JPEG_SIDE pixels."""
    image = Image.fromarray(picture)
    image.thumbnail((MAX_JPEG_SIDE, MAX_JPEG_SIDE), Image.Resampling.BILINEAR)
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=JPEG_QUALITY)
    return encoded.getvalue()


# --- without a screen -------------------------------------------------------------------------------------------


def _draw_without_screen(spec: EnvSpec, beat: Callable[[], None]) -> None:
    """Set the variables by which libraries draw into memory. Before they are imported, which is when they look."""
    for name, value in (
        ("PYGAME_HIDE_SUPPORT_PROMPT", "1"),
        ("SDL_AUDIODRIVER", "dummy"),
        # Mesa's software renderer takes all cores otherwise, and 105 ms of them for a picture instead of 63.
        ("LP_NUM_THREADS", "0"),
    ):
        os.environ.setdefault(name, value)
    if has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    module = _entry_module(spec)
    if "MUJOCO_GL" in os.environ or module.startswith(_WITHOUT_GL) or "Bullet" in spec.name:
        return
    if importlib.util.find_spec("mujoco") is None:
        return
    reasons = []
    for library, title in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if (reason := _why_not(library)) is None:
            # PyOpenGL is imported by whoever comes first, and looks at its own variable.
            os.environ.update({"MUJOCO_GL": library, "PYOPENGL_PLATFORM": library})
            return
        reasons.append(f"by {title} ({reason})")
        beat()
    if "mujoco" in module or spec.name.startswith("dm_control/"):
        raise NotRenderable(
            f"there is no screen, and MuJoCo can draw without one neither {' nor '.join(reasons)}: "
            "install libegl1 or libosmesa6"
        )


def _why_not(library: str) -> str | None:
    """Try a way to draw in a process of its own, which a broken driver may crash; return why it fails, or None."""
    variables = {**os.environ, "MUJOCO_GL": library, "PYOPENGL_PLATFORM": library}
    try:
        tried = subprocess.run(
            [sys.executable, "-P", "-c", _GL_TRIAL],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GL_TRIAL_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it hangs for more than {GL_TRIAL_LIMIT_S:.0f} s"
    except OSError as error:
        return one_line(error)
    if tried.returncode == 0:
        return None
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    return said[-1].strip() if said else f"it ended with code {tried.returncode}"


# --- what an environment can do ---------------------------------------------------------------------------------


def _entry_module(spec: EnvSpec) -> str:
    """Return the module that an id belongs to; "" where that is not known before something is imported."""
    registered = gymnasium.registry.get(spec.name.rpartition(":")[2])
    if spec.factory is not None or registered is None:
        return ""
    entry = registered.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


def _require_mode(spec: EnvSpec, mode: RenderMode) -> None:
    """Raise where an environment's class says that it cannot draw; one that says nothing is tried."""
    if spec.factory is not None:
        return
    entry = gymnasium.spec(spec.name.rpartition(":")[2]).entry_point
    try:
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception:
        return  # making it will say more
    metadata = getattr(creator, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    if modes is not None and mode not in modes:
        has = f"its render_modes are {', '.join(map(str, modes))}" if modes else "it has no render_modes"
        raise NotRenderable(f"{spec.name} does not draw {'pictures' if mode == 'rgb_array' else 'a window'}: {has}")


def _accepts(function: Callable[..., Any], keyword: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.name == keyword or parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters
    )
