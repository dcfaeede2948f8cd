"""The dashboard of a run under way: serves the page from run folder and frames, and passes on a wish to stop."""

from __future__ import annotations

import webbrowser

from spreeze.channels.brief import ChildSpec
from spreeze.channels.control import MessageWriter
from spreeze.views.dashboard.access import Access
from spreeze.views.dashboard.runs import Runs
from spreeze.views.dashboard.server import bind, serve
from spreeze.views.dashboard.shared import Frames, Live


def run(spec: ChildSpec, messages: MessageWriter) -> None:
    """Serve until the run ends."""
    control = spec.channels.control
    control.beat(spec.slot)
    watching = spec.config.watching
    host, port, opens = watching.dashboard_host, watching.dashboard_port, watching.open
    listener = bind(host, port, "--dashboard-port")
    access = Access(host, listener.getsockname()[1])
    frames = spec.channels.frames.reader()

    def ending() -> bool:
        control.beat(spec.slot)
        return control.dismissed_alone(spec.slot)  # not at the stop of all: pages are to show how the run has ended

    def ready() -> None:
        messages.send("address", url=access.address)
        if opens:
            webbrowser.open(access.address)

    live = Live(frames, lambda: messages.send("stop", reason="stopped from the dashboard"), ending)
    pictures = Frames(frames)
    serve(listener, access, Runs([], pictures.words, certain=spec.run_dir), pictures, live, ready)
