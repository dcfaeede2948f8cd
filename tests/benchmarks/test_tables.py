"""benchmarks/tables.py: pages hold what the results say; whatever differs is found, named and put right."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

# What the scripts import: a fork has it already.
import spreeze.commands.bench.grid
import spreeze.commands.bench.solve
import spreeze.supervision.supervisor  # noqa: F401
from spreeze.commands.bench.machine import describe_benchmark
from spreeze.host.hardware import usable_cores

REPOSITORY = Path(__file__).resolve().parents[2]
FIX = "python benchmarks/tables.py write"


class Checkout:
    """A copy of the pages, the scripts and the results, to damage."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run_program(self, action: str) -> tuple[int, list[str]]:
        command = [sys.executable, "benchmarks/tables.py", action]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stderr.splitlines()

    def run(self, action: str) -> tuple[int, list[str]]:
        """Run the script in a fork: the imports of a program would take three quarters of its time."""
        with tempfile.TemporaryFile() as stderr:
            pid = os.fork()
            if not pid:
                self._become_program(action, stderr.fileno())
            _, status = os.waitpid(pid, 0)
            stderr.seek(0)
            return os.waitstatus_to_exitcode(status), stderr.read().decode().splitlines()

    def _become_program(self, action: str, stderr: int) -> NoReturn:
        code = 70  # of no program here
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(stderr, 2)
            sys.stdout, sys.stderr = (open(fd, "w", closefd=False) for fd in (1, 2))  # noqa: SIM115
            os.chdir(self.root)
            # Its scripts are those of this checkout; what they import of Spreeze is the same.
            scripts = str(REPOSITORY / "benchmarks")
            sys.path[:] = [entry for entry in sys.path if not entry.startswith(scripts)]
            for name, module in [*sys.modules.items()]:
                if (getattr(module, "__file__", None) or "").startswith(scripts):
                    del sys.modules[name]
            sys.argv = ["benchmarks/tables.py", action]
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def change(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text()
        assert old in text
        (self.root / file).write_text(text.replace(old, new, 1))

    def change_json(self, file: str, change: Callable[[Any], None]) -> None:
        content = json.loads((self.root / file).read_text())
        change(content)
        (self.root / file).write_text(json.dumps(content))

    def add_page(self, *lines: str) -> Path:
        page = self.root / "docs" / "new.md"
        page.write_text("\n".join(lines) + "\n")
        return page


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for folder in ("docs", "benchmarks"):
        shutil.copytree(
            REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "images")
        )
    shutil.copy(REPOSITORY / "README.md", tmp_path)
    for folder in ("src", "tests"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    return Checkout(tmp_path)


def test_the_repository_is_right() -> None:
    assert Checkout(REPOSITORY).run_program("check") == (0, [])


def test_torch_is_not_needed(checkout: Checkout) -> None:
    (checkout.root / "benchmarks" / "torch.py").write_text("raise ImportError('not here')")
    assert checkout.run_program("check") == (0, [])


@pytest.mark.parametrize(
    ("page", "before_it", "named"),
    [
        ("README.md", "on Pendulum-v1, median over seeds | **5.", "table benchmarks/headline.py:readme"),
        ("docs/performance.md", "| 256 | fused | ", "table benchmarks/shown.py:learner"),
        ("docs/reliability.md", "soak.py --minutes ", "machine benchmarks/results/soak-2-cores.json"),
        ("benchmarks/results/h200/README.md", "--samplers ", "results benchmarks/results/h200"),
    ],
)
def test_a_changed_figure_is_found_and_put_right(checkout: Checkout, page: str, before_it: str, named: str) -> None:
    before = (checkout.root / page).read_text()
    figure = before[before.index(before_it) + len(before_it)]
    checkout.change(page, before_it + figure, before_it + str((int(figure) + 1) % 10))
    code, said = checkout.run("check")
    assert code == 1
    assert len(said) == 1
    assert said[0].startswith(f"{page}:")
    assert named in said[0]
    assert said[0].endswith(FIX)
    assert checkout.run("write") == (0, [])
    assert (checkout.root / page).read_text() == before


def test_a_changed_result_is_found_on_every_page_that_shows_it(checkout: Checkout) -> None:
    def slower(content: Any) -> None:
        for run in content["runs"]:
            if run["system"] == "spreeze":
                run["time_to_target_s"] = 7.6

    checkout.change_json("benchmarks/results/peers-pendulum-2-cores.json", slower)
    code, said = checkout.run("check")
    assert code == 1
    assert {line.partition(":")[0] for line in said} == {"README.md", "docs/benchmarks.md"}
    assert checkout.run("write") == (0, [])
    assert "| **7.6 s** | SBX 17.5 s, RLlib > 90.0 s |" in (checkout.root / "README.md").read_text()
    assert "| Spreeze | **7.6** | 7.6, 7.6, 7.6 |" in (checkout.root / "docs" / "benchmarks.md").read_text()
    assert checkout.run("check") == (0, [])


@pytest.mark.parametrize("action", ["check", "write"])
def test_a_missing_result_is_one_line_with_its_command(checkout: Checkout, action: str) -> None:
    file = "benchmarks/results/options-pendulum-2-cores.json"
    (checkout.root / file).unlink()
    page = (checkout.root / "docs" / "recipes.md").read_text()
    code, said = checkout.run(action)
    assert code == 1
    about = [line for line in said if line.startswith("docs/recipes.md:")]
    assert len(about) == 2  # the table, and the line about the machine
    assert f"{file} is not there: measure it: spreeze bench solve --tasks" in about[0]
    assert not any("Traceback" in line for line in said)
    assert (checkout.root / "docs" / "recipes.md").read_text() == page  # what was there is not lost


def test_a_broken_result_is_one_line(checkout: Checkout) -> None:
    (checkout.root / "benchmarks/results/soak-2-cores.json").write_text('{"kills"')
    code, said = checkout.run("check")
    assert code == 1
    assert any("docs/reliability.md" in line and "soak-2-cores.json cannot be read" in line for line in said)
    assert not any("Traceback" in line for line in said)


def test_any_script_with_a_function_table_will_do(checkout: Checkout) -> None:
    script = 'def table(one, other):\n    return f\'| {one["rate"]} | {other[0]["rate"]} |\'\n'
    (checkout.root / "benchmarks" / "own").mkdir()
    (checkout.root / "benchmarks" / "own" / "script.py").write_text(script)
    (checkout.root / "one.json").write_text('{"rate": 12}')
    (checkout.root / "other.jsonl").write_text('{"rate": 34}\n')
    page = checkout.add_page(
        "before", "<!-- table: benchmarks/own/script.py one.json other.jsonl -->", "<!-- end -->"
    )
    assert checkout.run("check")[0] == 1
    assert checkout.run("write") == (0, [])
    assert page.read_text().splitlines()[2:] == ["| 12 | 34 |", "<!-- end -->"]
    assert checkout.run("check") == (0, [])


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["<!-- table: benchmarks/none.py -->", "<!-- end -->"], "benchmarks/none.py is not there"),
        (["<!-- table: benchmarks/session.py -->", "<!-- end -->"], "has no function table"),
        (["<!-- table: benchmarks/soak.py docs/a.json -->", "<!-- end -->"], "docs/a.json is not there"),
        (["<!-- table: benchmarks/soak.py -->", "| 1 | 2 |"], "has no <!-- end --> behind it"),
        (
            ["<!-- table: benchmarks/soak.py benchmarks/results/h200/learner.json -->", "<!-- end -->"],
            "it cannot be made of these results (KeyError: 'memory')",
        ),
        (["| what | rate |", "|---|---|", "| a | 1,234 |"], "a table of figures that no result stands behind"),
        (["| what | rate |", "|---|---|", "| a | **0.9** (0.8 to 1.0) |"], "a table of figures"),
    ],
)
def test_what_cannot_be_is_one_line(checkout: Checkout, lines: list[str], named: str) -> None:
    checkout.add_page(*lines)
    code, said = checkout.run("check")
    assert code == 1
    assert len(said) == 1
    assert said[0].startswith("docs/new.md:1: ")
    assert named in said[0]


def test_a_typed_table_may_say_why(checkout: Checkout) -> None:
    checkout.add_page("<!-- typed: settings -->", "| what | rate |", "|---|---|", "| a | 1,234 |")
    assert checkout.run("check") == (0, [])


def test_a_result_whose_command_nobody_knows_is_refused(checkout: Checkout) -> None:
    (checkout.root / "benchmarks/results/mystery.json").write_text('{"rate": 12}')
    code, said = checkout.run("check")
    assert code == 1
    assert len(said) == 1
    assert "benchmarks/results/mystery.json does not say its command, machine and date" in said[0]


def test_a_command_whose_script_is_gone_is_refused(checkout: Checkout) -> None:
    (checkout.root / "benchmarks/tasks/options-pendulum.toml").unlink()
    code, said = checkout.run("check")
    assert code == 1
    assert any("docs/recipes.md" in line and "options-pendulum.toml, which is gone" in line for line in said)


def test_a_result_that_describes_itself_needs_no_more(checkout: Checkout) -> None:
    folder = checkout.root / "benchmarks" / "results"
    (folder / "new.json").write_text(json.dumps({**describe_benchmark("learner"), "figures": []}))
    assert checkout.run("write") == (0, [])
    listed = next(line for line in (folder / "README.md").read_text().splitlines() if "[new.json]" in line)
    assert "`spreeze" in listed
    assert time.strftime("%Y-") in listed
    page = checkout.add_page("<!-- machine: benchmarks/results/new.json -->", "<!-- end -->")
    assert checkout.run("write") == (0, [])
    said = page.read_text()
    assert f"{usable_cores()} cores (" in said
    assert "gymnasium" in said
    assert checkout.run("check") == (0, [])


def test_a_result_measured_in_parts_names_the_days_and_commits_of_all(checkout: Checkout) -> None:
    parts = [
        {"date": "2030-01-02T03:04:05Z", "git_commit": "a" * 40},
        {"date": "2030-01-04T03:04:05Z", "git_commit": "b" * 40},
    ]
    content = {**describe_benchmark("new"), **parts[0], "parts": parts}
    (checkout.root / "docs" / "new.json").write_text(json.dumps(content))
    page = checkout.add_page("<!-- machine: docs/new.json -->", "<!-- end -->")
    assert checkout.run("write") == (0, [])
    assert "2030-01-02 to 2030-01-04, commit aaaaaaa, bbbbbbb." in page.read_text()


def test_every_command_writes_the_file_it_is_named_for() -> None:
    listed = tomllib.loads((REPOSITORY / "benchmarks" / "sources.toml").read_text())
    for entry in listed["result"]:
        said = f"{entry['command']} {entry.get('then', '')}"
        if "note" in entry:
            continue  # put together from several runs
        for form in entry["files"]:
            name, _, _ = form.partition("*")
            assert f"benchmarks/results/{name}" in said, entry
