"""The page in a real browser, before real servers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from folders import append, evaluation, finish, metric, write_run
from servers import Look, Served, wait_until

Serve = Callable[..., Served]


def expect(what: Any) -> Any:
    """Wait for something on a page, as long as a loaded machine may need."""
    from playwright.sync_api import expect as wait

    wait.set_options(timeout=30_000)
    return wait(what)


def figure(page: Any, field: str) -> Any:
    return page.locator(f"[data-field={field}]")


def test_a_run_that_goes_on_is_shown_as_it_grows(serve: Serve, look: Look, tmp_path: Path) -> None:
    run = write_run(tmp_path / "growing", 20)
    page = look(serve(run).address)
    expect(page.get_by_role("status", name="state of the run")).to_have_text("running")
    curve = page.get_by_role("img", name="return against wall time or env steps").locator("svg")
    expect(curve).to_contain_text("evaluation, mean ± std")
    expect(figure(page, "sampling_hz")).to_contain_text("3,")
    expect(page.locator(".sentence")).to_contain_text("the learner is the bottleneck")
    expect(page.locator(".events li").first).to_contain_text("kept samplers 4 → 5")
    under_way = {"version": 81, "played": 3, "episodes": 10, "mean_return": -150.0}
    for i in range(20, 25):
        append(run / "metrics.jsonl", metric(i, sampling_hz=7777.0, policy_lag_s=0.5, evaluating=under_way))
        append(run / "evaluations.jsonl", evaluation(i))
    append(run / "events.jsonl", {"wall_s": 24.0, "kind": "warning", "reason": "something to <b>know</b>"})
    expect(figure(page, "sampling_hz")).to_have_text("7,777")
    expect(figure(page, "policy_lag_s")).to_have_text("500 ms")
    expect(page.locator(".words")).to_contain_text(
        "running · evaluating version 81: 3 of 10 episodes, mean so far −150"
    )
    expect(page.locator(".events li").first).to_contain_text("something to <b>know</b>")
    finish(run, 25)
    expect(page.get_by_role("status", name="state of the run")).to_have_text("finished")
    expect(page.locator(".words")).to_contain_text("the time limit was reached · best return −143.2")
    assert look.shot(page, "finished").stat().st_size
    assert look.problems == []
    assert len(look.hosts - {""}) == 1  # works offline: nothing comes from elsewhere


def test_the_axis_tabs_and_theme_can_be_switched_by_keyboard(serve: Serve, look: Look, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 400, ends="max_seconds")
    page = look(serve(run).address, scheme="dark")
    curve = page.get_by_role("img", name="return against wall time or env steps").locator("svg")
    expect(curve).to_contain_text("wall time (min)")
    page.get_by_role("button", name="env steps").press("Enter")
    expect(curve).to_contain_text("env steps (thousands)")
    page.get_by_role("tab", name="Learning").press("Enter")
    for title in ("Critic loss", "Temperature", "Q mean", "Entropy"):
        expect(page.get_by_role("img", name=f"{title} against wall time").locator("svg")).to_be_visible()
    page.get_by_role("tab", name="Settings").press("Enter")
    expect(page.get_by_role("row", name="samplers")).to_contain_text("4 cores: one each")
    assert str(tmp_path) not in page.content()
    assert page.locator("body.body--dark").count() == 1  # follows the system
    page.get_by_role("button", name="theme: system").press("Enter")
    expect(page.locator("body.body--light")).to_have_count(1)
    expect(page).to_have_url(re.compile("theme=light"))  # kept there, by a message after that which changes the look
    page.reload()
    expect(page.locator("body.body--light")).to_have_count(1)
    expect(page.get_by_role("row", name="samplers")).to_be_visible()
    assert look.problems == []


@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.full)])
def test_nothing_is_wider_than_the_screen(serve: Serve, look: Look, tmp_path: Path, width: int) -> None:
    write_run(tmp_path / "runs" / "a-run-with-quite-a-long-name-20260101-120000-12345", 90, ends="max_seconds")
    write_run(tmp_path / "runs" / "another", 90, ends="failed")
    page = look(serve(tmp_path / "runs").address, width)
    for tab in ("Run", "Learning", "Settings", "Compare"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(".card").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        look.shot(page, f"{width}-{tab}")
    assert look.problems == []


def test_a_failed_run_says_why_and_a_silent_one_that_it_is(serve: Serve, look: Look, tmp_path: Path) -> None:
    failed = write_run(tmp_path / "failed", 20, ends="failed")
    append(failed / "events.jsonl", {"wall_s": 19.0, "kind": "error", "reason": "sampler 0 failed: ValueError: no"})
    page = look(serve(failed).address)
    expect(page.get_by_role("status", name="state of the run")).to_have_text("failed")
    expect(page.locator(".words")).to_have_text("sampler 0 failed: ValueError: no")
    (failed / "summary.json").unlink()
    for name in ("metrics.jsonl", "config.json"):
        os.utime(failed / name, (1000, 1000))
    expect(page.get_by_role("status", name="state of the run")).to_have_text("silent")
    assert look.problems == []


def test_a_folder_that_goes_away_is_told_and_what_was_read_stays(serve: Serve, look: Look, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 20)
    page = look(serve(run).address)
    expect(page.get_by_role("status", name="state of the run")).to_have_text("running")
    shutil.rmtree(run)
    expect(page.get_by_role("status", name="state of the run")).to_have_text("folder gone")
    expect(figure(page, "sampling_hz")).to_contain_text("3,")
    assert look.problems == []


DAMAGE = {
    "nonsense": b"nonsense\n" * 100,
    "cut off": json.dumps(metric(3)).encode()[:200],
    "not text": bytes(range(256)) * 100,
    "no numbers": b'{"wall_s": "x", "sampling_hz": [], "num_samplers": {}, "cpu_cores": {}, "cpu_by_role": 5}\n' * 9,
    "huge numbers": b'{"wall_s": 1e308, "sampling_hz": 1e308, "replay_rows": -1e308, "train_return": 1e308}\n' * 9,
    "huge returns": b'{"wall_s": 30, "mean_return": 1e308, "std_return": 1e308, "train_return": -1e308}\n'
    b'{"wall_s": 31, "mean_return": -1e308, "std_return": 1e300, "train_return": 1e308, "critic_loss": 1e308, '
    b'"sampling_hz": 1e308, "updates_per_step": -1e308, "policy_lag_s": 1e300, "cpu_percent": 1e308}\n' * 500,
    "a long line": b'{"x": "' + b"y" * (3 << 20) + b'"}\n',
    "deep": b"[" * 100_000 + b"\n",
}


SLOW_DAMAGE = (
    "cut off",
    "not text",
    "huge numbers",
    "no numbers",
    "a long line",
    "deep",
)  # each is much like another


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.full if kind in SLOW_DAMAGE else ()) for kind in DAMAGE]
)
def test_damaged_journals_are_shown_as_far_as_they_can_be(
    serve: Serve, look: Look, tmp_path: Path, kind: str
) -> None:
    run = write_run(tmp_path / "run", 20, ends="max_seconds")
    for journal in ("metrics", "evaluations", "events"):
        with (run / f"{journal}.jsonl").open("ab") as file:
            file.write(b"\n" + DAMAGE[kind])
    served = serve(run)
    page = look(served.address)
    expect(page.get_by_role("status", name="state of the run")).to_have_text("finished")
    expect(page.get_by_role("img", name="return against wall time or env steps").locator("svg")).to_be_visible()
    for tab in ("Run", "Learning", "Settings"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(".card").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440, tab
    assert look.problems == []
    served.process.terminate()
    served.process.wait()
    assert served.said().splitlines()[1:] == ["Ctrl-C ends it."]  # without warnings


def test_long_runs_and_many_pages_take_little_memory(serve: Serve, look: Look, tmp_path: Path, in_full: bool) -> None:
    count = 10 if in_full else 4
    for i in range(count):
        write_run(tmp_path / "runs" / f"run-{i}", 3600, seed=i, ends="max_seconds")
    served = serve(tmp_path / "runs", as_program=True)
    pages = [look(served.address) for _ in range(count)]
    pages[0].get_by_role("tab", name="Compare").click()
    expect(pages[0].locator(".compare-table tbody tr")).to_have_count(1)
    expect(pages[0].locator(".compare-table tbody")).to_contain_text(str(count))
    for page in pages[1:]:
        expect(page.get_by_role("status", name="state of the run")).to_have_text("finished")
    # Run again and again: the same readers serve them all.
    for run in ("run-1", "run-2"):
        pages[1].get_by_role("combobox", name="run").click()
        pages[1].get_by_role("option", name=run).click()
        expect(pages[1].locator(".run-choice")).to_contain_text(run)
    assert psutil.Process(served.process.pid).memory_info().rss < 200e6
    session = pages[1].context.new_cdp_session(pages[1])
    session.send("HeapProfiler.collectGarbage")
    assert session.send("Runtime.getHeapUsage")["usedSize"] < 150e6
    assert look.problems == []


def test_runs_are_compared_by_their_settings(serve: Serve, look: Look, tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "runs" / f"small-{seed}", 60, seed=seed, batch_size=256, ends="max_seconds")
    write_run(tmp_path / "runs" / "large", 60, offset=-300, batch_size=512, ends="max_seconds")
    page = look(serve(tmp_path / "runs").address)
    page.get_by_role("tab", name="Compare").click()
    rows = page.locator(".compare-table tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator(".compare-table")).to_contain_text("Pendulum-v1 · batch_size 256")
    expect(rows.filter(has_text="batch_size 256")).to_contain_text("3")
    expect(rows.filter(has_text="batch_size 512")).to_contain_text("one run")
    look.shot(page, "compare")
    assert look.problems == []


def test_the_page_comes_back_with_its_server(serve: Serve, look: Look, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 20)
    served = serve(run)
    page = look(served.address)
    expect(figure(page, "sampling_hz")).to_contain_text("3,")
    served.process.terminate()
    served.process.wait()
    append(run / "metrics.jsonl", metric(20, sampling_hz=8888.0))
    serve(run, port=served.port)
    expect(figure(page, "sampling_hz")).to_have_text("8,888")


def test_a_live_run_shows_the_policy_at_work(serve_live: Serve, look: Look, tmp_path: Path) -> None:
    served = serve_live(write_run(tmp_path / "run", 20))
    page = look(served.address)
    picture = page.get_by_role("img", name="The policy at work, live")
    expect(picture).to_be_visible()
    first = picture.get_attribute("src")
    words = page.locator(".robot-words")
    expect(words).to_contain_text(re.compile(r"version\s+12,087, \d+ s old"))
    assert words.evaluate("box => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight")
    expect(picture).not_to_have_attribute("src", first)
    expect(page.locator(".flow-wide")).to_contain_text("live")
    look.shot(page, "live")
    assert look.problems == []


def test_without_a_viewer_there_is_a_place_for_it(serve_live: Serve, look: Look, tmp_path: Path) -> None:
    page = look(serve_live(write_run(tmp_path / "run", 20), draws=False).address)
    expect(page.locator(".robot")).to_contain_text("No picture yet")
    assert look.problems == []


def test_stopping_asks_first_and_needs_the_token(serve_live: Serve, look: Look, tmp_path: Path) -> None:
    served = serve_live(write_run(tmp_path / "run", 20))

    def stops() -> list[dict[str, Any]]:
        served.read_messages()
        return [message for message in served.messages if message["kind"] == "stop"]

    for address in (served.origin, f"{served.origin}/?token=wrong"):
        stranger = look(address)
        expect(figure(stranger, "sampling_hz")).to_contain_text("3,")
        expect(stranger.get_by_role("button", name="Stop")).to_have_count(0)
    page = look(served.address)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Keep running").click()
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    assert stops() == []
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop the run").click()
    expect(page.get_by_role("status", name="state of the run")).to_have_text("stopping")
    wait_until(stops, "a wish to stop")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    assert stops() == [{"kind": "stop", "reason": "stopped from the dashboard"}]
    assert served.process.stdin is not None
    served.process.stdin.write("end\n")
    served.process.stdin.flush()
    expect(page.get_by_role("status", name="state of the run")).to_have_text("ended")
    assert served.process.wait() == 0
