"""The web application: the page and the pictures, with NiceGUI. Imported only by the server: it takes a second."""

from __future__ import annotations

import time

from fastapi import FastAPI, Request, Response
from nicegui import app as nicegui_app
from nicegui import ui

from spreeze.host.json_text import json_text
from spreeze.views.dashboard.access import FRAME_PATH, cookie_in
from spreeze.views.dashboard.connections import REFUSED
from spreeze.views.dashboard.formatting import score
from spreeze.views.dashboard.page import Page
from spreeze.views.dashboard.shared_state import Dashboard

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#0b7285"/>'
    '<path d="M6 19c4 0 4-6 10-6s6 6 10 6" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>'
)


def make_application(dashboard: Dashboard) -> FastAPI:
    """Make the application. Only once per process: NiceGUI has one application."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    access = dashboard.access

    @app.get(FRAME_PATH)
    async def _frame(key: str = "", after: int = 0) -> Response:
        if not access.is_frame_key(key):
            return Response("Pictures are for pages of this dashboard.\n", 403, media_type="text/plain")
        frame = await dashboard.frames.after(after)
        if frame is None:
            return Response(status_code=204)
        facts = {
            "number": frame.number,
            "return": score(frame.episode_return),
            "steps": f"{frame.episode_steps:,}",
            "version": f"{frame.version:,}",
            "age_s": age_s(frame.published_at, time.monotonic()),
        }
        headers = {"x-frame": json_text(facts), "cache-control": "no-store"}
        return Response(frame.jpeg, media_type="image/jpeg", headers=headers)

    @ui.page("/", title="Spreeze", dark=None, response_timeout=30.0, reconnect_timeout=5.0)
    async def _page() -> Response | None:
        if not dashboard.has_room():
            return Response(REFUSED, 503, {"retry-after": "10"}, media_type="text/plain")
        request = ui.context.client.request
        query = dict(request.query_params)
        cookie = cookie_in(dict(request.headers), access.cookie)
        may_stop = dashboard.live is not None and access.may_stop(query.get("token"), cookie)
        await Page(dashboard, query, may_stop).build()
        return None

    nicegui_app.add_exception_handler(Exception, no_details)
    ui.run_with(
        app,
        title="Spreeze",
        favicon=FAVICON,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        message_history_length=100,
        show_welcome_message=False,
    )
    return app


def age_s(published_at: float, now: float) -> float | None:
    """Return how old weights are; None where that is not known: a machine that was started again counts from 0."""
    return round(now - published_at, 1) if published_at <= now else None


async def no_details(_: Request, __: Exception) -> Response:
    """Answer without details of the error, which may be private; they are in the log."""
    return Response(
        "The dashboard could not answer this request; its log has the reason.\n", 500, media_type="text/plain"
    )
