"""A benchmark's JSON names the commit that was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spreeze.commands.bench import machine


def test_the_commit_of_a_checkout_is_found() -> None:
    source = Path(machine.__file__).parents[3]
    if source.name != "src":
        pytest.skip("Spreeze is installed from a package")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=False)
    assert machine.describe_machine()["git_commit"] == (head.stdout.strip() or None)
