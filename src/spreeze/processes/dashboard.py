"""The dashboard of a run under way: serves the page from run folder and frames, and passes on a wish to stop."""

from __future__ import annotations

import webbrowser
from typing import Any

from spreeze.channels.control import MessageWriter
from spreeze.child import ChildSpec
from spreeze.config import Config
from spreeze.dashboard.access import Access
from spreeze.dashboard.runs import Runs
from spreeze.dashboard.server import Frames, Live, bind, serve


def run(spec: ChildSpec, messages: MessageWriter) -> None:
    """Serve until the run ends."""
    control = spec.channels.control
    control.beat(spec.slot)
    host, port, opens = where_to_serve(spec.config)
    listener = bind(host, port, "--dashboard-port")
    access = Access(host, listener.getsockname()[1])
    frames = spec.channels.frames.reader()

    def ending() -> bool:
        control.beat(spec.slot)
        return control.dismissed_alone(spec.slot)  # after the others: pages are told how the run ended

    def ready() -> None:
        messages.send("address", url=access.address)
        if opens:
            webbrowser.open(access.address)

    live = Live(frames, lambda: messages.send("stop", reason="stopped from the dashboard"), ending)
    pictures = Frames(frames)
    serve(listener, access, Runs([], pictures.words, certain=spec.run_dir), pictures, live, ready)


def where_to_serve(config: Config) -> tuple[str, int, bool]:
    """Return address, port (0: any) and whether to open a browser, whichever part of the config they stand in."""
    fields: dict[str, Any] = config.flat()
    port = fields.get("dashboard_port")
    return (
        str(fields.get("dashboard_host") or "127.0.0.1"),
        port if isinstance(port, int) else 0,
        bool(fields.get("open", False)),
    )
