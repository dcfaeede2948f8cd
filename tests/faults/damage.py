"""Damaged and hostile files for every loader: run as a program, with little memory, it says which loader failed how.

    python damage.py FOLDER SEED COUNT

Each file is made from a valid one: cut, spliced, bits flipped, numbers replaced by absurd ones; and signed again
where a checksum would give it away. What a loader may do is use the file or raise a SpreezeError.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import resource
import shutil
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spreeze.adapt.remember import Memory
from spreeze.channels.weights import _checksum, write_weights
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.errors import SpreezeError
from spreeze.evaluation.best import Best
from spreeze.policy.actor import random_actor
from spreeze.policy.file import load_policy
from spreeze.runs.checkpoint_format import (
    Manifest,
    describe,
    newest_checkpoints,
    read_manifest,
    state_path,
    verify_states,
    write_manifest,
)
from spreeze.runs.journal_reader import RunReader
from spreeze.runs.replay_log import Extent, ReplayLog, read_rows
from spreeze.runs.run_folder import RunFolder, read_config_file, read_run_config
from spreeze.views.dashboard.run_view import RunView
from spreeze.views.plot import group_drawn, read_run

MORE_BYTES = 256 << 20  # that loaders may take, in addition to what is loaded already
WIDTH = 11
ABSURD = (b"-1", b"0", b"1e999", b"NaN", b"null", b'"x"', b"[]", b"{}", b"true", b"99999999999", b"107374182400",
          b"9223372036854775807", b"18446744073709551616", b"1" + b"0" * 400, b"0.5", b"-9e15")  # fmt: skip

Make = Callable[[Path], Path]
"""Makes a valid file in a folder, and returns its path."""
Load = Callable[[Path], Any]
Sign = Callable[[bytes], bytes]


# --- valid files, and who loads them ----------------------------------------------------------------------------


def make_policy(folder: Path) -> Path:
    bounds = {"action_low": np.full(2, -1, np.float32), "action_high": np.full(2, 1, np.float32)}
    encoding = {
        "kind": "dict",
        "parts": {"a": {"kind": "box", "shape": [3]}, "b": {"kind": "discrete", "n": 2, "start": 0}},
    }
    about = {"policy": "gaussian", "observation": json.dumps(encoding), "action_shape": "[2]", "version": "7"}
    write_weights(folder / "policy.safetensors", {**random_actor(5, 2, (8, 8), 0), **bounds}, about)
    return folder / "policy.safetensors"


def use_policy(path: Path) -> None:
    policy = load_policy(path)
    with contextlib.suppress(ValueError):  # an observation of another kind than the file says: the caller's
        policy({"a": np.zeros(3), "b": 1})


def make_manifest(folder: Path) -> Path:
    log = ReplayLog(folder / "replay", WIDTH)
    log.append(0, np.ones((50, WIDTH), np.float32))
    state_path(folder, 1, "all").write_bytes(b"state")
    counters = {"updates": 5, "replay_written": 50, "rows_stored": 50.5}
    manifest = Manifest(1, (describe(state_path(folder, 1, "all")),), log.extents(), WIDTH, counters, {"best": 1.5})
    write_manifest(folder, manifest)
    return folder / "manifest-000001.json"


def use_manifest(path: Path) -> None:
    newest_checkpoints(path.parent)
    manifest = read_manifest(path)
    verify_states(path.parent, manifest)
    for _ in read_rows(path.parent / "replay", manifest.extents, manifest.row_width):
        pass


def make_rows(folder: Path) -> Path:
    make_manifest(folder)
    return folder / "replay" / "rows-000000000000000.f32"


def use_rows(path: Path) -> None:
    use_manifest(path.parent.parent / "manifest-000001.json")


def make_config(folder: Path) -> Path:
    folder_of_run = RunFolder.create(Config("Pendulum-v1").replace(run_dir=str(folder / "run")))
    folder_of_run.write("config.json", Config("Pendulum-v1").replace(env_kwargs={"g": [1, 2]}).flat())
    folder_of_run.close()
    return folder / "run" / "config.json"


def use_config(path: Path) -> None:
    try:
        read_config_file(path)
    except SpreezeError:
        read_run_config(path.parent)
        raise AssertionError("one reader refuses what the other takes") from None
    RunFolder.reopen(path.parent).close()


def make_journal(folder: Path) -> Path:
    evaluated = {"mean_return": -1.5, "std_return": 0.5, "returns": [1.0, 2.0], "lengths": [20, 20], "version": 3}
    measured = {"updates": 5, "sampling_hz": 1e3, "cpu_cores": [50.0], "cpu_by_role": {"sampler": 0.5}}
    noted = {"kind": "choice", "setting": "samplers", "value": 1, "reason": "why", "role": "sampler 0"}
    lines = [{"wall_s": i, "env_steps": 10 * i, **evaluated, **measured, **noted} for i in range(20)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "evaluations.jsonl"


def use_journal(path: Path) -> None:
    for name in ("metrics", "events"):
        shutil.copyfile(path, path.with_name(f"{name}.jsonl"))
    (path.parent / "config.json").write_text(json.dumps(Config("Pendulum-v1").flat()))
    reader = RunReader(path.parent)
    reader.refresh()
    reader.evaluations.series("wall_s", "mean_return")
    assert reader.state in ("starting", "running", "silent")
    _ = reader.failure
    view = RunView(reader, "")
    for name in dir(view):
        if not name.startswith("_"):
            getattr(view, name)
    group_drawn([read_run(path.parent)])


def make_memory(folder: Path) -> Path:
    Memory(folder / "settings.json").keep("key", RunSettings(1, 2, 64, 1))
    return folder / "settings.json"


def use_memory(path: Path) -> None:
    memory = Memory(path)
    memory.recall("key")
    memory.keep("other", RunSettings(1, 2, 64, 1))
    assert memory.warning is None
    assert memory.recall("other") == RunSettings(1, 2, 64, 1)


def make_best(folder: Path) -> Path:
    make_policy(folder)
    (folder / "evaluation.json").write_text(json.dumps({"mean_return": -5.0, "version": 7}))
    return folder / "evaluation.json"


def use_best(path: Path) -> None:
    assert Best(path.parent).mean_return <= sys.float_info.max


# --- checksums that fit ------------------------------------------------------------------------------------------


def sign_manifest(content: bytes) -> bytes:
    body = content.partition(b"\n")[2]
    return b"%08x\n" % zlib.crc32(body) + body


def sign_policy(content: bytes) -> bytes:
    """Give a header that was changed its true length, and the file a checksum that fits where it can have one."""
    end = content.rfind(b"}}") + 2 if b"}}" in content else len(content)
    end += len(content[end:]) - len(content[end:].lstrip(b" "))
    header, data = content[8:end], content[end:]
    signed = len(header).to_bytes(8, "little") + header + data
    try:
        from safetensors.numpy import load

        metadata = json.loads(header)["__metadata__"]
        metadata.pop("checksum")
        fitting = _checksum(load(signed), metadata).encode()
    except Exception:
        return signed
    return re.sub(rb'"checksum":"[0-9a-f]{8}"', b'"checksum":"' + fitting + b'"', signed)


def unsigned(content: bytes) -> bytes:
    return content


KINDS: tuple[tuple[str, Make, Load, Sign], ...] = (
    ("policy", make_policy, use_policy, sign_policy),
    ("manifest", make_manifest, use_manifest, sign_manifest),
    ("rows", make_rows, use_rows, unsigned),
    ("config", make_config, use_config, unsigned),
    ("journal", make_journal, use_journal, unsigned),
    ("memory", make_memory, use_memory, unsigned),
    ("best", make_best, use_best, unsigned),
)


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


# --- states of a learner, which need torch -----------------------------------------------------------------------


def learner_kind(folder: Path) -> tuple[str, Make, Load, Sign]:
    import torch

    from spreeze.algorithms.sac import Sac, SacSettings
    from spreeze.algorithms.spec import AlgorithmSpec
    from spreeze.channels.transitions import RowLayout
    from spreeze.learning.checkpoint_writer import CheckpointWriter, Saved
    from spreeze.learning.normalisation import Normaliser
    from spreeze.learning.replay import Replay
    from spreeze.learning.restore import restore

    del folder
    layout, cpu = RowLayout(3, 2), torch.device("cpu")
    algorithm = Sac(AlgorithmSpec(3, 2, cpu, SacSettings(), hidden=(8,)))
    normaliser = Normaliser(3, cpu)

    def make(folder: Path) -> Path:
        replay = Replay(layout, 100, cpu)
        replay.add(np.ones((150, layout.width), np.float32))
        saver = CheckpointWriter(folder, algorithm, replay, normaliser)
        saver.begin(1, 0, {})
        saved = saver.finish(lambda: None)
        assert isinstance(saved, Saved)
        write_manifest(folder, Manifest(1, (saved.state,), saved.extents, saved.row_width, saved.counters))
        return state_path(folder, 1, "all")

    def load(path: Path) -> None:
        (manifest,) = newest_checkpoints(path.parent)
        rng = random.Random(path.stat().st_size)
        for changed in (manifest.counters, {}, {"replay_written": rng.choice((0, 10, 2**52, -1))}):
            extents = tuple(
                Extent(first + rng.choice((0, 0, 2**40)), rows, crc) for first, rows, crc in manifest.extents
            )
            for some in (manifest.extents, extents):
                other = Manifest(1, manifest.states, some, manifest.row_width, changed)
                try:
                    restore(path.parent, other, algorithm, Replay(layout, 100, cpu), normaliser)
                except SpreezeError as error:
                    if "memory" in str(error).lower():
                        raise MemoryError from error

    return "state", make, load, sign_policy


def main(folder: Path, seed: int, count: int) -> None:
    kinds = (*KINDS, learner_kind(folder))
    made: dict[str, tuple[Path, bytes]] = {}
    for name, make, load, _ in kinds:
        (folder / name).mkdir()
        path = make(folder / name)
        made[name] = path, path.read_bytes()
        load(path)
    # From here on: what would take much more than the files themselves fails.
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE_BYTES, resource.RLIM_INFINITY))
    for name, _, load, _ in kinds:
        load(made[name][0])  # what is valid is taken
    failures: list[str] = []
    refused: dict[str, int] = dict.fromkeys(made, 0)
    for number in range(count):
        name, make, load, sign = kinds[number % len(kinds)]
        path, content = made[name]
        rng = random.Random(f"{seed} {number}")
        changed = damaged(content, rng)
        path.write_bytes(sign(changed) if rng.random() < 0.5 else changed)
        try:
            load(path)
        except SpreezeError as error:
            refused[name] += 1
            if "MemoryError" in str(error):
                failures.append(f"{name} {number}: {str(error)[:300]}")
            if "\n" in str(error) or len(str(error)) > 2000 or not str(error):
                failures.append(f"{name} {number}: {str(error)[:300]!r} is not one line")
        except BaseException:
            kept = folder / f"{name}-{number}"
            shutil.copyfile(path, kept)
            failures.append(f"{name} {number}, {kept}:\n{traceback.format_exc()[-1500:]}")
        path.write_bytes(content)  # other kinds lie in the same folder
    print(json.dumps({"failures": failures[:10], "failed": len(failures), "refused": refused}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
