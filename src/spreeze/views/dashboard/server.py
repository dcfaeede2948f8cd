"""The server of the page: serves until the run or a signal ends it, and refreshes once per second."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from spreeze.errors import UsageError
from spreeze.host.priority import lower_priority
from spreeze.views.dashboard.access import Access, Gate
from spreeze.views.dashboard.runs import Runs
from spreeze.views.dashboard.shared_state import Dashboard, Frames, Live

if TYPE_CHECKING:
    import uvicorn

NICENESS = 10  # the page must not slow down the training


def serve(
    listener: socket.socket,
    access: Access,
    runs: Runs,
    frames: Frames,
    live: Live | None,
    on_ready: Callable[[], None],
) -> None:
    """Serve until the run ends, or until Ctrl-C."""
    if importlib.util.find_spec("nicegui") is None:
        raise UsageError('the dashboard needs NiceGUI, which is not installed: pip install "spreeze[dashboard]"')
    lower_priority(NICENESS)
    # Set before the import: NiceGUI stores nothing for us, and must not create its folder in the user's.
    os.environ["NICEGUI_STORAGE_PATH"] = os.path.join(os.devnull, "nicegui")  # noqa: PTH118 (never a folder)
    import uvicorn

    from spreeze.views.dashboard.application import make_application
    from spreeze.views.dashboard.connections import bounded_protocols

    dashboard = Dashboard(runs, access, frames, live)
    app = make_application(dashboard)

    class Server(uvicorn.Server):
        """Calls on_ready after its start, and ends at a signal without raising it again."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is threading.main_thread() and live is None:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, self.handle_exit)
            yield

    config = uvicorn.Config(
        Gate(app, access),
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
        server_header=False,
        **bounded_protocols(),
    )
    asyncio.run(_run(Server(config), listener, dashboard))


async def _run(server: uvicorn.Server, listener: socket.socket, dashboard: Dashboard) -> None:
    tasks = [asyncio.create_task(dashboard.keep_fresh())]
    if dashboard.live is not None:
        tasks.append(asyncio.create_task(_end_with_run(server, dashboard, dashboard.live)))
    try:
        await server.serve(sockets=[listener])
    finally:
        for task in tasks:
            task.cancel()


async def _end_with_run(server: uvicorn.Server, dashboard: Dashboard, live: Live) -> None:
    while not live.ending():
        await asyncio.sleep(0.05)  # short, since the end of the run waits for this process
    dashboard.is_ending = dashboard.frames.has_ended = True
    await dashboard.refresh()
    await asyncio.sleep(0.1)  # NiceGUI sends what has changed every 10 ms
    for page in dashboard.pages:
        page.close()
    await asyncio.sleep(0.1)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would log an error about the forced end
    server.should_exit = server.force_exit = True
