"""Makes environments render themselves, also without a screen, and plays policies in them.

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

from spreeze.channels.spaces import Spaces
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists
from spreeze.environments.make import make_env, spec_for_evaluation
from spreeze.environments.spaces import spaces_of
from spreeze.errors import EnvironmentSetupError, NotRenderable, one_line
from spreeze.host.programs import python
from spreeze.policy.file import Policy

Picture = NDArray[np.uint8]
"""(height, width, 3)"""
RenderMode = Literal["rgb_array", "human"]

DEFAULT_FPS = 30.0  # of an environment without render_fps in its metadata
MAX_JPEG_SIDE = 640  # pixels: the size of the picture on the page
JPEG_QUALITY = 80
SLOW_PICTURE_S = 0.03  # most environments have 20 to 60 pictures per second: a slower one is not real time
GL_TRIAL_LIMIT_S = 60.0  # a context takes half a second; a trial with little priority on a busy machine much longer

# Environments that do not use OpenGL, for which it need not be tried.
_WITHOUT_GL = (
    "gymnasium.envs.classic_control",
    "gymnasium.envs.box2d",
    "gymnasium.envs.toy_text",
    "spreeze.environments.pybullet",
)
_GL_TRIAL = "import mujoco; context = mujoco.GLContext(64, 64); context.make_current(); context.free()"


class Stage:
    """An environment that renders itself, and a policy that plays in it, one episode after the other."""

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
        """Version of the weights that play."""
        return 0 if self._policy is None else self._policy.version

    @property
    def spaces(self) -> Spaces:
        """Those of the environment."""
        return spaces_of(self._env, self._name)

    def begin(self, policy: Policy, seed: int) -> None:
        """Begin an episode."""
        self._policy = policy
        self._observation, _ = self._env.reset(seed=seed)
        self.episode_return, self.episode_steps, self.is_over = 0.0, 0, False

    def use(self, policy: Policy) -> None:
        """Continue the episode with another version."""
        self._policy = policy

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
        """Render the current state."""
        rendered: Any = self._env.render()
        if isinstance(rendered, list) and rendered:  # some return all pictures since the last call
            rendered = rendered[-1]
        picture = np.asarray(rendered)
        if picture.ndim != 3 or picture.shape[2] not in (3, 4) or 0 in picture.shape:
            kind = f"an array of shape {picture.shape}" if picture.ndim else type(rendered).__name__
            raise NotRenderable(f"render() of {self._name} returned {kind}, not a picture of height x width x 3")
        return np.ascontiguousarray(picture[:, :, :3], np.uint8)

    def draw_plainly_if_slow(self) -> None:
        """Measure what a picture costs, and draw plainly if it is slow, as without a GPU."""
        self.picture()  # the first one is the slowest
        started = time.monotonic()
        self.picture()
        if time.monotonic() - started > SLOW_PICTURE_S:
            self.draw_plainly()

    def draw_plainly(self, scale: float = 1.0) -> None:
        """Leave out what is slow in software: without shadows, a picture of MuJoCo takes 19 ms instead of 63.

        scale: of both sides; 0.75 takes 12 ms. Has an effect only after the first picture.
        """
        renderer = getattr(self._env.unwrapped, "mujoco_renderer", None)
        # Internals of Gymnasium: in a version where they differ, nothing is changed.
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            import mujoco

            viewer = renderer._viewers["rgb_array"]  # type: ignore[union-attr]
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                viewer.scn.flags[flag] = 0
            viewer.viewport.width = round(viewer.viewport.width * scale)
            viewer.viewport.height = round(viewer.viewport.height * scale)

    def close(self) -> None:
        """Close the environment."""
        with contextlib.suppress(Exception):  # at the end a failure does not matter
            self._env.close()


def open_stage(spec: EnvSpec, mode: RenderMode = "rgb_array", beat: Callable[[], None] = lambda: None) -> Stage:
    """Make an environment that renders itself. Raises `NotRenderable` with the reason if it cannot.

    beat: called now and then, since trying what works may take seconds.
    """
    spec = spec_for_evaluation(spec)
    if spec.backend != "gymnasium":
        raise NotRenderable(f"{spec.name} of EnvPool cannot be rendered, and Gymnasium has no environment of this id")
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
        hint = "" if accepts_mode else ": let the callable accept render_mode, and pass it on"
        raise NotRenderable(f"{spec.name} was made with render_mode {env.render_mode}, not {mode}{hint}")
    _follow(env)
    return Stage(env, spec.name)


def _follow(env: gymnasium.Env[Any, Any]) -> None:
    """Let the camera follow the robot, if its model has such a camera: by default the robot leaves the picture."""
    unwrapped: Any = env.unwrapped
    # Internals of Gymnasium: in a version where they differ, nothing is changed. A camera that the user chose stays.
    with contextlib.suppress(AttributeError, TypeError):
        if unwrapped.mujoco_renderer.camera_id in (None, -1):
            import mujoco

            camera = mujoco.mj_name2id(unwrapped.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
            if camera >= 0:
                unwrapped.mujoco_renderer.camera_id = camera


def has_screen() -> bool:
    """Return whether a window can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def jpeg(picture: Picture) -> bytes:
    """Return a picture as JPEG, scaled down if a side has more than MAX_JPEG_SIDE pixels."""
    image = Image.fromarray(picture)
    image.thumbnail((MAX_JPEG_SIDE, MAX_JPEG_SIDE), Image.Resampling.BILINEAR)
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=JPEG_QUALITY)
    return encoded.getvalue()


# --- without a screen -------------------------------------------------------------------------------------------


def _draw_without_screen(spec: EnvSpec, beat: Callable[[], None]) -> None:
    """Set the variables that make libraries draw into memory, before they are imported and read them."""
    for name, value in (
        ("PYGAME_HIDE_SUPPORT_PROMPT", "1"),
        ("SDL_AUDIODRIVER", "dummy"),
        # Mesa's software renderer takes all cores otherwise, and 105 ms of CPU time per picture instead of 63.
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
            # PyOpenGL, which several libraries import, reads its own variable.
            os.environ.update({"MUJOCO_GL": library, "PYOPENGL_PLATFORM": library})
            return
        reasons.append(f"by {title} ({reason})")
        beat()
    if "mujoco" in module or spec.name.startswith("dm_control/"):
        raise NotRenderable(
            f"without a screen, MuJoCo can draw neither {' nor '.join(reasons)}: install libegl1 or libosmesa6"
        )


def _why_not(library: str) -> str | None:
    """Try an OpenGL library in a separate process, since a broken driver may crash; return why it fails, or None."""
    variables = {**os.environ, "MUJOCO_GL": library, "PYOPENGL_PLATFORM": library}
    try:
        tried = subprocess.run(  # noqa: S603 (a program of ours)
            python("-c", _GL_TRIAL),
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GL_TRIAL_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it hung for more than {GL_TRIAL_LIMIT_S:.0f} s"
    except OSError as error:
        return one_line(error)
    if tried.returncode == 0:
        return None
    output = tried.stderr.decode(errors="replace").strip().splitlines()
    return output[-1].strip() if output else f"it ended with code {tried.returncode}"


# --- what an environment can do ---------------------------------------------------------------------------------


def _entry_module(spec: EnvSpec) -> str:
    """Return the module that an id belongs to; "" if that is not known without importing something."""
    registered = gymnasium.registry.get(spec.name.rpartition(":")[2])
    if spec.factory is not None or registered is None:
        return ""
    entry = registered.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


def _require_mode(spec: EnvSpec, mode: RenderMode) -> None:
    """Raise NotRenderable if an environment's class lacks the render mode; a class without metadata is tried."""
    if spec.factory is not None:
        return
    entry = gymnasium.spec(spec.name.rpartition(":")[2]).entry_point
    try:
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception:
        return  # making it reports more
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
