"""The server of the page: binds, serves until told to end, and refreshes what is looked at once a second."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spreeze.channels.frames import Frame, FrameReader
from spreeze.dashboard.access import Access, Gate
from spreeze.dashboard.runs import Runs
from spreeze.errors import ConfigError, UsageError
from spreeze.priority import give_way

if TYPE_CHECKING:
    import uvicorn

    from spreeze.dashboard.page import Page

FIRST_PORT, PORTS_TO_TRY = 8420, 20
REFRESH_S = 1.0  # a run writes a line a second
FRAME_GAP_S = 0.1
FRAME_WAIT_S = 2.0  # how long a request waits for a frame that is not there
STALE_S = 5.0  # a viewer that has shown nothing for so long is not called live
log = logging.getLogger(__name__)

NICENESS = 10  # the page must not take time from training


@dataclass(frozen=True)
class Live:
    """The run that this server belongs to."""

    frames: FrameReader
    stop: Callable[[], None]
    """Ask the run to end."""
    ending: Callable[[], bool]
    """Whether it ends: looked at several times a second."""


class Frames:
    """The newest picture, read once for all pages."""

    def __init__(self, reader: FrameReader | None) -> None:
        self._reader = reader
        self._newest: Frame | None = None
        self._read_at = float("-inf")
        self._came_at = float("-inf")
        self.has_ended = False
        """Whether nobody need wait for another one."""

    def newest(self) -> Frame | None:
        """Look for a new picture, at most ten times a second."""
        now = time.monotonic()
        if self._reader is not None and now - self._read_at >= FRAME_GAP_S / 2:
            self._read_at = now
            if (frame := self._reader.newest()) is not None:
                self._newest, self._came_at = frame, now
        return self._newest

    async def after(self, number: int) -> Frame | None:
        """Wait a while for a picture other than the one a page has; a viewer that was restarted counts on."""
        deadline = time.monotonic() + FRAME_WAIT_S
        while (frame := self.newest()) is None or frame.number == number:
            if self.has_ended or time.monotonic() > deadline:
                return None
            await asyncio.sleep(FRAME_GAP_S / 2)  # until the viewer has drawn the next one
        return frame

    def words(self) -> str:
        """Say what the viewer does."""
        if self._reader is None:
            return "only while it runs"
        self.newest()
        return "live" if time.monotonic() - self._came_at < STALE_S else "shows nothing"


class Dashboard:
    """What all pages share."""

    def __init__(self, runs: Runs, access: Access, frames: Frames, live: Live | None = None) -> None:
        self.runs, self.access, self.frames, self.live = runs, access, frames, live
        self.pages: set[Page] = set()
        self.stop_asked = False
        self.is_ending = False

    def stop(self) -> None:
        """Ask the run to end, once."""
        if self.live is not None and not self.stop_asked:
            self.stop_asked = True
            self.live.stop()

    async def refresh(self) -> None:
        """Bring all pages up to date."""
        open_pages = [page for page in self.pages if page.is_open]
        if not open_pages:
            return
        async with self.runs.fresh({run_id for page in open_pages for run_id in page.shown_runs()}):
            for page in open_pages:
                page.show()

    async def keep_fresh(self) -> None:
        """Refresh once a second, for as long as the server runs."""
        while True:
            try:
                await self.refresh()
            except Exception:  # of one page or one run: the others go on
                log.exception("a refresh failed")
            await asyncio.sleep(REFRESH_S)  # runs write no faster


def bind(host: str, port: int, flag: str = "--port") -> socket.socket:
    """Return a listening socket; port 0 takes the first free one from FIRST_PORT on."""
    tried = range(FIRST_PORT, FIRST_PORT + PORTS_TO_TRY) if port == 0 else (port,)
    try:
        family, _, _, _, _ = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise ConfigError(
            f"{host!r} is not an address of this machine: 127.0.0.1 is, and 0.0.0.0 lets others in"
        ) from None
    problem = ""
    for candidate in (*tried, 0) if port == 0 else tried:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(128)
            return listener
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            listener.close()
    raise UsageError(f"{flag} {port} of {host} cannot be used ({problem}): take another one, or leave it out")


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
    give_way(NICENESS)
    # Before it is imported: NiceGUI keeps nothing for us, and must not make its folder where the user is.
    os.environ["NICEGUI_STORAGE_PATH"] = os.path.join(os.devnull, "nicegui")  # noqa: PTH118 (never a folder)
    import uvicorn

    from spreeze.dashboard.application import make_application

    dashboard = Dashboard(runs, access, frames, live)
    app = make_application(dashboard)

    class Server(uvicorn.Server):
        """Says when it is ready, and ends at a signal without passing it on."""

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
        ws_max_size=1 << 20,
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
        await asyncio.sleep(0.05)  # the run's end waits for this process
    dashboard.is_ending = dashboard.frames.has_ended = True
    await dashboard.refresh()
    await asyncio.sleep(0.1)  # NiceGUI sends what has changed every 10 ms
    for page in dashboard.pages:
        page.say_goodbye()
    await asyncio.sleep(0.1)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would complain of being cut short
    server.should_exit = server.force_exit = True
