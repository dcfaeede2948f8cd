from __future__ import annotations

import sys

import pytest

from spreeze.cluster.availability import require_ray
from spreeze.errors import ConfigError


def test_a_machine_without_ray_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("spreeze.cluster.availability.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install \"spreeze\[ray\]\""):
        require_ray()


def test_a_machine_with_ray_is_not() -> None:
    pytest.importorskip("ray")
    require_ray()
