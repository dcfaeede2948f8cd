"""Charts, as options of ECharts. Colours are CSS variables of the page: drawn as SVG, they follow the theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spreeze.runs.journal_reader import JournalLines
from spreeze.views.dashboard.chart_data import Axis, Point, Scale, Spread, decimate, scale_of, thin

Options = dict[str, Any]

# A band consists of two lines whose names start with this; the tooltip leaves them out.
HIDDEN = "_"
# The same as in style.css: ECharts measures text with it, so it cannot be inherited.
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'
_TOOLTIP = """(points) => {
  const shown = points.filter((point) => !point.seriesName.startsWith("_") && point.value[1] != null);
  if (!shown.length) return "";
  const write = (value) => Number(value.toPrecision(5)).toLocaleString("en");
  const clean = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const rows = shown.map((point) => `<tr><td>${point.marker}${clean(point.seriesName)}</td>
    <td class="tooltip-value">${write(point.value[1])}</td></tr>`);
  return `<div class="tooltip-x">${write(shown[0].value[0])} UNIT</div><table>${rows.join("")}</table>`;
}"""


def return_chart(evaluations: JournalLines, metrics: JournalLines, axis: Axis) -> Options:
    """Evaluations with their spread, and training episodes in the background."""
    means = evaluations.series(axis, "mean_return")
    training = metrics.series(axis, "train_return")
    scale = scale_of(axis, max((x for x, _ in (*means[-1:], *training[-1:])), default=0.0))
    spreads = dict(evaluations.series(axis, "std_return"))
    chosen = [means[i] for i in decimate(means)]
    low = [(x, y - spreads.get(x, 0.0)) for x, y in chosen]
    high = [(x, y + spreads.get(x, 0.0)) for x, y in chosen]
    series = [
        line("training episodes", _scaled(thin(training), scale), "var(--muted-line)", width=1.2),
        *band(f"{HIDDEN}spread", low, high, scale, "var(--accent)"),
        line("evaluation, mean ± std", _scaled(chosen, scale), "var(--accent)", width=2.2, dots=len(chosen) < 40),
    ]
    legend = ["evaluation, mean ± std", "training episodes"]
    return _options(scale.title, series, legend)


def metric_chart(metrics: JournalLines, field: str, title: str) -> Options:
    """One field of metrics.jsonl against wall time."""
    points = metrics.series("wall_s", field)
    scale = scale_of("wall_s", points[-1][0] if points else 0.0)
    series = [line(title, _scaled(thin(points, 240), scale), "var(--accent)", width=1.6)]
    return _options(scale.title, series, [])


@dataclass(frozen=True)
class Curve:
    """One run, or several with the same settings, in a comparison."""

    name: str
    colour: str
    drawn: Spread


def compare_chart(curves: Sequence[Curve], axis: Axis) -> Options:
    """Several runs in one chart."""
    scale = scale_of(axis, max((curve.drawn.median[-1][0] for curve in curves), default=0.0))
    series: list[Options] = []
    for curve in curves:
        if curve.drawn.low != curve.drawn.high:
            series += band(f"{HIDDEN}{curve.name}", curve.drawn.low, curve.drawn.high, scale, curve.colour)
        series.append(line(curve.name, _scaled(thin(curve.drawn.median), scale), curve.colour, width=2.0))
    return _options(scale.title, series, [])


def line(name: str, points: list[Point], colour: str, width: float, dots: bool = False) -> Options:
    """Return a line."""
    return {
        "type": "line",
        "name": name,
        "data": points,
        "showSymbol": dots,
        "symbol": "circle",
        "symbolSize": 4,
        "lineStyle": {"width": width, "color": colour},
        "itemStyle": {"color": colour},
        "emphasis": {"disabled": True},  # it would compute a lighter colour, which is impossible for a variable
        "silent": True,
    }


def band(name: str, low: Sequence[Point], high: Sequence[Point], scale: Scale, colour: str) -> list[Options]:
    """Return the area between two lines: the lower one, invisible, and the difference stacked on it, filled."""
    invisible = {"lineStyle": {"opacity": 0}, "stack": name, "stackStrategy": "all", "silent": True, "symbol": "none"}
    widths = [(x, above - below) for (x, below), (_, above) in zip(low, high, strict=True)]
    shared = {"type": "line", "emphasis": {"disabled": True}, **invisible}
    fill = {"color": colour, "opacity": 0.16}
    return [
        {**shared, "name": f"{name} low", "data": _scaled(low, scale)},
        {**shared, "name": f"{name} high", "data": _scaled(widths, scale), "areaStyle": fill},
    ]


def _scaled(points: Sequence[Point], scale: Scale) -> list[Point]:
    return [(scale.of(x), float(f"{y:.5g}")) for x, y in points]


def _options(x_title: str, series: list[Options], legend: list[str]) -> Options:
    label = {"color": "var(--muted)", "fontSize": 11, "fontFamily": FONT}
    rule = {"lineStyle": {"color": "var(--rule)"}}
    unit = x_title.partition("(")[2].rstrip(")") or x_title
    return {
        "animation": False,  # lines change once per second; animating them costs more than it is worth
        "textStyle": {"fontFamily": FONT},
        "grid": {"left": 8, "right": 14, "top": 34 if legend else 12, "bottom": 26, "containLabel": True},
        "legend": {
            "data": [{"name": name, "icon": "roundRect"} for name in legend],
            "right": 8,
            "top": 2,
            "itemWidth": 14,
            "itemHeight": 3,
            "textStyle": label,
            "inactiveColor": "var(--rule)",
        },
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": "var(--card)",
            "borderColor": "var(--rule)",
            "textStyle": {"color": "var(--ink)", "fontSize": 12},
            "axisPointer": {"lineStyle": {"color": "var(--muted)", "type": "solid", "width": 1}},
            ":formatter": _TOOLTIP.replace("UNIT", unit),
        },
        "xAxis": {
            "type": "value",
            "min": 0,
            "max": "dataMax",
            "name": x_title,
            "nameLocation": "middle",
            "nameGap": 26,
            "nameTextStyle": label,
            "axisLabel": {**label, "hideOverlap": True, "showMaxLabel": False},
            "axisLine": rule,
            "axisTick": {"show": False},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "scale": True,
            "axisLabel": label,
            "axisLine": {"show": False},
            "axisTick": {"show": False},
            "splitNumber": 4,
            "splitLine": rule,
        },
        "series": series,
    }
