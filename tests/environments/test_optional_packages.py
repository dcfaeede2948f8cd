"""What is missing is named with the line that installs it, or with why that would not help."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spreeze.environments.optional_packages import Extra, register_id, require
from spreeze.errors import EnvironmentSetupError

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_missing_package() -> None:
    with pytest.raises(EnvironmentSetupError) as raised:
        require(Extra("Physics", "no_such_physics", "physics", newest_python=(9, 9)), "Ball-v0")
    said = 'Ball-v0 needs Physics, which is not installed: pip install "spreeze[physics]"'
    assert str(raised.value) == said


def test_package_without_a_wheel_for_this_python() -> None:
    with pytest.raises(EnvironmentSetupError) as raised:
        require(Extra("Physics", "no_such_physics", "physics", newest_python=(3, 7)), "Ball-v0")
    assert f"no wheels for Python {HERE}; with Python 3.7, pip install" in str(raised.value)


def test_package_that_raises_at_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spreeze_test_physics.py").write_text("raise OSError('libphysics.so:\\nno such file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentSetupError, match=r"Ball-v0: .*OSError: libphysics.so: no such file"):
        require(Extra("Physics", "spreeze_test_physics", "physics"), "Ball-v0")


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "NoSuchEnv-v0"])
def test_other_ids_import_nothing(env_id: str) -> None:
    before = set(sys.modules)
    register_id(env_id)
    assert set(sys.modules) == before
