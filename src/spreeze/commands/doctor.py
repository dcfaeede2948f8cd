"""`spreeze doctor`: describes the machine, tries what a run needs, and prints how to fix what fails.

`spreeze doctor ENV` does the same for an environment.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from spreeze.adapt.plan import plan_memory, plan_processes
from spreeze.adapt.remember import recall_update_times
from spreeze.channels.transitions import RowLayout
from spreeze.commands.examination import Report, examine_apart
from spreeze.config import Config
from spreeze.config.own_settings import FIRST_GUESS
from spreeze.environments.findings import Finding
from spreeze.host.hardware import this_machine, usable_memory_bytes
from spreeze.host.programs import python

PACKAGES = ("spreeze", "torch", "gymnasium", "mujoco", "numpy", "safetensors", "rich", "tyro")
MIN_FREE_DISK_BYTES = 2**30
EXAMPLE_ENV, EXAMPLE_SIZES = "HalfCheetah-v5", (17, 6)
SHOWN_LINES = 5  # of what an environment printed before it failed


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    what: str
    works: bool
    fix: str = ""
    needed: bool = True
    """Whether a run is impossible without it."""


def examine_machine() -> bool:
    """Print the report; return whether a run is possible on this machine."""
    console = Console(highlight=False, soft_wrap=True)
    machine = this_machine()
    console.print("[bold]Versions[/]")
    console.print(f"  Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in PACKAGES:
        console.print(f"  {package} {_version(package)}")
    console.print("[bold]Machine[/]")
    console.print(f"  {machine.cores} CPU cores, {machine.memory_bytes / 2**30:.1f} GB of memory free")
    for gpu in machine.gpus:
        console.print(f"  {gpu.name}, {gpu.memory_bytes / 2**30:.0f} GB")
    if not machine.gpus:
        console.print("  no NVIDIA GPU")
    console.print("[bold]A run here would use[/]")
    config, layout = Config(EXAMPLE_ENV, FIRST_GUESS), RowLayout(*EXAMPLE_SIZES)
    plan = plan_processes(
        config, machine, update_times=recall_update_times(machine, config.algo, config.learning.hidden)
    )
    for choice in plan_memory(plan, layout, machine).choices:
        console.print(f"  {choice.setting} {choice.value}   [dim]{choice.reason}[/]")
    console.print(f"  [dim]memory is planned for {EXAMPLE_ENV}, with {layout.row_bytes} bytes per row[/]")
    console.print("[bold]Checks[/]")
    checks = list(_checks(len(machine.gpus)))
    for check in checks:
        mark = "[green]works[/]  " if check.works else "[red]missing[/]" if check.needed else "[yellow]absent[/] "
        console.print(f"  {mark} {check.what}" + ("" if check.works else f": {check.fix}"))
    return all(check.works for check in checks if check.needed)


def examine_environment(config: Config) -> bool:
    """Print the report about an environment; return whether it can be trained on."""
    report = examine_apart(config)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(config.env)}[/]")
    for name, text in report.described:
        console.print(f"  {name:<12}  {escape(text)}")
    if report.findings:
        console.print("[bold]Findings[/]")
    for finding in report.findings:
        console.print(f"  {_mark_of(finding)}  {escape(finding.problem)}\n           fix: {escape(finding.fix)}")
    if report.is_fatal and report.printed:
        console.print("[bold]It printed[/]")
        for line in report.printed[-SHOWN_LINES:]:
            console.print(f"  {escape(line)}")
    console.print(_verdict_on(report))
    return not report.is_fatal


def _mark_of(finding: Finding) -> str:
    if finding.is_fatal:
        return "[red]error[/]  "
    return "note   " if finding.is_note else "[yellow]warning[/]"


def _verdict_on(report: Report) -> str:
    if report.is_fatal:
        return "It cannot be trained on until the errors are fixed."
    if any(not finding.is_note for finding in report.findings):
        return "It can be trained on, but the warnings are worth fixing first."
    return "Nothing is wrong with it."


def _checks(gpu_count: int) -> Iterator[Check]:
    yield Check(
        "shared memory between processes",
        _tries(_shared_memory),
        "free memory, or enlarge the memory limit of the container",
    )
    yield Check(
        "the current folder can be written to",
        os.access(Path.cwd(), os.W_OK),
        "runs are written to ./runs: change to a folder you may write to, or use --run-dir",
    )
    free = shutil.disk_usage(Path.cwd()).free
    yield Check(
        f"disk: {free / 2**30:.1f} GB free",
        free >= MIN_FREE_DISK_BYTES,
        "free some space, or use --run-dir on another disk",
    )
    memory = usable_memory_bytes()
    yield Check(
        "memory for a replay of a million transitions",
        memory > 2**31,
        "it will hold fewer; close other programs to hold more",
        needed=False,
    )
    yield Check("torch computes", _runs("import torch; torch.ones(2, 2) @ torch.ones(2, 2)"), "pip install torch")
    if gpu_count:
        yield Check(
            "torch uses the GPU",
            _runs("import torch; torch.ones(2, device='cuda').sum().item()"),
            "install a CUDA build: pip install --upgrade torch; runs use the CPU until then",
            needed=False,
        )
        yield Check(
            "fused kernels (Triton)",
            _runs(
                "import torch; from spreeze.algorithms.kernels.fused import FUSED; "
                "FUSED.soft_objective(*(torch.ones(s, device='cuda') for s in ((2, 8), 8, 1))).item()"
            ),
            "install Triton and a C compiler (apt install gcc) for updates twice as fast",
            needed=False,
        )
    yield Check(
        "MuJoCo environments",
        _runs("import gymnasium; gymnasium.make('HalfCheetah-v5').reset()"),
        'pip install "gymnasium[mujoco]"',
        needed=False,
    )


def _shared_memory() -> None:
    from spreeze.channels.memory import SharedSegment

    segment = SharedSegment("doctor", 4096)
    segment.array("f4", (1024,))[:] = 1.0
    segment.close()


def _tries(action: Callable[[], None]) -> bool:
    try:
        action()
    except Exception:
        return False
    return True


def _runs(program: str) -> bool:
    # In a separate process: a library that crashes on import must not end the doctor.
    with tempfile.TemporaryDirectory() as folder:
        words = python("-c", program)
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False)  # noqa: S603 (a program of ours)
    return done.returncode == 0


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
