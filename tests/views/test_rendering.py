from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

from spreeze.config.env_spec import EnvSpec
from spreeze.errors import NotRenderable
from spreeze.views import rendering
from spreeze.views.rendering import DEFAULT_FPS, MAX_JPEG_SIDE, Stage, jpeg, open_stage

VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM", "SDL_VIDEODRIVER")


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a screen, where nobody has chosen anything; what a test sets is taken back."""
    monkeypatch.setattr(rendering.os, "environ", {**rendering.os.environ})
    for name in VARIABLES:
        rendering.os.environ.pop(name, None)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "integration"))


@pytest.fixture
def gl(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Say which libraries work, without trying them; return those that were asked for."""
    asked: list[str] = []

    def works(*names: str) -> list[str]:
        def why_not(library: str) -> str | None:
            asked.append(library)
            return None if library in names else f"no {library} here"

        monkeypatch.setattr(rendering, "_why_not", why_not)
        monkeypatch.setattr(rendering, "make_env", lambda _spec: Blank())
        return asked

    return works


class Blank(gymnasium.Env[Any, Any]):
    render_mode = "rgb_array"

    def __init__(self, picture: Any = None, metadata: Any = None) -> None:
        self.metadata = metadata or {}
        self._picture = picture

    def render(self) -> Any:
        return self._picture


@pytest.mark.parametrize(
    ("working", "chosen", "asked"),
    [(("egl", "osmesa"), "egl", ["egl"]), (("osmesa",), "osmesa", ["egl", "osmesa"])],
)
def test_the_first_library_that_works_draws_mujoco(
    gl: Callable[..., list[str]], working: tuple[str, ...], chosen: str, asked: list[str]
) -> None:
    tried = gl(*working)
    open_stage(EnvSpec("HalfCheetah-v5"))
    assert rendering.os.environ["MUJOCO_GL"] == chosen
    assert tried == asked


def test_where_none_works_it_is_said_in_words(gl: Callable[..., list[str]]) -> None:
    gl()
    with pytest.raises(NotRenderable, match=r"neither by EGL \(no egl here\) nor by OSMesa \(no osmesa here\)"):
        open_stage(EnvSpec("HalfCheetah-v5"))


@pytest.mark.parametrize(("name", "value"), [("MUJOCO_GL", "glfw"), ("DISPLAY", ":0")])
def test_what_the_user_or_the_machine_has_stays(gl: Callable[..., list[str]], name: str, value: str) -> None:
    tried = gl("egl")
    rendering.os.environ[name] = value
    open_stage(EnvSpec("HalfCheetah-v5"))
    assert rendering.os.environ.get("MUJOCO_GL") in (None, "glfw")
    assert tried == []


def test_nothing_is_tried_for_what_needs_no_gl(gl: Callable[..., list[str]]) -> None:
    tried = gl()
    open_stage(EnvSpec("Pendulum-v1"))
    assert tried == []
    assert rendering.os.environ["SDL_VIDEODRIVER"] == "dummy"


def test_a_trial_that_crashes_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_GL_TRIAL", "import os; os.abort()")
    assert rendering._why_not("egl") == "it ended with code -6"
    monkeypatch.setattr(rendering, "_GL_TRIAL", "raise ImportError('no library')")
    assert rendering._why_not("egl") == "ImportError: no library"
    monkeypatch.setattr(rendering, "_GL_TRIAL", "import time; time.sleep(60)")
    monkeypatch.setattr(rendering, "GL_TRIAL_LIMIT_S", 0.2)
    assert rendering._why_not("egl") == "it hung for more than 0 s"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (EnvSpec("Toy/Point-v0", modules=("toy_envs",)), "does not draw pictures: it has no render_modes"),
        (EnvSpec("Toy/Drawn-v0", modules=("toy_envs",), kwargs={"no": 1}), "could not be made"),
        (EnvSpec("made()", factory=lambda: gymnasium.make("Pendulum-v1")), "let the callable accept render_mode"),
        (EnvSpec("OnlyOfEnvPool-v0", backend="envpool"), "Gymnasium has no environment of this id"),
    ],
)
def test_what_cannot_be_drawn_says_why(spec: EnvSpec, said: str) -> None:
    with pytest.raises(NotRenderable, match=said):
        open_stage(spec)


def test_a_callable_that_takes_render_mode_is_given_it() -> None:
    stage = open_stage(
        EnvSpec("made()", factory=lambda render_mode: gymnasium.make("Pendulum-v1", render_mode=render_mode))
    )
    assert stage.fps == 30.0
    stage.close()


@pytest.mark.parametrize("fps", [None, 0, -1, float("nan"), "fast"])
def test_without_a_usable_rate_there_is_a_default(fps: Any) -> None:
    assert Stage(Blank(metadata={"render_fps": fps}), "Blank").fps == DEFAULT_FPS


@pytest.mark.parametrize("picture", [None, np.zeros((5, 5)), np.zeros((5, 5, 2)), np.zeros((0, 5, 3)), []])
def test_what_is_no_picture_is_refused(picture: Any) -> None:
    with pytest.raises(NotRenderable, match="not a picture"):
        Stage(Blank(picture), "Blank").picture()


def test_pictures_of_other_kinds_are_taken() -> None:
    wanted = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    with_alpha = np.dstack([wanted, np.full((4, 5), 255, np.uint8)])
    for picture in (with_alpha, [wanted, wanted], wanted[:, ::-1][:, ::-1]):
        np.testing.assert_array_equal(Stage(Blank(picture), "Blank").picture(), wanted)


@pytest.mark.parametrize(
    ("shape", "size"), [((480, 480), (480, 480)), ((960, 1280), (640, 480)), ((4000, 100), (16, MAX_JPEG_SIDE))]
)
def test_large_pictures_are_made_smaller(shape: tuple[int, int], size: tuple[int, int]) -> None:
    assert Image.open(io.BytesIO(jpeg(np.zeros((*shape, 3), np.uint8)))).size == size


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a window needs no variable")
def test_a_screen_is_what_its_variable_says() -> None:
    assert not rendering.has_screen()
    rendering.os.environ["WAYLAND_DISPLAY"] = "wayland-0"
    assert rendering.has_screen()


@pytest.mark.parametrize(("chosen", "follows"), [({}, True), ({"camera_id": -1}, True), ({"camera_id": 0}, False)])
def test_the_camera_goes_with_the_robot_unless_the_user_chose_one(chosen: dict[str, int], follows: bool) -> None:
    env = gymnasium.make("Ant-v5", **chosen)
    unwrapped: Any = env.unwrapped
    before = unwrapped.mujoco_renderer.camera_id
    rendering._follow(env)
    assert (unwrapped.mujoco_renderer.camera_id != before) == follows
    assert unwrapped.mujoco_renderer.camera_id >= 0
    env.close()


def test_an_environment_without_a_camera_to_follow_stays_as_it_is() -> None:
    for name, expected in (("Pendulum-v1", None), ("Reacher-v5", -1)):
        env = gymnasium.make(name)
        rendering._follow(env)
        assert getattr(getattr(env.unwrapped, "mujoco_renderer", None), "camera_id", None) == expected
        env.close()
