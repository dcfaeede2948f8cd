"""Draws the results of `spreeze tune`: samplers x batch size, with the adapted settings marked.

Run as a program, it draws a JSON file: python -m spreeze.commands.bench.heat_map FILE.json PICTURE.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def draw_heat_map(figures: dict[str, Any], path: Path) -> None:
    """Draw the figures of a grid. figures: its JSON."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    cells = {(cell["settings"]["samplers"], cell["settings"]["batch_size"]): cell for cell in figures["cells"]}
    samplers, batch_sizes = (sorted({point[axis] for point in cells}) for axis in (0, 1))
    adapted = figures["adapted"]
    best = max(cell["objective"] for cell in (*cells.values(), adapted))
    # Without pyplot: no window system is needed, and no global state changes.
    size_inches = (max(6.0, 1.6 + 1.35 * len(batch_sizes)), 1.5 + 0.75 * len(samplers))
    figure = Figure(figsize=size_inches, layout="constrained")
    axes = figure.add_subplot()
    shares = [[cells[number, size]["objective"] / best for size in batch_sizes] for number in samplers]
    image = axes.imshow(shares, cmap=mpl.colormaps["viridis"], vmin=0.0, vmax=1.0, aspect="auto", origin="lower")
    for row, number in enumerate(samplers):
        for column, size in enumerate(batch_sizes):
            cell = cells[number, size]
            text = (
                f"{shares[row][column]:.0%}\n{_short(cell['sampling_hz'])} steps/s\n"
                f"{_short(cell['update_hz'])} upd/s, {_short(cell['update_frame_hz'])} fr/s"
            )
            colour = "black" if shares[row][column] > 0.6 else "white"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    _mark(axes, adapted["settings"], samplers, batch_sizes, Rectangle)
    axes.set_xticks(range(len(batch_sizes)), [str(size) for size in batch_sizes])
    axes.set_yticks(range(len(samplers)), [str(number) for number in samplers])
    axes.set_xlabel("batch size")
    axes.set_ylabel("samplers")
    axes.set_title(
        f"{figures['env']}, {figures['cores']} cores, learner on {figures['device']}\n"
        f"adapted after {figures['adapt_seconds']:.0f} s (framed): samplers {adapted['settings']['samplers']}, batch "
        f"{adapted['settings']['batch_size']}, {figures['share_of_best']:.1%} of the best",
        fontsize=9,
    )
    figure.colorbar(image, ax=axes, label="objective, as a share of the best")
    figure.savefig(path, dpi=150)


def _mark(axes: Any, settings: dict[str, Any], samplers: list[int], batch_sizes: list[int], shape: Any) -> None:
    """Frame the adapted settings; if they are not in the grid, between their neighbours."""
    column, row = (_position(settings["batch_size"], batch_sizes), _position(settings["samplers"], samplers))
    axes.add_patch(shape((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="red", linewidth=3))


def _position(value: int, marks: list[int]) -> float:
    if value in marks:
        return float(marks.index(value))
    below = sum(mark < value for mark in marks)
    if below in (0, len(marks)):
        return float(max(0, below - 1))
    low, high = marks[below - 1], marks[below]
    return below - 1 + (value - low) / (high - low)


def _short(rate: float) -> str:
    if rate >= 1e6:
        return f"{rate / 1e6:.1f}M"
    return f"{rate / 1e3:.1f}k" if rate >= 1e3 else f"{rate:.0f}"


if __name__ == "__main__":
    draw_heat_map(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
