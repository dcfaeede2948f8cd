"""The dashboard process of a run: serves the page from run folder and frames, and forwards a request to stop."""

from __future__ import annotations

import webbrowser

from spreeze.channels.brief import Brief
from spreeze.channels.control import MessageWriter
from spreeze.views.dashboard.access import Access
from spreeze.views.dashboard.runs import Runs
from spreeze.views.dashboard.server import serve
from spreeze.views.dashboard.shared_state import Frames, Live


def run(brief: Brief, messages: MessageWriter) -> None:
    """Serve until the run ends."""
    control = brief.channels.control
    control.beat(brief.slot)
    watching, door = brief.config.watching, brief.channels.listener
    listener = door.socket()
    access = Access(watching.dashboard_host, listener.getsockname()[1], door.token)
    frames = brief.channels.frames.reader()

    def ending() -> bool:
        control.beat(brief.slot)
        return control.dismissed_alone(brief.slot)  # not when all processes stop: pages show how the run has ended

    def ready() -> None:
        messages.send("address", url=access.address)
        if watching.open:
            webbrowser.open(access.address)

    live = Live(frames, lambda: messages.send("stop", reason="stopped from the dashboard"), ending)
    pictures = Frames(frames)
    serve(listener, access, Runs([], pictures.viewer_text, certain=brief.run_dir), pictures, live, ready)
