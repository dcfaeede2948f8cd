"""The best version of the policy so far, in the run folder's `best/`.

In: versions and their evaluations. Out: `policy.safetensors` and `evaluation.json`, which names the version. While
the disk is full, both wait in memory and are written later; existing files stay until both can be replaced.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from spreeze.channels.weights import WeightsFile, encode_weights
from spreeze.host.files import write_with_folders
from spreeze.host.json_text import json_file
from spreeze.host.own_files import is_own_file
from spreeze.host.write_failures import WriteFailures
from spreeze.runs.journal_reader import read_object
from spreeze.runs.records import Evaluation


class Best:
    """Continues from the best version that an earlier evaluator of the same run has written."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._run = folder, folder.parent
        self._write_failures = WriteFailures(str(folder), "the best policy waits in memory")
        self._files: dict[Path, bytes] = {}
        self.mean_return = earlier_return(folder)
        """Of the best evaluation so far; minus infinity before the first."""

    def offer(self, weights: WeightsFile, evaluation: Evaluation) -> str | None:
        """Keep a version if it is better than all before; return a warning about the disk, if there is one."""
        is_written = True
        if evaluation.counts and evaluation.mean_return > self.mean_return:
            self.mean_return, is_written = evaluation.mean_return, False
            self._files = {
                self._folder / "policy.safetensors": encode_weights(weights.tensors, weights.metadata),
                self._folder / "evaluation.json": json_file(asdict(evaluation)),
            }
        # Or an earlier one could not be written, or was deleted with the folder.
        if self._files and (
            not is_written
            or self._write_failures.is_failing
            or not all(is_own_file(path, self._run) for path in self._files)
        ):
            try:
                write_with_folders(self._files, self._run)
            except OSError as error:
                return self._write_failures.failed(error)
        return self._write_failures.succeeded()


def earlier_return(folder: Path) -> float:
    """Return the mean return of the best version that a folder `best/` holds; minus infinity without one."""
    found = (read_object(folder / "evaluation.json", folder.parent) or {}).get("mean_return")
    is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    # Without the policy itself, any is better than none.
    has_policy = is_own_file(folder / "policy.safetensors", folder.parent)
    return float(found) if is_number and found is not None and has_policy else -math.inf
