"""A training on an environment that cannot be made: one line says why, and nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Spreeze


@pytest.mark.parametrize(
    ("how", "says"),
    [("exit", "it exited with code 7"), ("crash", "it was killed by SIGSEGV")],
)
def test_constructor_that_ends_its_process_is_told_with_what_it_printed(
    how: str, says: str, spreeze: Spreeze
) -> None:
    refused = spreeze.train("Toy/Ends-v0", env_kwargs={"how": how})
    assert refused.returncode == 2
    assert refused.stderr == (
        f"spreeze: Toy/Ends-v0 could not be examined: {says}; its output ends with 'no licence server'\n"
    )
    assert not spreeze.run_dir.exists()  # where its log was


def test_constructor_that_hangs_is_given_up(spreeze: Spreeze) -> None:
    refused = spreeze.train("Toy/Ends-v0", env_kwargs={"how": "hang"}, stall_s=1, hang_s=2, quiet=None)
    assert refused.returncode == 2
    assert refused.stderr == (
        "spreeze: Toy/Ends-v0 was not made within 2 s: its constructor hangs, or needs more --hang-s\n"
    )
    assert "warning: the constructor of Toy/Ends-v0 takes more than 1 s so far" in refused.stdout
    assert not spreeze.run_dir.exists()
    assert not spreeze.processes()
