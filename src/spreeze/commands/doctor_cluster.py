"""`spreeze doctor --cluster ADDRESS`: prints what each machine of a Ray cluster has, and whether a run can use it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from spreeze.cluster.availability import require_ray


def examine_machines(address: str) -> bool:
    """Print the report; return whether a run can use one of the machines."""
    require_ray()
    from spreeze.cluster.examine import examine_cluster

    console = Console(highlight=False, soft_wrap=True)
    reports = examine_cluster(address)
    console.print("[bold]Other machines[/]")
    for report in reports:
        mark = "[green]works[/]  " if report.problem is None else "[yellow]absent[/] "
        room = f"{report.free_cpus} of {report.cpus} CPUs free, {report.memory_bytes / 2**30:.1f} GB"
        console.print(f"  {mark} {escape(report.name)}: {room}")
        if report.versions:
            console.print(f"           [dim]{escape(report.versions)}[/]")
        if report.problem is not None:
            console.print(f"           {escape(report.problem)}")
    if not reports:
        console.print("  none: run `ray start --address=HEAD:6379` on one")
    return any(report.problem is None for report in reports)
