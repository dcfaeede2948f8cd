"""The pages name what is there: files, functions and links."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))),
)
# `path.py`, also followed by `function` or `Class.method` of that file.
FILE = re.compile(r"`([\w./-]+\.(?:py|toml|js|css))`(?:: `(\w+(?:\.\w+)?)`)?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDERS = {"algorithms/NAME.py", "questions/NAME.py"}


@cache
def files() -> tuple[str, ...]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return tuple(str(path.relative_to(ROOT)) for path in (*inside, *ROOT.glob("*")))


def found(name: str) -> list[str]:
    """Return the files that a page may mean."""
    return [path for path in files() if path == name or path.endswith(f"/{name}")]


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the names of a file's functions and classes, and Class.method."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return frozenset(names)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_files_and_functions_that_exist(page: str) -> None:
    wrong = []
    for name, function in FILE.findall((ROOT / page).read_text()):
        paths = found(name)
        if (not paths and name not in PLACEHOLDERS) or (
            function and not any(function in defined_in(path) for path in paths)
        ):
            wrong.append(f"{name}: {function}" if function else name)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_only_to_files_and_headings_that_exist(page: str) -> None:
    wrong = []
    for link in LINK.findall((ROOT / page).read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (
            anchor and anchor not in map(slug, re.findall(r"(?m)^#+ (.*)$", target.read_text()))
        ):
            wrong.append(link)
    assert wrong == []


def test_each_step_of_a_transition_names_its_file() -> None:
    steps = [
        line for line in (ROOT / "docs/architecture.md").read_text().splitlines() if re.match(r"\| \d+ \|", line)
    ]
    assert len(steps) >= 10
    assert all(FILE.search(step) for step in steps)
