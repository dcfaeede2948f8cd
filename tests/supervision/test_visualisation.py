from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from spreeze.channels.listener import ListenerChannel
from spreeze.channels.weights import kept_weights, version_path
from spreeze.commands.cli import _train
from spreeze.config import Config
from spreeze.runs.records import Evaluation, Measurement
from spreeze.supervision import visualisation
from spreeze.supervision.visualisation import Visualisation

NOTHING = {field.name: 0 for field in dataclasses.fields(Measurement)}


class Workers:
    def __init__(self) -> None:
        self.roles: list[str] = []
        self.channels = SimpleNamespace(listener=ListenerChannel())

    def add_optional(self, role: str) -> None:
        self.roles.append(role)


class VideoOrders:
    run_dir = Path("run")

    def __init__(self) -> None:
        self.ordered: list[str] = []

    def order(self, weights: Path, name: str) -> None:
        assert weights.parent == Path("run/videos/.weights")
        self.ordered.append(name)


class Scene:
    """A run's beginning, as far as what shows it is concerned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, installed: bool = True, **fields: Any) -> None:
        monkeypatch.setattr(visualisation, "is_installed", lambda _module: installed)
        self.workers, self.videos, self.reasons = Workers(), VideoOrders(), list[str]()
        config = Config("Pendulum-v1").replace(**fields)
        workers: Any = self.workers
        videos: Any = self.videos
        self.visualisation = Visualisation(
            workers, config, videos, lambda _kind, reason, **_details: self.reasons.append(reason)
        )
        self.addresses: list[str] = []
        self.visualisation.open_page(self.addresses.append)

    def measured(self, updates: int) -> list[str]:
        self.visualisation.measured(Measurement(**{**NOTHING, "updates": updates}))
        return self.workers.roles


def test_processes_come_once_and_the_viewer_after_the_first_update(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, dashboard=True)
    assert scene.measured(updates=0) == ["dashboard"]
    assert scene.measured(updates=0) == ["dashboard"]
    assert scene.measured(updates=5) == ["dashboard", "viewer"]
    assert scene.measured(updates=9) == ["dashboard", "viewer"]


def test_the_address_is_known_before_any_process_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, dashboard=True)
    (address,) = scene.addresses
    listener = scene.workers.channels.listener
    assert address.endswith(f"/?token={listener.token}")
    with listener.socket() as theirs, socket.create_connection(("127.0.0.1", urlsplit(address).port)):
        theirs.accept()[0].close()  # who connects early is served by the process that comes later
    listener.close()


def test_a_port_that_is_taken_costs_the_dashboard_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        scene = Scene(monkeypatch, dashboard=True, dashboard_port=taken.getsockname()[1])
        assert scene.addresses == scene.measured(updates=1) == []
    assert len(scene.reasons) == 1
    assert "--dashboard-port" in scene.reasons[0]


@pytest.mark.parametrize(("fields", "roles"), [({}, []), ({"dashboard": True, "view": False}, ["dashboard"])])
def test_only_who_is_wanted_comes(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], roles: list[str]) -> None:
    assert Scene(monkeypatch, **fields).measured(updates=1) == roles


def test_a_missing_package_is_recorded_once_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, installed=False, dashboard=True)
    assert scene.measured(updates=1) == scene.measured(updates=2) == []
    assert len(scene.reasons) == 1
    assert 'pip install "spreeze[dashboard]"' in scene.reasons[0]


def test_what_the_evaluator_has_kept_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    scene = Scene(monkeypatch, video_every=3)
    kept_weights(Path("run")).mkdir(parents=True)
    for version in (3, 6):  # the others it did not keep: it was not their turn, or the disk was full
        version_path(kept_weights(Path("run")), version).touch()
    for version in range(1, 8):
        scene.visualisation.evaluated(Evaluation(0.0, 0, 0, version, 0.0, 0.0, (), ()))
    assert scene.videos.ordered == ["eval-00000003.mp4", "eval-00000006.mp4"]


def test_python_shows_nothing_unasked_and_the_command_line_does(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Config("Pendulum-v1").watching
    assert (watching.dashboard, watching.video) == (False, False)
    seen: list[Config] = []

    def supervise(config: Config, *_others: object, **_named: object) -> None:
        seen.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("spreeze.commands.start_run.supervise", supervise)
    for words in ([], ["--quiet"], ["--no-dashboard", "--no-video"]):
        with pytest.raises(KeyboardInterrupt):
            _train(["Pendulum-v1", *words])
    shown = [(config.watching.dashboard, config.watching.view, config.watching.video) for config in seen]
    assert shown == [(True, True, True), (True, True, True), (False, True, False)]


def test_pictures_need_no_torch_and_no_pyav() -> None:
    program = "import sys; sys.modules['av'] = None; import spreeze.views.video; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"
