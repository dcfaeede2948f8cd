"""The hosts of a module's tests, and trainings on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_training import Train, Training
from hosts import Host, Hosts, why_not

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Make a switch, and skip where that is not possible; where SPREEZE_REQUIRE_HOSTS is set it fails instead."""
    if (reason := why_not()) is not None and "SPREEZE_REQUIRE_HOSTS" not in os.environ:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch, Hosts() as made:
        # Agents import the environment of the tests from here.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH")))))
        yield made


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    """Return what starts a training that ends with its test at the latest."""
    with contextlib.ExitStack() as ending:

        def start(head: Host, *words: str, **flags: Any) -> Training:
            training = Training(head, tmp_path, *words, **flags)
            ending.callback(training.end)
            return training

        yield start
