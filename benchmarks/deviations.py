"""What each deviation from the papers does to the return: defaults, and variants that do as the papers say.

    python benchmarks/deviations.py --jobs 2 --part-seconds 450 --json deviations.json

Each run is a serial training in one thread of as many environment steps and updates as all others: what it learns
depends on the variant and the seed, and not on the clock. Out: a Markdown table for each page of docs/algorithms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Tables are made without being in this folder.
sys.path.insert(0, str(Path(__file__).resolve().parent / "questions"))

from returns import ENV_STEPS, Run, return_at_end, return_on_the_way

from deviation.variants import PAGES, STEPS, VARIANTS, Variant
from flags import add_kept_runs_flags, count, make_parser, refuse
from formats import markdown, span
from kept_runs import KeptRuns
from serial_runs import SerialRun, make_runs
from session import Json

SEEDS = 5  # without a difference, five of each lie apart in one of 126 comparisons
FEWEST_RUNS = 3


def main() -> int:
    arguments = parse_arguments()
    settings = {"seeds": arguments.seeds, "train_args": arguments.train_args}
    kept = KeptRuns("deviations", settings, arguments.json, arguments.part_seconds, grows=("seeds",))
    make_runs(kept, runs_of(arguments), arguments.jobs, progress_line)
    for page, about in PAGES.items():
        print(f"\n{page}: {about}\n\n{table_of(page, kept.content)}")
    return 0


def runs_of(arguments: argparse.Namespace) -> list[SerialRun]:
    """Return the runs of the variants that are wanted and of those that they differ from, seed by seed."""
    wanted = [VARIANTS[name] for name in arguments.only or VARIANTS]
    bases = [VARIANTS[variant.base] for variant in wanted if variant.base is not None]
    return [
        SerialRun(
            key_of(variant, seed),
            (*variant.words(seed), *arguments.train_args),
            work=variant.cost * STEPS,
            program=variant.program(),
        )
        for seed in range(arguments.seeds)
        for variant in dict.fromkeys([*bases, *wanted])
    ]


def key_of(variant: Variant, seed: int) -> Json:
    """Return what says which run it is; the words too, so that a variant that has changed is measured again."""
    return {
        "variant": variant.name,
        "seed": seed,
        "words": " ".join(filter(None, [variant.noise, *variant.words(seed)])),
    }


def progress_line(run: Json) -> str:
    begin = f"{run['variant']}  seed {run['seed']}  "
    if not run["evaluations"]:
        return begin + (run["failed"] or "no evaluation")
    cut = f"; {run['failed']}" if run["failed"] else ""
    did = f"{run['env_steps']:,} steps, {run['updates']:,} updates in {run['wall_s']:.0f} s"
    return f"{begin}{did}; final return {return_at_end(run, ENV_STEPS, STEPS):,.1f}{cut}"


# --- the tables ------------------------------------------------------------------------------------------------


def table(*contents: Json) -> str:
    """All variants."""
    return table_of("", *contents)


def common(*contents: Json) -> str:
    return table_of("common", *contents)


def sac(*contents: Json) -> str:
    return table_of("sac", *contents)


def td3(*contents: Json) -> str:
    return table_of("td3", *contents)


def ddpg(*contents: Json) -> str:
    return table_of("ddpg", *contents)


def dqn(*contents: Json) -> str:
    return table_of("dqn", *contents)


def table_of(page: str, *contents: Json) -> str:
    """A line for each variant of a page, and for those that its variants differ from, which come first."""
    runs = runs_by_variant(contents)
    of_page = [variant for variant in VARIANTS.values() if page in ("", variant.page) and variant.name in runs]
    rows = []
    for base in dict.fromkeys(base_of(variant) for variant in of_page):
        others = [variant for variant in of_page if variant.base == base.name and variant.name in runs]
        if base.name in runs and (others or base in of_page):
            rows.append(row_of(base, runs, is_base=True))
            rows += [row_of(variant, runs) for variant in others]
    heads = ["variant", "by", "task", "runs", "final return", "mean return until then", "compared with", "difference"]
    return markdown(heads, rows)


def base_of(variant: Variant) -> Variant:
    return variant if variant.base is None else VARIANTS[variant.base]


def row_of(variant: Variant, runs: dict[str, list[Run]], *, is_base: bool = False) -> list[str]:
    figures = figures_of(runs[variant.name])
    task = variant.env.rpartition(":")[2]
    name = f"**{variant.name}**" if is_base else variant.name
    cells = [name, variant.how(), task, str(len(runs[variant.name])), *(span(of, ",.0f") for of in figures)]
    if is_base:
        return [*cells, "-", "-"]
    assert variant.base is not None
    return [*cells, variant.base, difference(figures, figures_of(runs[variant.base]))]


def figures_of(runs: list[Run]) -> list[list[float]]:
    """Return the final return of each run, and its mean return until then."""
    return [[of(run, ENV_STEPS, STEPS) for run in runs] for of in (return_at_end, return_on_the_way)]


def difference(figures: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> str:
    """Say in what two variants are apart: every run of the one above every run of the other."""
    if min(len(figures[0]), len(others[0])) < FEWEST_RUNS:
        return "too few runs"
    said = []
    for what, ours, theirs in zip(("final return", "mean"), figures, others, strict=True):
        said += [f"{what} higher"] if min(ours) > max(theirs) else []
        said += [f"{what} lower"] if max(ours) < min(theirs) else []
    return ", ".join(said) or "they overlap"


def runs_by_variant(contents: Sequence[Json]) -> dict[str, list[Run]]:
    """Return the whole runs of each variant as it is now, by seed."""
    found: dict[str, list[Run]] = {}
    for run in sorted((run for content in contents for run in content["runs"]), key=lambda run: run["seed"]):
        variant = VARIANTS.get(run["variant"])
        is_whole = run["failed"] is None and run["evaluations"]
        if variant is not None and is_whole and run["words"] == key_of(variant, run["seed"])["words"]:
            found.setdefault(variant.name, []).append(run)
    return found


# --- the command line ------------------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    only_help = "names of variants, or pages for all of theirs; with what they are compared with"
    parser.add_argument("--only", nargs="+", metavar="NAME", help=only_help)
    parser.add_argument("--seeds", type=count, default=SEEDS)
    parser.add_argument("--jobs", type=count, default=1, help="runs at a time")
    add_kept_runs_flags(parser)
    more_help = "for `spreeze train`; must come last"
    parser.add_argument("--train-args", nargs=argparse.REMAINDER, default=[], help=more_help)
    arguments = parser.parse_args()
    arguments.only = names_of(arguments.only or [])
    return arguments


def names_of(words: Sequence[str]) -> list[str]:
    """Return the variants that are named, each or by their page."""
    found: list[str] = []
    for word in words:
        of_page: list[Any] = [variant.name for variant in VARIANTS.values() if variant.page == word]
        if not of_page and word not in VARIANTS:
            refuse(f"--only: there is no '{word}': it can be {', '.join([*PAGES, *VARIANTS])}")
        found += [word] if word in VARIANTS and word not in PAGES else of_page
    return found


if __name__ == "__main__":
    sys.exit(main())
