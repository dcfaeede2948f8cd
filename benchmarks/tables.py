"""Keeps the figures on the pages what the results say: fills generated blocks, or checks them.

    python benchmarks/tables.py write       # fill all blocks of README.md, docs/**/*.md, benchmarks/**/*.md
    python benchmarks/tables.py check       # exit code 1 and a line for each block that is not what the results say

A block stands between two comments, each on a line of its own; what is between them is generated:

    <!-- table: benchmarks/SCRIPT.py benchmarks/results/FILE.json [more] -->      SCRIPT's table(content, ...)
    <!-- table: benchmarks/SCRIPT.py:NAME benchmarks/results/FILE.json -->        SCRIPT's function NAME instead
    <!-- machine: benchmarks/results/FILE.json [more] -->                         command, machine, date, versions
    <!-- results: benchmarks/results/FOLDER -->                                   every result there, and its command
    <!-- end -->

Figures belong into blocks; sentences have none that a result would have to stand behind. A table of figures outside a
block is wrong, unless a line `<!-- typed: REASON -->` stands right above it.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
# Scripts import each other, and some of them Spreeze, which need not be installed for this.
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from sources import CannotShow, machine_lines, read, results_list  # noqa: E402

END = "<!-- end -->"
OPENING = re.compile(r"^<!-- (table|machine|results): (.+) -->$", re.MULTILINE)
# Up to the first end; a block that has none reaches no further than to the next.
BLOCK = re.compile(OPENING.pattern + rf"\n((?:(?!<!-- ).*\n)*){END}$", re.MULTILINE)
TYPED = re.compile(r"^<!-- typed: .+ -->$")
# A cell that is a figure, with or without a unit, a spread behind it, or another figure.
FIGURE = re.compile(r"^\**[-<>]? ?\d[\d.,]*[kM%]?( (s|MB|us|env steps/s))?\**([ ,(].*)?$")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "check"))
    action = parser.parse_args().action
    troubles: list[str] = []
    for path in pages():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        right, found = rebuilt(text, is_told=action == "check")
        troubles += [f"{name}:{line}: {what}" for line, what in found]
        if action == "write" and right != text:
            path.write_text(right)
            print(f"{name} written")
    print("\n".join(troubles), file=sys.stderr, end="\n" if troubles else "")
    sys.exit(1 if troubles else 0)


def pages() -> list[Path]:
    folders = (ROOT / "docs", ROOT / "benchmarks")
    return [ROOT / "README.md", *(page for folder in folders for page in sorted(folder.rglob("*.md")))]


def rebuilt(text: str, *, is_told: bool) -> tuple[str, list[tuple[int, str]]]:
    """Return a page with every block as the results say, and what is wrong with it, by line.

    is_told: whether a block that differs is wrong.
    """
    troubles: list[tuple[int, str]] = []

    def fill(block: re.Match[str]) -> str:
        kind, words, between = block[1], block[2].split(), block[3].rstrip("\n")
        line, what = text.count("\n", 0, block.start()) + 1, f"{kind} {' '.join(words)}"
        try:
            right = made(kind, words).strip("\n")
        except CannotShow as error:
            troubles.append((line, f"{what}: {error}"))
            right = between
        if right != between and is_told:
            troubles.append((line, f"{what} is not what the results say: python benchmarks/tables.py write"))
        return f"<!-- {kind}: {block[2]} -->\n{right}\n{END}"

    right = BLOCK.sub(fill, text)
    # Blocks without what is in them, on as many lines: what is left was typed.
    typed = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text).splitlines()
    if open_at := [number for number, line in enumerate(typed, 1) if OPENING.match(line)]:
        troubles += [(number, f"it has no {END} behind it: add that line") for number in open_at]
    else:
        troubles += [(begin + 1, what) for begin, what in typed_tables(typed)]
    return right, sorted(troubles)


def made(kind: str, words: list[str]) -> str:
    if kind == "machine":
        return machine_lines(words)
    if kind == "results":
        return results_list(words[0])
    script, _, name = words[0].partition(":")
    table = getattr(module_of(script), name or "table", None)
    if table is None:
        raise CannotShow(f"{script} has no function {name or 'table'}(content)")
    contents = [read(file) for file in words[1:]]
    try:
        return str(table(*contents))
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise CannotShow(f"it cannot be made of these results ({type(error).__name__}: {error})") from None


@cache
def module_of(script: str) -> ModuleType:
    """Return a script as a module, without running it as a program."""
    path = ROOT / script
    if not path.is_file():
        raise CannotShow(f"{script} is not there")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        return importlib.import_module(path.stem)
    except ImportError as error:
        raise CannotShow(f"{script} cannot be imported: {error}") from None


def typed_tables(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield tables outside of blocks that hold figures and do not say why they are typed."""
    at = 0
    while at < len(lines):
        begin = at
        while at < len(lines) and lines[at].startswith("|"):
            at += 1
        cells = [cell.strip() for line in lines[begin:at] for cell in line.strip("|").split(" | ")[1:]]
        if any(FIGURE.match(cell) for cell in cells) and not (begin and TYPED.match(lines[begin - 1])):
            yield begin, "a table of figures that no result stands behind: make it a block, or say why it is typed"
        at = max(at, begin + 1)


if __name__ == "__main__":
    main()
