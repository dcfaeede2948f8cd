"""`spreeze watch`: policies of runs that ended or go on, on a page that only its address opens, or as a video."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Running, Spreeze

EPISODE_STEPS = 20
# As on a machine without a screen.
HEADLESS = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}


@pytest.fixture(scope="module")
def trained(module_spreeze: Spreeze) -> Spreeze:
    """A run that has ended."""
    finished = module_spreeze.train("Toy/Drawn-v0", max_updates=300)
    assert finished.returncode == 0, finished.stderr
    return module_spreeze


def address(spreeze: Spreeze, watching: Running) -> str:
    """Return the address that was printed."""
    spreeze.wait_until(lambda: "http://" in watching.said() and "\n" in watching.said(), "an address", run=watching)
    found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", watching.said())
    assert found is not None, watching.said()
    return found[0]


def pictures(url: str) -> Iterator[bytes]:
    """Yield the JPEGs of a page's stream."""
    page = urllib.request.urlopen(url).read().decode()
    source = re.search(r'<img src="([^"]+)"', page)
    assert source is not None, page
    with urllib.request.urlopen(urllib.request.Request(url.partition("/?")[0] + source[1])) as stream:
        while True:
            header = b""
            while not header.endswith(b"\r\n\r\n"):
                if not (line := stream.readline()):
                    return
                header += line
            length = re.search(rb"Content-Length: (\d+)", header)
            assert length is not None, header
            yield stream.read(int(length[1]))
            stream.readline()


def status(url: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url)
    return refused.value.code


# --- videos -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [None, 3])
def test_a_video_has_a_picture_of_each_beginning_and_each_step(trained: Spreeze, episodes: int | None) -> None:
    import av  # only here: where it is missing, the tests that need a GPU still run

    words = [] if episodes is None else ["--episodes", episodes]
    finished = trained("watch", "run", "--record", "out.mp4", *words, environment=HEADLESS)
    assert finished.returncode == 0, finished.stderr
    frames = (episodes or 1) * (EPISODE_STEPS + 1)
    assert f"out.mp4: {frames} pictures" in finished.stdout
    with av.open(str(trained.folder / "out.mp4")) as container:
        stream = container.streams.video[0]
        assert sum(1 for _ in container.decode(stream)) == frames
        assert stream.average_rate == 100
        assert stream.codec_context.name == "h264"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "there is no run folder or policy file 'nowhere'"),
        (("run", "--version", "999999"), "there is no version 999999: run has version"),
        (("run", "--episodes", "0"), "--episodes must be at least 1"),
        (("run", "--record", "a.avi"), "--record a.avi must be an .mp4 file"),
        (("run", "--record", "nowhere/a.mp4"), "--record nowhere/a.mp4 cannot be written"),
        (("run/best/policy.safetensors", "--best"), "a version can be chosen of a run folder only"),
        ((), "RUN is missing"),
    ],
)
def test_errors_are_one_line(trained: Spreeze, words: tuple[str, ...], said: str) -> None:
    finished = trained("watch", *words, environment=HEADLESS)
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line


def test_what_cannot_be_drawn_is_said_in_one_line(trained: Spreeze) -> None:
    shutil.copytree(trained.run_dir, trained.folder / "other")
    config = {**trained.read("config.json"), "env": "Toy/Point-v0"}  # the same but for the drawing
    (trained.folder / "other" / "config.json").write_text(json.dumps(config))
    finished = trained("watch", "other", environment=HEADLESS)
    assert finished.returncode == 2
    assert finished.stderr == "spreeze: Toy/Point-v0 does not draw pictures: it has no render_modes\n"


def test_a_missing_package_is_said_and_torch_is_never_imported(trained: Spreeze) -> None:
    finished = trained("watch", "run", "--record", "b.mp4", environment={**HEADLESS, **trained.without("av")})
    assert finished.returncode == 2
    assert 'PyAV is not installed: pip install "spreeze[video]"' in finished.stderr


# --- the page ---------------------------------------------------------------------------------------------------


def test_the_page_shows_pictures_to_who_has_its_address(trained: Spreeze) -> None:
    watching = trained.start("watch", "run", "--episodes", 2, environment=HEADLESS)
    url = address(trained, watching)
    base = url.partition("?")[0]
    assert status(base) == 403
    assert status(f"{base}?token=wrong") == 403
    assert status(f"{base}stream") == 403
    assert status(url.replace("/?", "/config.json?")) == 404
    shown = list(pictures(url))  # to the end: two episodes
    assert len(shown) > 2
    assert all(jpeg.startswith(b"\xff\xd8") for jpeg in shown)
    assert len(set(shown)) > 2
    finished = watching.finish()
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert len(re.findall(rf"return \S+ in {EPISODE_STEPS} steps", finished.stdout)) == 2


def test_a_run_that_goes_on_is_followed(spreeze: Spreeze) -> None:
    # Unhurried, so that it leaves the cores to the one who watches it.
    paces = {"env_kwargs": {"step_s": 0.001}, "min_updates_per_step": 0, "max_updates_per_step": 0.2}
    run = spreeze.start_training("Toy/Drawn-v0", **paces)
    spreeze.wait_for_policy(run)
    watching = spreeze.start("watch", "run", environment=HEADLESS)
    audience = threading.Thread(target=list, args=(pictures(address(spreeze, watching)),), daemon=True)
    audience.start()

    def versions() -> set[str]:
        return set(re.findall(r"version (\d+)", watching.said()))

    spreeze.wait_until(lambda: len(versions()) >= 3, "three versions", run=watching)
    for command in (watching, run):
        command.process.send_signal(signal.SIGINT)
        assert command.finish().returncode == 130
    audience.join()


def test_the_best_version_is_shown_of_a_run_that_has_ended(trained: Spreeze) -> None:
    best = trained.read("best/evaluation.json")["version"]
    watching = trained.start("watch", "run", "--episodes", 1, environment=HEADLESS)
    assert list(pictures(address(trained, watching)))
    assert f"version {best}:" in watching.finish().stdout
