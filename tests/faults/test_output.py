"""Output is optional: whoever reads it may go, and a training continues to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Spreeze

# Run a command with its output to somebody who reads one line and goes; to nowhere; to a full disk.
OUTPUTS = {
    "reader goes": """
process = subprocess.Popen(command, stdout=subprocess.PIPE)
assert process.stdout.readline()
process.stdout.close()
""",
    "closed": "process = subprocess.Popen(command, preexec_fn=lambda: os.close(1))",
    "all closed": "process = subprocess.Popen(command, preexec_fn=lambda: os.closerange(0, 3))",
    "full": "process = subprocess.Popen(command, stdout=open('/dev/full', 'w'), stderr=open('/dev/full', 'w'))",
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("is_serial", [False, True], ids=["processes", "serial"])
def test_a_training_goes_on_when_nobody_takes_its_output(output: str, is_serial: bool, spreeze: Spreeze) -> None:
    updates = 400
    flags = spreeze.small(
        max_updates=updates, env_kwargs={"step_s": 0.002}, **({"serial": True} if is_serial else {})
    )
    command = ["-m", "spreeze", "train", "Toy/Point-v0", *flags]
    program = f"""
import os, subprocess, sys
command = [sys.executable, *{command!r}]
{OUTPUTS[output]}
sys.exit(process.wait())
"""
    finished = spreeze.start_python("-c", program).finish()
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert spreeze.read("summary.json")["updates"] == updates
    journals = list(spreeze.run_dir.glob("*.jsonl"))  # a run shorter than a second has no metrics
    assert journals
    for journal in journals:
        for line in journal.read_text().splitlines():
            json.loads(line)  # what was printed has gone nowhere else


def test_exit_code_says_how_the_training_ended_not_who_listened(spreeze: Spreeze) -> None:
    command = ["-m", "spreeze", "train", "Toy/NoSuchTask-v0", *spreeze.small()]
    program = f"""
import os, subprocess, sys
sys.exit(subprocess.call([sys.executable, *{command!r}], preexec_fn=lambda: os.closerange(0, 3)))
"""
    assert spreeze.start_python("-c", program).finish().returncode == 2
