from __future__ import annotations

import pytest
from folders import metric

from spreeze.views.dashboard import markup

EVIL = '<img src=x onerror="alert(1)">'


def test_what_comes_from_files_is_escaped() -> None:
    parts = [
        markup.events([{"kind": EVIL, "reason": EVIL, "wall_s": 1.0}]),
        markup.settings({EVIL: EVIL, "env": [EVIL]}, [{"setting": EVIL + "2", "value": EVIL, "reason": EVIL}]),
        markup.machine({"cpu_by_role": {EVIL: 1.0}, "cpu_cores": [EVIL, 3.0]}),
    ]
    for part in parts:
        assert "<img" not in part
        assert part


def test_tokens_are_not_shown() -> None:
    address = "the dashboard is at http://127.0.0.1:8420/?token=fTPv-J_i%20x"
    for part in (markup.events([{"kind": "warning", "reason": address}]), markup.settings({"env": address}, [])):
        assert "token=…" in part
        assert "fTPv" not in part


def test_the_path_of_the_run_is_not_shown() -> None:
    assert "/home/me" not in markup.settings({"env": "Pendulum-v1", "run_dir": "/home/me/runs/a"}, [])


def test_settings_say_what_was_chosen_and_why() -> None:
    choices = [
        {"setting": "samplers", "value": 2, "reason": "an early guess"},
        {"setting": "samplers", "value": 4, "reason": "4 cores"},
    ]
    table = markup.settings({"samplers": "auto", "seed": 0}, choices)
    assert "<td>4</td>" in table
    assert "4 cores" in table
    assert "early guess" not in table


def test_events_come_newest_first_and_are_bounded() -> None:
    shown = markup.events([{"kind": "adapt", "reason": f"step {i}.", "wall_s": i} for i in range(1000)])
    assert shown.index("step 999.") < shown.index("step 998.")
    assert shown.count("<li>") == markup.MAX_EVENTS


@pytest.mark.parametrize(
    "newest", [None, {}, {"cpu_cores": "x", "cpu_by_role": 3}, {"cpu_cores": [None], "cpu_by_role": {}}]
)
def test_the_machine_is_shown_without_figures_too(newest: dict[str, object] | None) -> None:
    assert "Memory" in markup.machine(newest)


def test_the_machine_shows_cores_and_roles() -> None:
    shown = markup.machine(metric(5, gpu_percent=41.0, gpu_bytes=2e9))
    for text in ("CPU, 4 cores", "91%", "2.6 cores", "41%", "2.0 GB", "1.2 GB"):
        assert text in shown


def test_sparklines_of_anything() -> None:
    assert "polyline" not in markup.sparkline([])
    assert "polyline" not in markup.sparkline([1.0])
    assert markup.sparkline([2.0, 2.0, 2.0]).count(",") == 3
