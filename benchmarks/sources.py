"""Where each result comes from: the command that writes it, the machine, the date, the commit, the versions.

In: files of benchmarks/results, which say most of it themselves, and sources.toml for those that do not.
Out: lines for the pages. A result whose command nobody knows is an error.
"""

from __future__ import annotations

import fnmatch
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benchmarks" / "sources.toml"


class CannotShow(Exception):
    """A result is not there, or does not hold what is to be shown. The message is one line."""


@dataclass(frozen=True)
class Source:
    """What a reader needs in order to get a result again."""

    words: str
    """The command, with what follows it."""
    place: str
    where: str
    """The machine, and the versions there."""
    dates: tuple[str, ...]
    when: str
    """The dates, and the commit."""


@cache
def read(file: str) -> Any:
    """Return the content of a result: a JSON value, or for .jsonl the list of its lines'. file: from the root."""
    path = ROOT / file
    if not path.is_file():
        entry = entry_of(file)
        fix = f"measure it: {entry['command']}" if entry else "measure it, or take out what shows it"
        raise CannotShow(f"{file} is not there: {fix}")
    try:
        text = path.read_text()
        return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    except ValueError as error:
        raise CannotShow(f"{file} cannot be read: {error}") from None


@cache
def listed() -> dict[str, Any]:
    return tomllib.loads(SOURCES.read_text()) if SOURCES.exists() else {}


def entry_of(file: str) -> dict[str, Any] | None:
    name = file.removeprefix("benchmarks/results/")
    entries: list[dict[str, Any]] = listed().get("result", [])
    return next((e for e in entries if any(fnmatch.fnmatchcase(name, form) for form in e["files"])), None)


def source_of(file: str) -> Source:
    """Return where a result comes from; sources.toml goes before what the file says."""
    content, entry = read(file), entry_of(file) or {}
    head = content if isinstance(content, dict) else {}  # lines of a journal have none
    known = listed().get("machine", {}).get(entry.get("machine", ""), {})
    machine, command = head.get("machine") or known, entry.get("command") or head.get("command")
    # What was measured in parts says of each when and of which commit it is.
    parts = head.get("parts") or [head]
    dates = sorted({part["date"][:10] for part in parts if part.get("date")})
    dates = [entry["date"]] if "date" in entry else list(dict.fromkeys((dates[0], dates[-1]))) if dates else []
    if not machine or not command or not dates:
        fix = "measure it again, or add it to sources.toml"
        raise CannotShow(f"{file} does not say its command, machine and date: {fix}")
    for word in command.split():
        is_own = word.startswith("benchmarks/") and Path(word).suffix in (".py", ".toml")
        if is_own and not (ROOT / word).exists():
            raise CannotShow(f"{file} was written with {word}, which is gone: measure it again, or take it out")
    commits = dict.fromkeys(part["git_commit"][:7] for part in parts if part.get("git_commit"))
    commit = entry.get("commit") or ", ".join(commits)
    versions = versions_of(head, known)
    words = [f"`{command}`", f"then `{entry['then']}`" if "then" in entry else "", entry.get("note", "")]
    takes, place = f" (about {entry['takes']})" if "takes" in entry else "", place_of(machine)
    return Source(
        words=", ".join(filter(None, words)) + takes,
        place=place,
        where=place + (f"; {versions}" if versions else ""),
        dates=tuple(dates),
        when=" to ".join(dates) + (f", commit {commit}" if commit else ""),
    )


def place_of(machine: dict[str, Any]) -> str:
    gpus, model = machine["gpus"], machine["cpu_model"].replace("(R)", "").removesuffix(" Processor")
    return f"{machine['cores']} cores ({model}), {', '.join(gpus) if gpus else 'no GPU'}"


def versions_of(head: dict[str, Any], known: dict[str, Any]) -> str:
    """Return our versions, and those that only peers have: of the session, or of each run."""
    versions = head.get("versions") or known.get("versions", {})
    own = {name: version for name, version in versions.items() if version and name != "spreeze"}
    peers: dict[str, Any] = dict(head.get("peer_versions") or {})
    for run in head.get("runs", []):
        peers |= run.get("versions") or {}
    others = {name: version for name, version in peers.items() if name not in own and isinstance(version, str)}
    return ", ".join(f"{name} {version}" for name, version in (own | others).items())


def machine_lines(files: Iterable[str]) -> str:
    """Return how to get these results again, and where they were measured."""
    sources = list(dict.fromkeys(source_of(file) for file in files))
    if len(sources) > 1 and len({source.where for source in sources}) == 1:
        lines = [f"- {source.words}: {source.when}" for source in sources]
        return "\n".join([*lines, "", f"All on {sources[0].where}."])
    lines = [f"{source.words}: {source.where}; {source.when}." for source in sources]
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)


def results_list(folder: str) -> str:
    """List the results of a folder of benchmarks/results, each with its command."""
    if not (ROOT / folder).is_dir():
        raise CannotShow(f"{folder} is not there")
    by_source: dict[Source, list[str]] = {}
    for path in sorted(path for path in (ROOT / folder).iterdir() if path.suffix in (".json", ".jsonl")):
        by_source.setdefault(source_of(path.relative_to(ROOT).as_posix()), []).append(path.name)
    return "\n".join(
        f"- {', '.join(f'[{name}]({name})' for name in names)}: {source.when}<br>{source.words}"
        for source, names in by_source.items()
    )


def places_line(files: Iterable[str]) -> str:
    """Return on which machines these were measured, and from when to when."""
    dates: dict[str, list[str]] = {}
    for source in map(source_of, files):
        dates.setdefault(source.place, []).extend(source.dates)
    return "; ".join(f"{place}, {' to '.join(dict.fromkeys((min(of), max(of))))}" for place, of in dates.items())
