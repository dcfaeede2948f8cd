"""What all pages of one dashboard share: the runs, the newest picture, and the run that can be stopped."""

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

REFRESH_S = 1.0  # a run writes one line per second
FRAME_GAP_S = 0.1
FRAME_WAIT_S = 2.0  # how long a request waits for the next frame
STALE_S = 5.0  # a viewer without a frame for so long does not count as live
# Each takes 0.7 MB. One is opened by its browser within a second; a client that is no browser opens none.
MAX_PAGES, MAX_UNOPENED = 128, 32
log = logging.getLogger(__name__)


class OpenPage(Protocol):
    """A page in a browser."""

    @property
    def is_open(self) -> bool:
        """Whether its browser is connected."""
        ...

    @property
    def is_unopened(self) -> bool:
        """Whether it is ready, and no browser is connected."""
        ...

    def shown_runs(self) -> Collection[str]:
        """Return the ids of the runs that it shows."""
        ...

    def show(self) -> None:
        """Draw what has changed."""
        ...

    def close(self) -> None:
        """Disconnect the browser: the server ends."""
        ...

    def discard(self) -> None:
        """Let go of the page; its browser loads it again, should it come back."""
        ...


@dataclass(frozen=True)
class Live:
    """The run that this server belongs to."""

    frames: FrameReader
    stop: Callable[[], None]
    """Ask the run to end."""
    ending: Callable[[], bool]
    """Whether it is ending. Called several times per second."""


class Frames:
    """The newest picture, read once for all pages."""

    def __init__(self, reader: FrameReader | None) -> None:
        self._reader = reader
        self._newest: Frame | None = None
        self._read_at = float("-inf")
        self._came_at = float("-inf")
        self.has_ended = False
        """Whether there will be no more pictures."""

    def newest(self) -> Frame | None:
        """Return the newest picture; the channel is read at most twenty times per second."""
        now = time.monotonic()
        if self._reader is not None and now - self._read_at >= FRAME_GAP_S / 2:
            self._read_at = now
            if (frame := self._reader.newest()) is not None:
                self._newest, self._came_at = frame, now
        return self._newest

    async def after(self, number: int) -> Frame | None:
        """Wait up to FRAME_WAIT_S for a picture other than the one a page has, by its number."""
        deadline = time.monotonic() + FRAME_WAIT_S
        while (frame := self.newest()) is None or frame.number == number:
            if self.has_ended or time.monotonic() > deadline:
                return None
            await asyncio.sleep(FRAME_GAP_S / 2)  # the viewer has to draw the next one
        return frame

    def viewer_text(self) -> str:
        """Describe what the viewer does."""
        if self._reader is None:
            return "only while running"
        self.newest()
        return "live" if time.monotonic() - self._came_at < STALE_S else "no picture"


class Dashboard:
    """The state that all pages share."""

    def __init__(self, runs: Runs, access: Access, frames: Frames, live: Live | None = None) -> None:
        self.runs, self.access, self.frames, self.live = runs, access, frames, live
        self.pages: dict[OpenPage, None] = {}
        """The oldest first."""
        self.stop_asked = False
        self.is_ending = False

    def has_room(self) -> bool:
        """Return whether there can be one more page; the oldest that no browser has opened may have to go for it."""
        unopened = [page for page in self.pages if page.is_unopened]
        if unopened and (len(unopened) >= MAX_UNOPENED or len(self.pages) >= MAX_PAGES):
            unopened[0].discard()
        return len(self.pages) < MAX_PAGES

    def stop(self) -> None:
        """Ask the run to end, once."""
        if self.live is not None and not self.stop_asked:
            self.stop_asked = True
            self.live.stop()

    async def refresh(self) -> None:
        """Update all open pages."""
        open_pages = [page for page in self.pages if page.is_open]
        if not open_pages:
            return
        async with self.runs.fresh({run_id for page in open_pages for run_id in page.shown_runs()}):
            for page in open_pages:
                page.show()

    async def keep_fresh(self) -> None:
        """Refresh once per second, until cancelled."""
        while True:
            try:
                await self.refresh()
            except Exception:  # of one page or one run: the others continue
                log.exception("a refresh failed")
            await asyncio.sleep(REFRESH_S)  # runs write no faster
