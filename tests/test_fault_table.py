"""docs/reliability.md lists faults with the tests that show them: each of these tests is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reliability.md"
ROW = re.compile(r"^\| (\d+) \|.*\| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_fault_names_a_test_that_is_there() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 60
    for number, shown_by in rows:
        named = TEST.findall(shown_by)
        assert named or shown_by == "the same test", f"row {number} names no test"
        for file, name in named:
            assert name in functions_of(file), f"row {number}: {file} has no {name}"


def functions_of(file: str) -> set[str]:
    path = next((folder / file for folder in (TESTS / "faults", TESTS) if (folder / file).is_file()), None)
    tree = ast.parse("" if path is None else path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
