"""The elements that the page is made of: two with scripts of their own, cards, and styled ones of NiceGUI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui
from nicegui.element import Element

from spreeze.views.dashboard.flow import Flow

# Colours of our own, since Quasar's own classes cannot be overruled.
TOGGLE = "dense no-caps unelevated color=quiet text-color=quiet toggle-color=chosen toggle-text-color=chosen"


class FlowDrawing(Element, component="flow.js"):
    """The drawing of the flow."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self._props["flow"] = flow.as_properties()

    def set(self, flow: Flow) -> None:
        """Draw another state."""
        self._props["flow"] = flow.as_properties()
        self.update()


class Robot(Element, component="robot.js"):
    """The policy at work, or why it is not shown."""

    def __init__(self, address: str, waiting: str, hint: str) -> None:
        super().__init__()
        self._props.update(address=address, waiting=waiting, hint=hint)


def block(classes: str, tag: str = "div") -> ui.element:
    """Return an element that holds others."""
    return ui.element(tag).classes(classes)


def html(content: str, classes: str = "") -> ui.html:
    """Return markup of ours, in which all that comes from files is escaped already."""
    return ui.html(content, sanitize=False).classes(classes)


class card:  # noqa: N801 (used like NiceGUI's own elements)
    """A titled area of the page; the context manager returns its head, where the title is."""

    def __init__(self, title: str, size: str) -> None:
        self._card = block(f"card card-{size}", "section").props(f'aria-label="{title}"')
        with self._card:
            self._head = block("card-head")
            with self._head:
                html(f"<h2>{title}</h2>")

    def __enter__(self) -> ui.element:
        self._card.__enter__()
        return self._head

    def __exit__(self, *_: object) -> None:
        self._card.__exit__(*_)


def set_options(chart: ui.echart, options: Mapping[str, Any]) -> None:
    """Draw something else in a chart."""
    chart.options.clear()
    chart.options.update(options)
    chart.update()
