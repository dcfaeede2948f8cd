"""A real training, looked at in a real browser from its start to its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from servers import Look

if TYPE_CHECKING:
    from conftest import Running, Spreeze


def address_of(run: Running) -> str | None:
    found = re.search(r"http://\S+token=\S+", run.said())
    return found[0] if found else None


def test_a_training_is_seen_to_learn_and_stopped_from_the_page(spreeze: Spreeze, look: Look) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    shown = {"no_dashboard": None, "dashboard": True}
    adapting = {"no_adapt": None, "adapt_after_s": 1, "samplers": None, "batch_size": None}
    run = spreeze.start_training("Pendulum-v1", **shown, **adapting)
    spreeze.wait_until(lambda: address_of(run), "an address", run=run)
    page = look(address_of(run) or "")
    state = page.get_by_role("status", name="state of the run")
    expect(state).to_have_text("running")

    # The curve grows, and rates change.
    curve = page.get_by_role("img", name="return against wall time or env steps").locator("svg")
    rate = page.locator("[data-field=sampling_hz]")
    before = (curve.inner_html(), rate.inner_text())
    expect(rate).not_to_have_text(before[1])
    _wait_for_change(page, curve, before[0])
    # The policy moves.
    picture = page.get_by_alt_text("The policy at work, live")
    expect(picture).to_be_visible()
    source = picture.get_attribute("src")
    expect(picture).not_to_have_attribute("src", source)
    # A decision, in words.
    expect(page.locator(".events")).to_contain_text(re.compile(r"try \d+ sampler"))
    look.shot(page, "running")

    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop the run").click()
    expect(state).to_have_text("finished")
    look.shot(page, "finished")
    finished = run.finish()
    assert finished.returncode == 0, finished.stderr
    assert "token" not in (spreeze.run_dir / "events.jsonl").read_text()
    assert spreeze.read("summary.json")["stop_reason"] == "stopped"
    # The server is gone, and the page knows that it will not come back.
    expect(state).to_have_text("finished")
    expect(page.locator("#popup")).to_be_hidden()
    page.wait_for_function("window.socket.active === false")
    assert look.problems == []


def _wait_for_change(page: Any, curve: Any, before: str) -> None:
    page.wait_for_function(
        "([element, before]) => element.innerHTML !== before", arg=[curve.element_handle(), before]
    )
