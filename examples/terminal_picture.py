"""Draw the live display of a finished run as it was at its end, from its folder.

python examples/terminal_picture.py runs/NAME docs/images/terminal.svg
"""

from __future__ import annotations

import argparse
import io
import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console

from spreeze.runs.records import MEASURED, Evaluation, Measurement, figures_in
from spreeze.runs.result import Result
from spreeze.runs.run_folder import read_run_config
from spreeze.views.closing import closing_lines
from spreeze.views.terminal import LiveDisplay

WIDTH = 110  # characters


def main() -> None:
    """Draw the run, and the lines that `spreeze train` prints when it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run that has ended")
    parser.add_argument("out", type=Path, help=".svg")
    args = parser.parse_args()

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    display = LiveDisplay(console)
    display.config, display.run_dir = read_run_config(args.run), args.run
    display.evaluations = [Evaluation.of_message(line) for line in read_journal(args.run / "evaluations.jsonl")]
    display.measurement = measurement_of(read_journal(args.run / "metrics.jsonl")[-1])
    summary = json.loads((args.run / "summary.json").read_text())
    target = display.config.limits.target_return
    until = "" if target is None else f" --target-return {target:g}"
    console.print(f"$ spreeze train {display.config.env}{until}")
    console.print(display.panel())
    for line in closing_lines(Result(run_dir=args.run, **summary), display.config, display.best, Path.cwd()):
        console.print(line)
    # Without the fonts that rich would fetch from the internet; the reader's own monospace serves.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="Spreeze"), flags=re.DOTALL)
    args.out.write_text(svg)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Read all lines of a journal."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def measurement_of(line: dict[str, Any]) -> Measurement:
    """Return the measurement of a line of metrics.jsonl, where the algorithm's figures stand between the others."""
    measured = {name: line[name] for name in MEASURED}
    return Measurement(**measured, figures={name: line[name] for name in figures_in(line)})


if __name__ == "__main__":
    main()
