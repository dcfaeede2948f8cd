"""Who may import whom: the rules that keep processes apart and samplers light.

An import inside a function counts like one at the top. Importing `a.b` also runs the top of package `a`, so that a
package's own imports count for all its modules.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import spreeze

SOURCE = Path(spreeze.__file__).parent
MODULES = {
    ".".join(("spreeze", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
PROCESSES = sorted(name for name in MODULES if name.startswith("spreeze.processes."))
CHANNELS = sorted(name for name in MODULES if name.startswith("spreeze.channels"))
ALGORITHMS = sorted(name for name in MODULES if name.startswith("spreeze.algorithms"))
# The learner's process is the one that needs torch.
WITHOUT_TORCH = [
    "spreeze",
    "spreeze.cli",
    "spreeze.supervisor",
    "spreeze.processes.sample",
    "spreeze.processes.evaluate",
    "spreeze.processes.view",
    "spreeze.processes.record",
    "spreeze.watching",
]


def imported_names(node: ast.AST, module: str) -> Iterator[str]:
    """Name what one import statement imports; a name that is no module of ours stands for what it comes from."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        origin = node.module or ""
        if node.level:
            package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
            parents = package.split(".")
            origin = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
        for alias in node.names:
            inner = f"{origin}.{alias.name}"
            yield inner if inner in MODULES else origin


def statements(node: ast.AST, inside_functions: bool, for_types: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse if not for_types else [*child.body, *child.orelse]:
                yield other
                yield from statements(other, inside_functions, for_types)
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        yield child
        yield from statements(child, inside_functions, for_types)


@cache
def imports(module: str, inside_functions: bool = True, for_types: bool = False) -> frozenset[str]:
    tree = ast.parse(MODULES[module].read_text())
    return frozenset(
        name for node in statements(tree, inside_functions, for_types) for name in imported_names(node, module)
    )


def packages_of(module: str) -> list[str]:
    parts = module.split(".")
    return [name for count in range(1, len(parts)) if (name := ".".join(parts[:count])) in MODULES]


def reached(module: str) -> dict[str, str]:
    """Everything that a module imports, directly or through other modules of ours, and through which one."""
    found: dict[str, str] = {}
    # A package that is only passed through runs its top; what its functions would import is not called.
    waiting: list[tuple[str, bool]] = [(module, True), *((package, False) for package in packages_of(module))]
    done = set(waiting)
    while waiting:
        current, inside_functions = waiting.pop()
        for name in imports(current, inside_functions):
            found.setdefault(name, current)
            if name in MODULES:
                new = {(name, inside_functions), *((package, False) for package in packages_of(name))} - done
                done |= new
                waiting += new
    return found


def top(name: str) -> str:
    return name.partition(".")[0]


def chain_to(module: str, wanted: str) -> str:
    """Say how a module comes to import something, for the message of a failure; "" if it does not."""
    found = reached(module)
    name = next((name for name in found if top(name) == wanted or name == wanted), "")
    steps = [name] if name else []
    while name in found and name != module and found[name] not in steps:
        name = found[name]
        steps.append(name)
    return " <- ".join(steps)


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh Python holds after a statement."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.decode().split()
    )


# --- the reader of imports itself -------------------------------------------------------------------------------


def test_imports_of_every_kind_are_seen() -> None:
    assert {"spreeze.processes.sample", "spreeze.processes.learn", "spreeze.processes.evaluate"} <= set(PROCESSES)
    assert "torch" in imports("spreeze.algorithms.networks")
    assert "spreeze.child" in imports("spreeze.crew")  # from spreeze import child
    assert "spreeze.policy" in imports("spreeze")  # inside a function
    assert "spreeze.policy" not in imports("spreeze", inside_functions=False)
    assert "spreeze.envs" in imports("spreeze.child", for_types=True)
    assert "spreeze.envs" not in imports("spreeze.child")
    assert chain_to("spreeze.processes.learn", "torch")
    assert chain_to("spreeze.replay", "spreeze.channels.control")  # through the package of its channel


def test_every_import_of_ours_exists() -> None:
    for module in MODULES:
        for name in imports(module, for_types=True):
            assert top(name) != "spreeze" or name in MODULES, f"{module} imports {name}"


# --- rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES)
def test_processes_never_import_one_another(process: str) -> None:
    others = set(PROCESSES) - {process}
    assert not others & imports(process, for_types=True)
    assert not others & reached(process).keys()


@pytest.mark.parametrize("channel", CHANNELS)
def test_channels_know_nothing_of_torch_gymnasium_and_algorithms(channel: str) -> None:
    for forbidden in ("torch", "gymnasium"):
        assert chain_to(channel, forbidden) == ""
        assert forbidden not in {top(name) for name in imports(channel, for_types=True)}
    assert not {name for name in reached(channel) if name.startswith("spreeze.algorithms")}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_import_only_torch_with_triton_the_standard_library_and_each_other(algorithm: str) -> None:
    for name in imports(algorithm, for_types=True):
        allowed = top(name) in ("torch", "triton") or top(name) in sys.stdlib_module_names or name in ALGORITHMS
        assert allowed, f"{algorithm} imports {name}"


@pytest.mark.parametrize("forbidden", ["os", "io", "pathlib", "subprocess", "threading", "time", "multiprocessing"])
def test_algorithms_have_no_process_file_or_clock(forbidden: str) -> None:
    assert not [module for module in ALGORITHMS if forbidden in {top(name) for name in imports(module)}]


def test_tuning_imports_only_the_standard_library() -> None:
    names = {top(name) for name in imports("spreeze.adapt.tune", for_types=True)}
    assert names
    assert names <= sys.stdlib_module_names


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_only_the_learner_reaches_torch(module: str) -> None:
    assert chain_to(module, "torch") == ""


# --- what really gets imported ----------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["import spreeze", "import spreeze.cli", "import spreeze.policy"])
def test_importing_spreeze_imports_neither_torch_nor_gymnasium(statement: str) -> None:
    loaded = modules_after(statement)
    assert "spreeze" in loaded
    assert not {"torch", "gymnasium"} & loaded


@pytest.mark.parametrize(
    "module",
    [
        "spreeze.processes.sample",
        "spreeze.processes.evaluate",
        "spreeze.processes.view",
        "spreeze.processes.record",
        "spreeze.watching",
        "spreeze.supervisor",
        "spreeze.training",
        "spreeze.terminal",
        "spreeze.child",
    ],
)
def test_importing_a_process_without_a_learner_leaves_torch_out(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert "torch" not in loaded
