"""The examination of an environment by `spreeze doctor`: whatever it does to its process, there is a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spreeze.commands import examination
from spreeze.commands.examination import examine_apart
from spreeze.config import Config

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("how", "where", "says"),
    [
        ("exit", "constructor", "its process exited with code 7"),
        ("crash", "step", "its process was killed by SIGSEGV (tests/integration/toy_envs.py:"),
        ("hang in C", "constructor", "it hangs: it did not return within 1 s (tests/integration/toy_envs.py:"),
    ],
)
def test_environment_that_ends_its_process(how: str, where: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(examination, "GRACE_S", 1.0)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integration"))
    kwargs: dict[str, Any] = {"how": how, "where": where}
    report = examine_apart(Config("Toy/Ends-v0").replace(env_module=("toy_envs",), env_kwargs=kwargs, hang_s=1.0))
    (finding,) = report.findings
    assert finding.is_fatal
    assert finding.problem.startswith(says)
    assert report.printed == (("no licence server",) if where == "constructor" else ())
