"""What all pages of one dashboard share: the runs, the newest picture, and the run that may be asked to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from spreeze.channels.frames import Frame, FrameReader
from spreeze.views.dashboard.access import Access
from spreeze.views.dashboard.runs import Runs

REFRESH_S = 1.0  # a run writes a line a second
FRAME_GAP_S = 0.1
FRAME_WAIT_S = 2.0  # how long a request waits for a frame that is not there
STALE_S = 5.0  # a viewer that has shown nothing for so long is not called live
log = logging.getLogger(__name__)


class OpenPage(Protocol):
    """A page that somebody looks at."""

    @property
    def is_open(self) -> bool:
        """Whether its browser is connected."""
        ...

    def shown_runs(self) -> Collection[str]:
        """Return the ids of the runs that it shows."""
        ...

    def show(self) -> None:
        """Draw what has changed."""
        ...

    def say_goodbye(self) -> None:
        """Tell the browser that the server ends."""
        ...


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

    def viewer_text(self) -> str:
        """Say what the viewer does."""
        if self._reader is None:
            return "only while it runs"
        self.newest()
        return "live" if time.monotonic() - self._came_at < STALE_S else "shows nothing"


class Dashboard:
    """What all pages share."""

    def __init__(self, runs: Runs, access: Access, frames: Frames, live: Live | None = None) -> None:
        self.runs, self.access, self.frames, self.live = runs, access, frames, live
        self.pages: set[OpenPage] = set()
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
