from __future__ import annotations

from typing import Any

import pytest

from spreeze.cluster.versions import PACKAGES, own_versions, why_unfit


def versions(python: str = "3.11.7", **packages: str) -> dict[str, Any]:
    ours = {"spreeze": "0.1.0", "gymnasium": "1.2.0", "mujoco": "3.3.0", "numpy": "2.1.0", "cloudpickle": "3.1.0"}
    return {"python": python, "packages": ours | packages}


def test_the_same_versions_fit() -> None:
    assert why_unfit("alpha", versions(), versions()) is None
    assert why_unfit("alpha", own_versions(), own_versions()) is None
    assert set(versions()["packages"]) == set(PACKAGES)


def test_patches_of_python_and_minor_versions_of_numpy_fit() -> None:
    assert why_unfit("alpha", versions("3.11.2", numpy="2.3.1"), versions("3.11.7", numpy="2.1.0")) is None


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (versions("3.12.1"), ("alpha", "Python 3.12", "3.11")),
        (versions(spreeze=""), ("alpha has no spreeze", "0.1.0", "pip install spreeze==0.1.0")),
        (versions(mujoco="3.2.0"), ("alpha has mujoco 3.2.0", "3.3.0", "pip install mujoco==3.3.0")),
        (versions(numpy="1.26.0"), ("alpha has numpy 1.26.0", "2.1.0")),
    ],
)
def test_what_differs_is_named_with_both_versions(theirs: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = why_unfit("alpha", theirs, versions())
    assert reason is not None
    assert "\n" not in reason
    for word in words:
        assert word in reason


def test_what_the_head_does_not_have_is_not_needed() -> None:
    assert why_unfit("alpha", versions(mujoco="3.2.0"), versions(mujoco="")) is None
