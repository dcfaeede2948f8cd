"""The last lines of a run in a terminal: what was reached, where it is, and what to type next."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.text import Text

from spreeze.config import Config
from spreeze.config.env_spec import CALLABLE_MARK
from spreeze.host.installed import is_installed
from spreeze.host.shell import for_shell, from_folder
from spreeze.runs.checkpoint_format import newest_checkpoints
from spreeze.runs.records import Evaluation
from spreeze.runs.result import Result
from spreeze.views.amounts import rate


def closing_lines(result: Result, config: Config | None, best: Evaluation | None, here: Path) -> list[Text]:
    """Return the result, the run folder, and the next command. here: the user's folder."""
    reasons = {
        "target_return": "Solved",
        "max_seconds": "Time is up",
        "max_env_steps": "All environment steps taken",
        "max_updates": "All updates made",
        "measured": "All settings measured",
        "stopped": "Stopped from the dashboard",
        "interrupted": "Interrupted",
        "terminated": "Terminated",
        "failed": "Failed",
    }
    what = Text(f"{reasons[result.stop_reason]} after {result.wall_s:.1f} s", style="bold")
    if result.checkpoint_s > 1:
        what.append(f"; the last checkpoint took {result.checkpoint_s:.1f} s more")
    if result.stop_reason == "target_return" and config is not None:
        what.append(f": return {config.limits.target_return:g} reached at {result.time_to_target_s:.1f} s")
    lines = [what]
    if best is not None:
        spread = f"{best.mean_return:.1f} ± {best.std_return:.1f}"
        lines.append(Text(f"  best return {spread} over {len(best.returns)} episodes"))
    if left_out := result.evaluations_left_out:
        which = "1 evaluation does" if left_out == 1 else f"{left_out:,} evaluations do"
        lines.append(Text(f"  {which} not count: a return was not finite, or beyond all sense", style="yellow"))
    lines.append(
        Text(
            f"  {result.env_steps:,} env steps ({rate(result.sampling_hz)}/s), {result.updates:,} updates "
            f"({rate(result.update_frame_hz)} frames/s)"
        )
    )
    run = from_folder(here, result.run_dir)
    lines.append(Text(f"  run folder {run}"))
    if config is not None and config.watching.dashboard and is_installed("nicegui"):
        lines.append(Text(f"Look: {program(here)} dashboard {for_shell(run)}", style="cyan"))
    if result.stop_reason in ("interrupted", "terminated", "stopped") and newest_checkpoints(
        result.run_dir / "checkpoint"
    ):
        lines.append(Text(f"Next: {program(here)} resume {for_shell(run)}", style="cyan"))
    elif best is not None:
        made_by_callable = config is not None and config.env.endswith(CALLABLE_MARK)
        call = f"spreeze.load_policy({str(run)!r})(observation)"
        command = f"{program(here)} evaluate {for_shell(run)}"
        lines.append(Text(f"Next: {call if made_by_callable else command}", style="cyan"))
    return lines


def program(here: Path) -> str:
    """Return how the user can call spreeze: `make train` installs it in a folder that is not on the path."""
    if shutil.which("spreeze") or not Path(sys.argv[0]).name.startswith("spreeze"):
        return "spreeze"
    return for_shell(from_folder(here, Path(sys.argv[0])))
