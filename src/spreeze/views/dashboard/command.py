"""`spreeze dashboard`: serves runs from their folders, without being part of a run."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from spreeze.errors import ConfigError, RunFolderError
from spreeze.views.dashboard.access import Access
from spreeze.views.dashboard.port import bind
from spreeze.views.dashboard.runs import Runs, find_runs, require_runs
from spreeze.views.dashboard.server import serve
from spreeze.views.dashboard.shared_state import Frames

DEFAULT_ROOT = Path("runs")


def show_runs(paths: Sequence[Path], host: str, port: int, opens: bool) -> None:
    """Serve until a signal ends it."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port must be within 0 and 65535, not {port}")
    require_runs(paths)
    if not paths and not find_runs([DEFAULT_ROOT]):
        raise RunFolderError(
            f"there are no runs under {DEFAULT_ROOT}: start one with spreeze train ENV, or name one: "
            "spreeze dashboard RUN"
        )
    listener = bind(host, port)
    access = Access(host, listener.getsockname()[1])
    frames = Frames(None)

    def ready() -> None:
        print(f"Spreeze dashboard: {access.address}\nCtrl-C ends it.", flush=True)
        if opens:
            webbrowser.open(access.address)

    serve(listener, access, Runs(paths or [DEFAULT_ROOT], frames.viewer_text), frames, None, ready)
