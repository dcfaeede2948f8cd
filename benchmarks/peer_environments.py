"""The peers' own Pythons: each runner in peers/ states what it needs, and gets it in .venv-peers/LIBRARY.

In: the runner files, each with a script block (PEP 723). Out: the Python to run it with, installed first where that
is needed, or why there is none. Nothing of it is ever a dependency of Spreeze.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from session import ROOT

PEERS = ROOT / "benchmarks" / "peers"
ENVIRONMENTS = ROOT / ".venv-peers"
# The first peers are known by their libraries alone. In a file's name the algorithm comes last, which also keeps a
# runner's module from being taken for the library it imports.
UNNAMED_ALGORITHM = "_sac"
INSTALL_LIMIT_S = 1800.0
SCRIPT_BLOCK = re.compile(r"^# /// script\n(?P<lines>(?:#.*\n)+?)# ///$", re.MULTILINE)


class NotInstalled(Exception):
    """A peer cannot run here; the message is the reason."""


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    actions: str
    """The kind of actions that it is run for, as Spreeze calls them: continuous or discrete."""
    runner: Path
    dependencies: tuple[str, ...]

    @property
    def library(self) -> str:
        """What its runner shares an environment with: the runners of a library state the same dependencies."""
        return self.runner.stem.rpartition("_")[0]


def find_peers(folder: Path = PEERS) -> dict[str, Peer]:
    """Return the peers that there is a runner for, by name: a new one is one new file."""
    paths = [path for path in sorted(folder.glob("*_*.py")) if SCRIPT_BLOCK.search(path.read_text())]
    return {peer.name: peer for peer in map(read_peer, paths)}


def read_peer(path: Path) -> Peer:
    block = SCRIPT_BLOCK.search(path.read_text())
    if block is None:
        raise ValueError(f"{path} has no '# /// script' block: state there what it depends on")
    stated = tomllib.loads("".join(line[1:].removeprefix(" ") for line in block["lines"].splitlines(keepends=True)))
    name, own = path.stem.removesuffix(UNNAMED_ALGORITHM).replace("_", "-"), stated["tool"]["peer"]
    return Peer(name, own["title"], own["actions"], path, tuple(stated["dependencies"]))


def install(peer: Peer) -> Path:
    """Return the peer's Python in .venv-peers, set up or brought up to date where that is needed."""
    environment = ENVIRONMENTS / peer.library
    python, stamp = environment / "bin" / "python", environment / "installed"
    torch_pin = pinned_torch()
    wanted = "\n".join((*peer.dependencies, torch_pin)) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {', '.join(peer.dependencies)} into {environment.relative_to(ROOT)}", flush=True)
    call([sys.executable, "-m", "venv", "--clear", str(environment)])
    # Of constraints.txt the line for torch alone: some peers need an older Gymnasium than Spreeze runs with.
    constraints = environment / "constraints.txt"
    constraints.write_text(f"{torch_pin}\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*pip, "-c", str(constraints), *peer.dependencies])
    stamp.write_text(wanted)
    return python


def pinned_torch() -> str:
    """Return the line of constraints.txt for torch: left open, pip takes gigabytes of CUDA libraries."""
    found = re.search(r"^torch\s*==\s*\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if found is None:
        raise NotInstalled("constraints.txt pins no torch: add 'torch==VERSION', or name a --peers-python")
    return found[0]


def call(command: list[str]) -> None:
    """Run a command; if it fails, the last line of what it said is the reason."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"installing took more than {INSTALL_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotInstalled(lines[-1])
