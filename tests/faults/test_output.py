"""Output is optional: whoever reads it may go, and a training continues to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from folders import write_run

from spreeze.channels.weights import write_weights
from spreeze.policy.actor import random_actor

if TYPE_CHECKING:
    from conftest import Finished, Spreeze

# Run a command with its output to somebody who reads one line and goes; to nowhere; to a full disk; to somebody who
# reads nothing any more, as `| less` or a terminal after Ctrl-S.
OUTPUTS = {
    "reader goes": """
process = subprocess.Popen(command, stdout=subprocess.PIPE)
assert process.stdout.readline()
process.stdout.close()
""",
    "closed": "process = subprocess.Popen(command, preexec_fn=lambda: os.close(1))",
    "all closed": "process = subprocess.Popen(command, preexec_fn=lambda: os.closerange(0, 3))",
    "full": "process = subprocess.Popen(command, stdout=open('/dev/full', 'w'), stderr=open('/dev/full', 'w'))",
    "reader stalls": """
_, write = os.pipe()
fill(write)
process = subprocess.Popen(command, stdout=write, stderr=write)
""",
    "terminal stalls": """
_, terminal = os.openpty()
fill(terminal)
process = subprocess.Popen(command, stdout=terminal, stderr=terminal)
""",
}
FILL = """
def fill(fd):
    os.set_blocking(fd, False)
    try:
        while True:
            os.write(fd, b"-")
    except BlockingIOError:
        os.set_blocking(fd, True)
"""


CASES = [(is_serial, output) for is_serial in (False, True) for output in OUTPUTS]
QUICK_CASES = (
    (False, "reader goes"),
    (False, "terminal stalls"),
    (True, "full"),
    (True, "closed"),
    (True, "reader stalls"),
)


@pytest.mark.parametrize(
    ("is_serial", "output"),
    [pytest.param(*case, marks=() if case in QUICK_CASES else pytest.mark.full) for case in CASES],
)
def test_a_training_goes_on_when_nobody_takes_its_output(output: str, is_serial: bool, spreeze: Spreeze) -> None:
    updates = 400
    flags = spreeze.small(
        max_updates=updates, env_kwargs={"step_s": 0.002}, **({"serial": True} if is_serial else {})
    )
    command = ["-m", "spreeze", "train", "Toy/Point-v0", *flags]
    program = f"""
import os, subprocess, sys
command = [sys.executable, *{command!r}]
{FILL}
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


def run_with(stdout: str, words: tuple[str, ...], spreeze: Spreeze) -> Finished:
    program = f"""
import os, subprocess, sys
command = [sys.executable, "-m", "spreeze", *{words!r}]
{stdout}
sys.exit(process.wait())
"""
    return spreeze.start_python("-c", program).finish()


GONE = """
read, write = os.pipe()
os.close(read)
process = subprocess.Popen(command, stdout=write)
"""
FULL = "process = subprocess.Popen(command, stdout=open('/dev/full', 'w'))"
ALL_FULL = "process = subprocess.Popen(command, stdout=open('/dev/full', 'w'), stderr=open('/dev/full', 'w'))"
PRINTING = {"help": ("train", "--help"), "scores": ("evaluate", "run", "--episodes", "1")}


def write_trained_run(run: Path) -> None:
    write_run(run, 30, ends="max_seconds")
    bounds = {"action_low": np.array([-2], np.float32), "action_high": np.array([2], np.float32)}
    about = {"policy": "gaussian", "observation": '{"kind": "box", "shape": [3]}', "action_shape": "[1]"}
    write_weights(run / "best" / "policy.safetensors", {**random_actor(3, 1, (8,), 0), **bounds}, about)


@pytest.mark.parametrize("words", PRINTING.values(), ids=PRINTING)
def test_what_a_command_prints_is_lost_without_a_reader_and_missed_on_a_full_disk(
    words: tuple[str, ...], spreeze: Spreeze
) -> None:
    write_trained_run(spreeze.run_dir)
    finished = run_with(GONE, words, spreeze)
    assert (finished.returncode, finished.stderr) == (0, "")
    finished = run_with(FULL, words, spreeze)
    assert (finished.returncode, finished.stderr) == (
        1,
        "spreeze: what it prints is lost: No space left on device\n",
    )


def test_a_command_that_makes_a_file_makes_it_whoever_listens(spreeze: Spreeze) -> None:
    write_trained_run(spreeze.run_dir)
    for output, code in ((GONE, 0), (FULL, 1)):
        words = ("export", "run", "--out", f"policy-{code}.safetensors")
        assert run_with(output, words, spreeze).returncode == code
        assert (spreeze.folder / words[-1]).stat().st_size


def test_errors_that_nobody_takes_have_their_exit_code(spreeze: Spreeze) -> None:
    assert run_with(ALL_FULL, ("resume", "nowhere"), spreeze).returncode == 2
