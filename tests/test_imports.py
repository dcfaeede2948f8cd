"""Who may import whom: the rules that keep processes apart and samplers light.

An import inside a function counts like one at the top. Importing `a.b` also runs the top of package `a`, so that a
package's own imports count for all its modules.
"""

from __future__ import annotations

import ast
import re
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
# In the order of dependency: a module imports only from its own room and from those before it.
ROOMS = (
    *("host", "algorithms", "config", "channels", "environments", "policy", "runs", "sampling", "learning"),
    *("evaluation", "adapt", "views", "supervision", "cluster", "commands"),
)
# They meet in the channels.
APART = ("sampling", "learning", "evaluation", "views", "cluster")
# What stands at the top: the public functions, the exceptions, and the door to the command line.
TOP_LEVEL = {"spreeze", "spreeze.__main__", "spreeze.errors"}
# Torch takes a second and a few hundred MB: only who updates networks has it. Algorithms declare what others read, so
# they take it through a module that imports it at its first use.
LAZY_TORCH = "spreeze.algorithms.lazy_torch"
MAY_USE_TORCH = (
    "spreeze.algorithms.kernels",
    LAZY_TORCH,
    "spreeze.learning",
    "spreeze.commands.bench.learner",
    "spreeze.commands.bench.split",
)
MAX_LINES, MAX_FUNCTION_LINES, MAX_FAN_OUT = 400, 60, 20


def room_of(module: str) -> str:
    return "" if module in TOP_LEVEL else module.split(".")[1]


def modules_in(*rooms: str) -> list[str]:
    return sorted(module for module in MODULES if room_of(module) in rooms)


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
        if current == LAZY_TORCH and current != module:
            continue
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


def named(module: str) -> set[str]:
    """The modules of Spreeze that a module names in strings, to import them later: "spreeze.ROOM.MODULE"."""
    nodes = ast.walk(ast.parse(MODULES[module].read_text()))
    texts = (str(node.value) for node in nodes if isinstance(node, ast.Constant))
    return {match[1] for text in texts if (match := re.fullmatch(r"(spreeze(?:\.\w+)+)(?::\w+)?", text))}


def ours(module: str) -> set[str]:
    """The modules of Spreeze that a module imports, wherever in its text, for types too."""
    return {name for name in imports(module, for_types=True) if top(name) == "spreeze"}


# --- the reader of imports itself -------------------------------------------------------------------------------


def test_imports_of_every_kind_are_seen() -> None:
    assert "torch" in imports("spreeze.algorithms.kernels.cpu")
    assert "spreeze.policy.file" in imports("spreeze")  # inside a function
    assert "spreeze.policy.file" not in imports("spreeze", inside_functions=False)
    assert "gymnasium" in imports("spreeze.config.env_spec", for_types=True)
    assert "gymnasium" not in imports("spreeze.config.env_spec")
    assert chain_to("spreeze.learning.process", "torch")
    assert chain_to("spreeze.learning.replay", "spreeze.channels.control")  # through the package of its channel
    assert "spreeze.learning.process" in named("spreeze.supervision.worker_main")
    assert "spreeze.learning.serial" in named("spreeze.supervision.serial")
    assert "spreeze.algorithms.sac" in named("spreeze.algorithms")


def test_every_import_of_ours_exists() -> None:
    for module in MODULES:
        for name in ours(module):
            assert name in MODULES, f"{module} imports {name}"


# --- rooms ------------------------------------------------------------------------------------------------------


def test_every_module_stands_in_a_room() -> None:
    assert {room_of(module) for module in MODULES} == {"", *ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_in_a_line_what_it_is_for(room: str) -> None:
    purpose = ast.get_docstring(ast.parse(MODULES[f"spreeze.{room}"].read_text()))
    assert purpose


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_the_rooms_before_it(room: str) -> None:
    known = {"", *ROOMS[: ROOMS.index(room) + 1]}
    upwards = [(module, name) for module in modules_in(room) for name in ours(module) if room_of(name) not in known]
    assert upwards == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_only_modules_of_its_own_and_of_the_rooms_before_it(room: str) -> None:
    """Those in strings, such as the programs of processes: they are imported by name where they are needed."""
    known = {"", *ROOMS[: ROOMS.index(room) + 1]}
    names = [(module, name) for module in modules_in(room) for name in named(module)]
    assert [(module, name) for module, name in names if name not in MODULES or room_of(name) not in known] == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_imports_the_public_functions(room: str) -> None:
    assert not [module for module in modules_in(room) if {"spreeze", "spreeze.__main__"} & ours(module)]


@pytest.mark.parametrize("room", APART)
def test_processes_never_import_one_another(room: str) -> None:
    others = set(APART) - {room}
    for module in modules_in(room):
        assert not {name for name in (*ours(module), *reached(module)) if name in MODULES and room_of(name) in others}


def test_there_is_no_cycle() -> None:
    """Not even through imports inside functions, or for types alone."""
    state: dict[str, str] = {}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        if state.get(module) == "open":
            pytest.fail(" -> ".join((*trail[trail.index(module) :], module)))
        if module in state:
            return
        state[module] = "open"
        for name in sorted(ours(module)):
            visit(name, (*trail, module))
        state[module] = "done"

    for module in MODULES:
        visit(module, ())


# --- what a room may use ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", modules_in("channels"))
def test_channels_import_only_host_config_and_errors(channel: str) -> None:
    assert {room_of(name) for name in ours(channel)} <= {"", "host", "config", "channels"}
    for forbidden in ("torch", "gymnasium"):
        assert chain_to(channel, forbidden) == ""
        assert forbidden not in {top(name) for name in imports(channel, for_types=True)}


@pytest.mark.parametrize("algorithm", modules_in("algorithms"))
def test_algorithms_import_only_torch_with_triton_the_standard_library_and_each_other(algorithm: str) -> None:
    for name in imports(algorithm, for_types=True):
        allowed = top(name) in ("torch", "triton") or top(name) in sys.stdlib_module_names
        assert allowed or (name in MODULES and room_of(name) == "algorithms"), f"{algorithm} imports {name}"


@pytest.mark.parametrize("forbidden", ["os", "io", "pathlib", "subprocess", "threading", "time", "multiprocessing"])
def test_algorithms_have_no_process_file_or_clock(forbidden: str) -> None:
    assert not [name for name in modules_in("algorithms") if forbidden in {top(name) for name in imports(name)}]


def test_tuning_imports_only_the_standard_library_and_the_settings_it_finds() -> None:
    parts = ("tune", "objective", "strides", "wording")
    tuning = [*(f"spreeze.adapt.{part}" for part in parts), "spreeze.config.run_settings"]
    for module in tuning:
        names = imports(module, for_types=True) - set(tuning)
        assert names
        assert {top(name) for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("module", sorted(module for module in MODULES if not module.startswith(MAY_USE_TORCH)))
def test_only_who_updates_networks_reaches_torch(module: str) -> None:
    assert chain_to(module, "torch") == ""


@pytest.mark.parametrize("module", sorted(module for module in MODULES if room_of(module) != "cluster"))
def test_only_the_cluster_imports_ray(module: str) -> None:
    assert "ray" not in {top(name) for name in imports(module, for_types=True)}


# --- sizes ------------------------------------------------------------------------------------------------------


def test_no_module_is_too_long_to_read() -> None:
    lengths = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    assert {module: lines for module, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_function_is_too_long_to_read() -> None:
    lengths = {
        f"{module}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {function: lines for function, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_no_module_imports_too_many_others() -> None:
    fan_out = {module: len(ours(module)) for module in MODULES}
    assert {module: count for module, count in fan_out.items() if count > MAX_FAN_OUT} == {}


# --- what really gets imported ----------------------------------------------------------------------------------


def test_declarations_of_algorithms_are_read_without_torch() -> None:
    read = "[find_algorithm(name).Settings() for name in ALGORITHMS]"
    loaded = modules_after(
        f"from spreeze.algorithms import ALGORITHMS; from spreeze.config.own_settings import find_algorithm; {read}"
    )
    assert "spreeze.algorithms.td3" in loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("statement", ["import spreeze", "import spreeze.commands.cli", "import spreeze.policy.file"])
def test_importing_spreeze_imports_neither_torch_nor_gymnasium(statement: str) -> None:
    loaded = modules_after(statement)
    assert "spreeze" in loaded
    assert not {"torch", "gymnasium"} & loaded


@pytest.mark.parametrize(
    "module",
    [
        "spreeze.sampling.process",
        "spreeze.evaluation.process",
        "spreeze.views.viewer",
        "spreeze.views.recorder",
        "spreeze.views.watch",
        "spreeze.supervision.supervisor",
        "spreeze.supervision.train",
        "spreeze.views.terminal",
        "spreeze.supervision.worker_main",
    ],
)
def test_importing_a_process_without_a_learner_leaves_torch_out(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert "torch" not in loaded
