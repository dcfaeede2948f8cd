"""What a run has stored of the rows of `numbered_env.py`: each once, whole, without a gap within its environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numbered_env import FIELDS, SCALE, checksum
from numpy.typing import NDArray

from spreeze.runs.checkpoint_format import newest_checkpoints
from spreeze.runs.replay_log import read_rows

Source = tuple[int, int, int, int]


@dataclass(frozen=True)
class Stored:
    """The rows of a run's newest checkpoint."""

    rows: int
    steps: dict[Source, NDArray[np.int64]]
    """Which steps there are of each environment, in the order in which they were stored."""
    damaged: int

    def troubles(self) -> list[str]:
        """Return what is wrong with them."""
        found = [f"{self.damaged} rows are damaged"] if self.damaged else []
        for source, steps in self.steps.items():
            # A row holds the step that it began with: 0, 1, 2, ...
            wrong = np.flatnonzero(steps != np.arange(len(steps)))
            if len(wrong):
                at = int(wrong[0])
                found.append(f"{source}: row {at} of {len(steps)} is of step {int(steps[at])}")
        return found

    def of_machine(self, number: int) -> int:
        """Return how many rows are of a machine, by the number in its name."""
        return sum(len(steps) for (machine, *_), steps in self.steps.items() if machine == number)


def stored_rows(run_dir: Path) -> Stored:
    """Read the rows of the newest checkpoint."""
    folder = run_dir / "checkpoint"
    newest = newest_checkpoints(folder)[0]
    blocks = [rows for _, rows in read_rows(folder / "replay", newest.extents, newest.row_width)]
    rows, width = np.concatenate(blocks) / np.float32(SCALE), len(FIELDS)
    before, after = rows[:, :width], rows[:, width + 2 : 2 * width + 2]  # between them: action and reward
    right = (checksum(before[:, :-1]) == before[:, -1]) & (checksum(after[:, :-1]) == after[:, -1])
    steps: dict[Source, Any] = {}
    for source in np.unique(before[:, :4].astype(np.int64), axis=0):
        of_source = (before[:, :4] == source).all(axis=1)
        steps[tuple(source.tolist())] = before[of_source, 4].astype(np.int64)
    return Stored(len(rows), steps, int(np.count_nonzero(~right)))


def steps_made(count_dir: Path) -> dict[Source, int]:
    """Return how many steps each environment has made, as far as it was ever stepped."""
    made = {}
    for path in count_dir.iterdir():
        a, b, c, d = map(int, path.name.split("-"))
        made[a, b, c, d] = int.from_bytes(path.read_bytes(), "little")
    return {source: steps for source, steps in made.items() if steps}
