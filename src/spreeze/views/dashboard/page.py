"""The page, in NiceGUI's elements: built once per browser, then updated where the view of its run has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from nicegui import ui

from spreeze.host.json_text import json_text
from spreeze.views.dashboard.access import FRAME_PATH
from spreeze.views.dashboard.chart_data import Axis
from spreeze.views.dashboard.compare_tab import CompareTab
from spreeze.views.dashboard.elements import TOGGLE, FlowDrawing, Robot, block, card, html, set_options
from spreeze.views.dashboard.formatting import STATE_TITLES, duration
from spreeze.views.dashboard.run_view import FIGURES, RunView, title_of
from spreeze.views.dashboard.runs import RunEntry
from spreeze.views.dashboard.shared_state import Dashboard

STYLE = (Path(__file__).parent / "style.css").read_text()
AXES: Mapping[str, str] = {"wall_s": "wall time", "env_steps": "env steps"}
TABS: Mapping[str, str] = {"run": "Run", "learning": "Learning", "settings": "Settings", "compare": "Compare"}
# Themes, in the order of the button: name, icon on the button, NiceGUI's value.
THEMES: Mapping[str, tuple[str, bool | None]] = {
    "system": ("brightness_auto", None),
    "light": ("light_mode", False),
    "dark": ("dark_mode", True),
}


class Page:
    """One browser's page."""

    def __init__(self, dashboard: Dashboard, query: Mapping[str, str], may_stop: bool) -> None:
        self._dashboard, self._may_stop = dashboard, may_stop
        self._client = ui.context.client
        self._run_id = dashboard.runs.known(query.get("run"))
        self._axis: Axis = "env_steps" if query.get("axis") == "env_steps" else "wall_s"
        self._theme = query["theme"] if query.get("theme") in THEMES else "system"
        self._tab = query["tab"] if query.get("tab") in self._tabs() else "run"
        self._updates: list[Callable[[RunView], object]] = []
        self._shown: tuple[object, ...] = ()
        self._compare: CompareTab | None = None
        self._is_built = False
        dashboard.pages[self] = None
        self._client.on_delete(lambda: dashboard.pages.pop(self, None))

    @property
    def is_unopened(self) -> bool:
        """Whether it is ready, and no browser is connected."""
        return self._is_built and not self.is_open

    @property
    def is_open(self) -> bool:
        """Whether a browser is connected."""
        return self._client.has_socket_connection

    def shown_runs(self) -> set[str]:
        """Return the ids of the runs that this page shows."""
        compared = self._compare.selected if self._compare is not None and self._tab == "compare" else []
        return {run_id for run_id in (self._run_id, *compared) if run_id is not None}

    async def build(self) -> None:
        """Make the page with the current data."""
        await self._build()
        self._is_built = True

    async def _build(self) -> None:
        ui.add_head_html(f"<style>{STYLE}</style>")
        if self._run_id is None:
            html('<p class="empty">There are no runs.</p>')
            return
        async with self._dashboard.runs.fresh(self.shown_runs()):
            html('<a class="skip" href="#content">Skip to the run</a>')
            with block("page"):
                self._header()
                with block("content").props("id=content"):
                    self._state_line()
                    self._tab_bar()
            self.show(again=True)

    def _tabs(self) -> dict[str, str]:
        many = len(self._dashboard.runs.entries) > 1
        return {name: title for name, title in TABS.items() if name != "compare" or many}

    @property
    def _view(self) -> RunView:
        assert self._run_id is not None
        return self._dashboard.runs.run(self._run_id).view

    # --- parts -------------------------------------------------------------------------------------------------

    def _header(self) -> None:
        with block("top", "header"):
            html('<span class="brand">Spreeze</span>')
            self._run_choice()
            pill = html("", "pill-box").props('aria-live=polite role=status aria-label="state of the run"')
            self._on_view(lambda view: pill.set_content(self._pill(view)))
            block("gap")
            clock = ui.label().classes("clock").props('aria-label="wall time"')
            self._on_view(lambda view: clock.set_text(duration(view.wall_s)))
            self._theme_button()
            if self._may_stop:
                self._stop_button()

    def _pill(self, view: RunView) -> str:
        state, title = view.state, STATE_TITLES[view.state]
        if not view.has_ended and self._dashboard.is_ending:
            state, title = "finished", "ended"
        elif not view.has_ended and self._dashboard.stop_asked:
            title = "stopping"
        return f'<span class="pill pill-{state}">{title}</span>'

    def _run_choice(self) -> None:
        entries = self._dashboard.runs.entries
        if len(entries) == 1:
            ui.label(entries[0].name).classes("run-name")
            return

        async def choose(run_id: str) -> None:
            self._run_id = run_id
            await self._change("run", run_id)

        choice = ui.select(labels(entries), value=self._run_id, on_change=lambda event: choose(event.value))
        choice.classes("run-choice").props('dense borderless aria-label="run" popup-content-class=run-list')

        def list_new(_: RunView) -> None:
            if choice.options != (found := labels(self._dashboard.runs.entries)):
                choice.set_options(found)

        self._on_view(list_new)

    def _theme_button(self) -> None:
        dark = ui.dark_mode(THEMES[self._theme][1])

        def turn() -> None:
            order = list(THEMES)
            self._theme = order[(order.index(self._theme) + 1) % len(order)]
            self._remember("theme", self._theme)
            apply()

        def apply() -> None:
            icon, value = THEMES[self._theme]
            dark.set_value(value)
            button.props(f'icon={icon} aria-label="theme: {self._theme}" title="theme: {self._theme}"')

        button = ui.button(on_click=turn, color=None).props("flat round dense").classes("theme")
        apply()

    def _stop_button(self) -> None:
        with ui.dialog() as dialog, block("card dialog").props("role=alertdialog aria-labelledby=stop-title"):
            html(
                '<h2 id="stop-title">Stop this run?</h2><p>It ends cleanly: the weights and the summary are kept.</p>'
            )
            with block("dialog-buttons"):
                ui.button("Keep running", on_click=dialog.close).props("flat no-caps autofocus")
                ui.button("Stop the run", on_click=lambda: stop(), color=None).props("unelevated no-caps").classes(
                    "danger"
                )

        async def stop() -> None:
            dialog.close()
            async with self._dashboard.runs.fresh():
                if self._may_stop and not self._view.has_ended:
                    self._dashboard.stop()
                self.show(again=True)

        button = ui.button("Stop", on_click=dialog.open, color=None).props("outline no-caps dense").classes("stop")
        self._on_view(lambda view: button.set_enabled(not view.has_ended and not self._dashboard.stop_asked))
        self._on_view(lambda view: button.set_visibility(not view.has_ended))

    def _state_line(self) -> None:
        with block("state-line"):
            task = ui.label().classes("task")
            words = ui.label().classes("words")
            damage = ui.label().classes("damage")
        self._on_view(lambda view: task.set_text(view.task))
        self._on_view(lambda view: words.set_text(self._state_text(view)))
        self._on_view(lambda view: damage.set_text(view.damage))

    def _state_text(self, view: RunView) -> str:
        if not view.has_ended and self._dashboard.is_ending:
            return f"the run has ended, best return {view.best_return}; `spreeze dashboard` shows it again"
        if not view.has_ended and self._dashboard.stop_asked:
            return "stopping: the processes end, the weights and the summary are kept"
        return view.state_text

    def _tab_bar(self) -> None:
        async def choose(name: str) -> None:
            self._tab = name
            await self._change("tab", name)

        parts = {
            "run": self._run_tab,
            "learning": self._learning_tab,
            "settings": self._settings_tab,
            "compare": self._compare_tab,
        }
        with ui.tabs() as tabs:
            tabs.props("dense no-caps align=left inline-label").classes("tabs")
            for name, title in self._tabs().items():
                ui.tab(name, title)
        with ui.tab_panels(tabs, value=self._tab, animated=False).classes("panels"):
            for name in self._tabs():
                with ui.tab_panel(name):
                    parts[name]()
        tabs.on_value_change(lambda event: choose(str(event.value)))  # only now: the panels set it first

    def _run_tab(self) -> None:
        with block("figures"):
            self._figures()
        with block("grid"):
            with card("Return", "wide") as head:
                self._axis_choice(head)
                chart = self._chart(
                    self._view.chart(self._axis), "return against wall time or env steps", "chart-large"
                )
                self._on_view(lambda view: set_options(chart, view.chart(self._axis)), "run")
            if self._dashboard.live is not None:
                with card("The policy at work", "narrow"):
                    address = f"{FRAME_PATH}?key={self._dashboard.access.frame_key}"
                    Robot(address, "No picture yet", "The viewer draws one as soon as there are weights.")
            else:
                with card("Result so far", "narrow"):
                    reached = html("", "reached")
                    self._on_view(lambda view: reached.set_content(view.progress), "run")
            with card("Flow", "wide"):
                sentence = ui.label().classes("sentence").props("role=status aria-label=bottleneck")
                drawing = FlowDrawing(self._view.flow)
                self._on_view(lambda view: sentence.set_text(_capital(view.flow.sentence)), "run")
                self._on_view(lambda view: drawing.set(view.flow), "run")
            with card("Machine", "narrow"):
                machine = html("", "machine-box")
                self._on_view(lambda view: machine.set_content(view.machine), "run")
            with card("Decisions and events", "full"):
                events = html("", "events-box").props('tabindex=0 role=region aria-label="decisions and events"')
                self._on_view(lambda view: events.set_content(view.events), "run")

    def _figures(self) -> None:
        with block("figure best"):
            ui.label("Best return").classes("figure-title")
            best = ui.label().classes("figure-value")
            ui.label("mean of an evaluation").classes("figure-unit")
        self._on_view(lambda view: best.set_text(view.best_return), "run")
        for i, kind in enumerate(FIGURES):
            with block("figure").props(f'title="{kind.hint}"'):
                ui.label(kind.title).classes("figure-title")
                value = ui.label().classes("figure-value").props(f"data-field={kind.field}")
                ui.label(kind.unit).classes("figure-unit")
                spark = html("", "spark-box")
            self._on_view(partial(_show_figure, i, value, spark), "run")

    def _axis_choice(self, head: ui.element) -> None:
        async def choose(axis: str) -> None:
            self._axis = cast(Axis, axis)
            await self._change("axis", axis)

        with head:
            toggle = ui.toggle(dict(AXES), value=self._axis, on_change=lambda event: choose(event.value))
            toggle.props(f'{TOGGLE} aria-label="x axis"').classes("axis")

    def _learning_tab(self) -> None:
        charts: dict[str, ui.echart] = {}
        box = block("small-charts")

        def show(view: RunView) -> None:
            for figure in view.algorithm_figures:
                options = view.learning_chart(figure)
                if figure in charts:
                    set_options(charts[figure], options)
                    continue
                title = title_of(figure)
                with box, card(title, "small"):
                    charts[figure] = self._chart(options, f"{title} against wall time", "chart-small")

        show(self._view)
        self._on_view(show, "learning")

    def _settings_tab(self) -> None:
        with card("Settings of this run", "full"):
            table = html("", "settings-box")
        self._on_view(lambda view: table.set_content(view.settings), "settings")

    def _compare_tab(self) -> None:
        assert self._run_id is not None
        self._compare = CompareTab(self._dashboard.runs, self._run_id)
        self._compare.build()

    def _chart(self, options: dict[str, Any], label: str, classes: str) -> ui.echart:
        chart = ui.echart(dict(options), renderer="svg").classes(f"chart {classes}")
        chart.props(f'role=img aria-label="{label}"')
        return chart

    # --- changes -----------------------------------------------------------------------------------------------

    def _on_view(self, update: Callable[[RunView], object], tab: str | None = None) -> None:
        """Call `update` with every new view; with a tab, only while that tab is shown."""
        self._updates.append(lambda view: update(view) if tab in (None, self._tab) else None)

    def show(self, again: bool = False) -> None:
        """Update the page; cheap without changes. Elements send only what has changed."""
        if self._run_id is None or self._client.is_deleted:
            return
        view, dashboard = self._view, self._dashboard
        shown = (view, self._tab, dashboard.stop_asked, dashboard.is_ending)
        if again or shown != self._shown:
            self._shown = shown
            for update in self._updates:
                update(view)
        if self._compare is not None and self._tab == "compare":
            self._compare.show()

    def close(self) -> None:
        """Freeze the page: the server ends with the run, so the browser must not try to reconnect."""
        if self.is_open:
            self._client.run_javascript(
                "document.dispatchEvent(new Event('spreeze-end'));"
                "document.getElementById('popup').style.display = 'none';"
                "window.socket.disconnect()"
            )

    def discard(self) -> None:
        """Let go of the page."""
        self._client.delete()

    async def _change(self, name: str, value: str) -> None:
        """Show a choice of the user."""
        self._remember(name, value)
        async with self._dashboard.runs.fresh(self.shown_runs()):
            self.show(again=True)

    def _remember(self, name: str, value: str) -> None:
        """Keep a choice in the address, so that it survives a reload or a restart of the server."""
        self._client.run_javascript(
            "const address = new URL(location);"
            f"address.searchParams.set({json_text(name)}, {json_text(value)});"
            "history.replaceState(history.state, '', address)"
        )


def labels(entries: Sequence[RunEntry]) -> dict[str, str]:
    """Return what the list of runs shows, by id."""
    return {entry.run_id: entry.label for entry in entries}


def _show_figure(i: int, value: ui.label, spark: ui.html, view: RunView) -> None:
    value.set_text(view.figures[i].value)
    spark.set_content(view.figures[i].spark)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
