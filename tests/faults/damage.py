"""Damaged and hostile files for every loader: run as a program, with little memory, it says which loader failed how.

    python damage.py FOLDER SEED COUNT

Each file is made from one that is valid (`damaged_kinds.py`): cut, spliced, bits flipped, numbers replaced by absurd
ones; and signed again where a checksum would give it away. What a loader may do is use the file or raise a
SpreezeError.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import sys
import traceback
from pathlib import Path

from damaged_kinds import KINDS, Kind, learner_kind

from spreeze.errors import RunFolderError, SpreezeError

MORE_BYTES = 256 << 20  # that loaders may take, in addition to what is loaded already
ABSURD = (b"-1", b"0", b"1e999", b"NaN", b"null", b'"x"', b"[]", b"{}", b"true", b"99999999999", b"107374182400",
          b"9223372036854775807", b"18446744073709551616", b"1" + b"0" * 400, b"0.5", b"-9e15")  # fmt: skip


# --- damage ------------------------------------------------------------------------------------------------------


def damaged(content: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        content = rng.choice(DAMAGES)(content, rng)
    return content


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 3, 30))):
        if changed:
            # The beginning decides more than the rest does.
            changed[rng.randrange(min(len(changed), rng.choice((12, 600, 1 << 30))))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _splice(content: bytes, rng: random.Random) -> bytes:
    at, to = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    put = rng.choice((b"", rng.randbytes(rng.randrange(40)), content[at:to] * 2, b"[" * 5000, b"\x00" * 100))
    return content[:at] + put + content[to:]


def _exchange_a_number(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:5000]))
    if not found:
        return content
    chosen = rng.choice(found)
    return content[: chosen.start()] + rng.choice(ABSURD) + content[chosen.end() :]


def _exchange_words(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb'"[\w.]+"', content[:5000]))
    if len(found) < 2:
        return content
    one, other = rng.sample(found, 2)
    return content[: one.start()] + other.group() + content[one.end() :]


def _lengthen(content: bytes, rng: random.Random) -> bytes:
    return content + rng.choice((b"\x00" * 1000, b"\n{}", content, rng.randbytes(50)))


DAMAGES = (_cut, _flip, _splice, _exchange_a_number, _exchange_a_number, _exchange_words, _lengthen)


def main(folder: Path, seed: int, count: int) -> None:
    kinds = (*KINDS, learner_kind())
    made: dict[str, tuple[Path, bytes]] = {}
    for kind in kinds:
        (folder / kind.name).mkdir()
        path = kind.make(folder / kind.name)
        made[kind.name] = path, path.read_bytes()
        use_valid(kind, *made[kind.name])
    # From here on: what would take much more than the files themselves fails.
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE_BYTES, resource.RLIM_INFINITY))
    for kind in kinds:
        use_valid(kind, *made[kind.name])
    failures: list[str] = []
    refused, tried = (dict.fromkeys(made, 0) for _ in range(2))
    for number in range(count):
        kind = kinds[number % len(kinds)]
        path, content = made[kind.name]
        rng = random.Random(f"{seed} {number}")
        changed = damaged(content, rng)
        changed = kind.sign(changed) if rng.random() < 0.5 else changed
        path.write_bytes(changed)
        tried[kind.name] += 1
        try:
            kind.load(path)
        except SpreezeError as error:
            refused[kind.name] += 1
            if what := wrong_with(str(error)):
                failures.append(f"{kind.name} {number}: {str(error)[:300]!r} {what}")
        except BaseException:
            kept = folder / f"{kind.name}-{number}"
            kept.write_bytes(changed)
            failures.append(f"{kind.name} {number}, {kept}:\n{traceback.format_exc()[-1500:]}")
        path.write_bytes(content)  # other kinds lie in the same folder
    places = [os.path.relpath(path, folder / name / "run") for name, (path, _) in made.items()]
    report = {"failures": failures[:10], "failed": len(failures), "tried": tried, "refused": refused}
    print(json.dumps({**report, "places": places}))


def use_valid(kind: Kind, path: Path, content: bytes) -> None:
    # Of a lock that is held, what is tried is the refusal.
    with contextlib.suppress(*((RunFolderError,) if kind.name == "lock" else ())):
        kind.load(path)
    path.write_bytes(content)


def wrong_with(message: str) -> str:
    """Say what is wrong with what an error says."""
    if "MemoryError" in message:
        return "took too much memory"
    # A file from a stranger must not control the terminal that shows the error.
    is_line = message.isprintable() and 0 < len(message) <= 2000
    return "" if is_line else "is not one line that can be printed"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
