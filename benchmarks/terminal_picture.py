"""Draws the live display of a finished run as it stood at its end: terminal_picture.py RUN OUT.svg."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from session import read_journal, read_result
from spreeze.runs.records import Evaluation, Measurement
from spreeze.runs.result import Result
from spreeze.runs.run_folder import read_run_config
from spreeze.views.terminal import LiveDisplay, closing_lines

WIDTH = 110


def main(run: Path, out: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    display = LiveDisplay(console)
    display.config, display.run_dir = read_run_config(run), run
    display.evaluations = [Evaluation(**line) for line in read_journal(run / "evaluations.jsonl")]
    display.measurement = Measurement(**read_journal(run / "metrics.jsonl")[-1])
    summary = read_result(run / "summary.json")
    console.print(f"$ spreeze train {display.config.env} --target-return {display.config.limits.target_return:g}")
    console.print(display.panel())
    for line in closing_lines(Result(run_dir=run, **summary), display.config, display.best):
        console.print(line)
    # Without the fonts that rich would fetch from the internet; the reader's own monospace serves.
    out.write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="Spreeze"), flags=re.DOTALL))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
