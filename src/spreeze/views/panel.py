"""The panel of a run in a terminal: rows of figures that are broken between figures, never within one.

In: a width and rows of parts. Out: what rich draws. At 80 x 24 everything is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP = "   "
LABEL_GAP = 2
BORDER_AND_PADDING = 6  # columns: a frame and two blanks on both sides
MAX_REASON_LINES = 2  # of the adaptation: events.jsonl and the page have all of it


@dataclass(frozen=True)
class Row:
    """A label, and what belongs together behind it."""

    label: str
    parts: Sequence[Text]
    may_go: bool = False
    """Whether it is left out of a terminal with too few lines."""


def part(text: str, style: str = "") -> Text:
    """Return a part of a row."""
    return Text(text, style=style)


def figure(value: str, unit: str) -> Text:
    """Return the first part of a row, with its value right-justified, so that values stand below one another."""
    return Text.assemble((f"{value:>7}", "bold"), f" {unit}")


def draw(rows: Sequence[Row], width: int, most_lines: int) -> Table:
    """Lay out rows in so many columns and lines."""
    label_width = max(cell_len(row.label) for row in rows) + LABEL_GAP
    laid_out = [(row, flow(row.parts, max(1, width - label_width))) for row in rows]
    for row in [row for row in rows if row.may_go]:
        if sum(len(lines) for _, lines in laid_out) <= most_lines:
            break
        laid_out = [(other, lines) for other, lines in laid_out if other is not row]
    table = Table.grid(padding=(0, LABEL_GAP, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for row, lines in laid_out:
        table.add_row(row.label, Text("\n").join(lines))
    return table


def flow(parts: Sequence[Text], width: int, gap: str = GAP) -> list[Text]:
    """Put parts into lines, as many into each as fit."""
    lines: list[Text] = []
    for each in parts:
        if lines and lines[-1].cell_len + cell_len(gap) + each.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], gap, each)
        else:
            lines.append(each)
    return lines


def reason(text: str, width: int, style: str = "dim") -> list[Text]:
    """Return a sentence as at most MAX_REASON_LINES parts, each as wide as a line."""
    lines = flow([Text(word, style) for word in text.split()], width, " ")
    if len(lines) > MAX_REASON_LINES:
        lines = lines[:MAX_REASON_LINES]
        lines[-1].truncate(max(1, width - 1))
        lines[-1] = Text.assemble(lines[-1], ("…", style))
    return lines
