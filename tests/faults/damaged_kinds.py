"""The kinds of file that a run folder holds: how to make a valid one, and what a run and its readers do with it.

Each is loaded as by everybody who reads it: a resumed run, pages, plots, policies. A loader may use what a damaged
file holds, or raise a SpreezeError.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import random
import re
import shutil
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spreeze.adapt.remember import Memory
from spreeze.channels.weights import WeightsReader, _checksum, kept_weights, write_weights
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.errors import SpreezeError
from spreeze.evaluation.best import Best
from spreeze.host import logs
from spreeze.policy.actor import random_actor
from spreeze.policy.file import load_policy
from spreeze.runs import serial_state
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
from spreeze.runs.journal_writer import JournalWriter, thin
from spreeze.runs.progress import SAMPLER_SUMS, Progress
from spreeze.runs.replay_log import Extent, ReplayLog, read_rows
from spreeze.runs.run_folder import RunFolder, read_config_file, read_run_config
from spreeze.runs.run_lock import RunLock, require_unlocked
from spreeze.supervision.resume_point import newest_intact
from spreeze.views.dashboard.run_view import RunView
from spreeze.views.dashboard.runs import Runs
from spreeze.views.plot import group_drawn, read_run
from spreeze.views.tensorboard import EventFile

OLD_RUN = Path(__file__).parents[1] / "fixtures" / "runs-0.1" / "sac-pendulum"
WIDTH = 11
logs.MAX_LOG_BYTES, logs.KEPT_BYTES = 3000, 500  # so that logs are cut

Make = Callable[[Path], Path]
"""Makes a valid file in a folder, and returns its path."""
Load = Callable[[Path], Any]
Sign = Callable[[bytes], bytes]


class Kind(NamedTuple):
    """A kind of file."""

    name: str
    make: Make
    load: Load
    sign: Sign
    """Makes a checksum fit that would give damage away."""


# --- checksums that fit ------------------------------------------------------------------------------------------


def unsigned(content: bytes) -> bytes:
    return content


def sign_manifest(content: bytes) -> bytes:
    body = content.partition(b"\n")[2]
    return b"%08x\n" % zlib.crc32(body) + body


def sign_weights(content: bytes) -> bytes:
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


# --- policies ----------------------------------------------------------------------------------------------------


def write_policy(path: Path, version: int = 7) -> Path:
    bounds = {"action_low": np.full(2, -1, np.float32), "action_high": np.full(2, 1, np.float32)}
    encoding = {
        "kind": "dict",
        "parts": {"a": {"kind": "box", "shape": [3]}, "b": {"kind": "discrete", "n": 2, "start": 0}},
    }
    about = {"policy": "gaussian", "observation": json.dumps(encoding), "action_shape": "[2]"}
    about |= {"version": str(version), "published_at": "12.5"}
    write_weights(path, {**random_actor(5, 2, (8, 8), 0), **bounds}, about)
    return path


def make_policy(folder: Path) -> Path:
    return write_policy(folder / "run" / "best" / "policy.safetensors")


def use_policy(path: Path) -> None:
    policy = load_policy(path.parents[1])
    with contextlib.suppress(ValueError):  # an observation of another kind than the file says: the caller's
        policy({"a": np.zeros(3), "b": 1})


def make_version(folder: Path) -> Path:
    write_policy(folder / "run" / "weights" / "policy-00000007.safetensors")
    return write_policy(folder / "run" / "weights" / "policy-00000008.safetensors", 8)


def use_version(path: Path) -> None:
    """Read it as a sampler does that has used the version before, and as who loads the run's policy."""
    number = np.array([7])
    reader = WeightsReader(path.parent, number)
    before = reader.newest()
    assert before is not None
    number[0] = 8
    found = reader.newest()
    for name, tensor in {} if found is None else found.tensors.items():
        assert tensor.shape == before.tensors[name].shape
        assert np.isfinite(tensor).all()
    load_policy(path.parents[1])


def make_kept_version(folder: Path) -> Path:
    return write_policy(kept_weights(folder / "run") / "policy-00000007.safetensors")


def use_kept_version(path: Path) -> None:
    load_policy(path, run=path.parents[2])


# --- checkpoints -------------------------------------------------------------------------------------------------


def make_manifest(folder: Path) -> Path:
    folder = folder / "run" / "checkpoint"
    log = ReplayLog(folder / "replay", WIDTH)
    log.append(0, np.ones((50, WIDTH), np.float32))
    state_path(folder, 1, "all").write_bytes(b"state")
    names = ("rows_consumed", "rows_stored", "rows_rejected", "update_frames", "exchanged_bytes", "ratio_wait_s")
    counters = dict.fromkeys((*names, "ingest_s", "publish_s", "report_s", "exchange_s"), 5)
    counters |= {"updates": 5, "replay_written": 50, "rows_stored": 50.5}
    sums = dict.fromkeys(SAMPLER_SUMS, 1.5)
    progress = Progress({"env": "Pendulum-v1"}, RunSettings(1, 2, 64, 1), 12.5, best_return=-5.0, samplers=sums)
    states = (describe(state_path(folder, 1, "all")),)
    write_manifest(folder, Manifest(1, states, log.extents(), WIDTH, counters, progress.as_json()))
    return folder / "manifest-000001.json"


def use_manifest(path: Path) -> None:
    try:
        newest_intact(path.parents[1])
    finally:  # it does not say what is wrong with a manifest that cannot be read
        manifest = read_manifest(path)
        verify_states(path.parent, manifest)
        for _ in read_rows(path.parent / "replay", manifest.extents, manifest.row_width):
            pass


def make_rows(folder: Path) -> Path:
    return make_manifest(folder).parent / "replay" / "rows-000000000000000.f32"


def use_rows(path: Path) -> None:
    use_manifest(path.parents[1] / "manifest-000001.json")


def make_serial_state(folder: Path) -> Path:
    folder = folder / "run" / "checkpoint"
    sampler = {"actions": np.ones((4, 2), np.float32), "counts": np.arange(3)}
    serial_state.write(folder, 1, serial_state.SerialState(1, 7, 3, 6, 500, 2, (sampler, sampler)))
    return state_path(folder, 1, serial_state.PART)


def use_serial_state(path: Path) -> None:
    found = serial_state.read(path.parent, Manifest(1, (describe(path),), (), 0, {}))
    assert found is not None


# --- what a run says of itself -----------------------------------------------------------------------------------


def make_config(folder: Path) -> Path:
    config = of_old_run("config.json")(folder)
    config.write_text(json.dumps(Config("Pendulum-v1").replace(env_kwargs={"g": [1, 2]}).flat()))
    return config


def use_config(path: Path) -> None:
    try:
        read_config_file(path)
    except SpreezeError:
        read_run_config(path.parent)
        raise AssertionError("one reader refuses what the other takes") from None
    RunFolder.reopen(path.parent).close()
    look_at(path.parent)


def of_old_run(name: str, lines: int = 1) -> Make:
    """Return what makes a file of a run of version 0.1, in such a run; a journal has so many times its lines."""

    def make(folder: Path) -> Path:
        path = folder / "run" / name
        shutil.copytree(OLD_RUN, folder / "run")
        path.write_bytes(path.read_bytes() * lines)
        return path

    return make


def look_at(run: Path) -> None:
    """Look at a run folder as pages, plots and `spreeze resume` do."""
    reader = RunReader(run)
    reader.refresh()
    reader.evaluations.series("wall_s", "mean_return")
    assert reader.state in ("starting", "running", "silent", "finished", "failed")
    _ = reader.failure
    view = RunView(reader, "")
    for name in dir(view):
        if not name.startswith("_"):
            getattr(view, name)
    assert Runs([run]).entries
    group_drawn([read_run(run)])


def use_journal(path: Path) -> None:
    try:
        look_at(path.parent)
    finally:  # who draws it may refuse it, who resumes the run may not
        newest_intact(path.parent)
        folder = RunFolder.reopen(path.parent)
        folder.repair()
        if path.stat().st_size > 1:  # a run thins journals of many MB
            thin(path)
        journal = JournalWriter(path, 1000)
        journal.add(b'{"wall_s": 1}\n')
        journal.write()
        folder.close()
        assert path.read_bytes().splitlines()[-1] == b'{"wall_s": 1}'


def use_object(path: Path) -> None:
    run = path.parent if path.parent.name == "run" else path.parents[1]
    look_at(run)
    newest_intact(run)
    assert Best(run / "best").mean_return <= sys.float_info.max


def make_memory(folder: Path) -> Path:
    Memory(folder / "settings.json").keep("key", RunSettings(1, 2, 64, 1))
    return folder / "settings.json"


def use_memory(path: Path) -> None:
    memory = Memory(path)
    memory.recall("key")
    memory.keep("other", RunSettings(1, 2, 64, 1))
    assert memory.warning is None
    assert memory.recall("other") == RunSettings(1, 2, 64, 1)


def make_lock(folder: Path) -> Path:
    (folder / "run").mkdir()
    (folder / "run" / "lock").write_bytes(b"1234 a-machine\n")
    return folder / "run" / "lock"


def use_lock(path: Path) -> None:
    """Take a lock that was left behind, and be refused by one that is held."""
    content = path.read_bytes()
    require_unlocked(path.parent)
    RunLock.take(path.parent).release()
    path.write_bytes(content)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with contextlib.suppress(SpreezeError):
            RunLock.take(path.parent)
            raise AssertionError("it was taken from its owner")
        require_unlocked(path.parent)


# --- files that nobody parses: what is left is that a run continues with them ------------------------------------


def make_log(folder: Path) -> Path:
    path = make_config(folder).parent / "logs" / "learner.log"
    path.parent.mkdir()
    path.write_text("".join(f"line {number} of the log\n" for number in range(300)))
    return path


def make_events_file(folder: Path) -> Path:
    run = make_config(folder).parent
    events = EventFile.in_folder(run / "tensorboard")
    for step in range(20):
        events.write({"loss": 0.5, "return": -3.5}, step, time.time())
    events.close()
    return next((run / "tensorboard").iterdir())


def make_video(folder: Path) -> Path:
    path = make_config(folder).parent / "videos" / "best.mp4"
    path.parent.mkdir()
    path.write_bytes(b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isomiso2avc1mp41" + bytes(range(256)) * 8)
    return path


def use_unparsed(path: Path) -> None:
    run = path.parents[1]
    folder = RunFolder.reopen(run)
    folder.repair()
    logs.trim_logs(run / "logs")
    if path.parent.name == "tensorboard":
        events = EventFile(path)
        events.write({"loss": 0.5}, 21, 12.5)
        events.close()
    look_at(run)
    folder.close()


KINDS = (
    Kind("config", make_config, use_config, unsigned),
    Kind("metrics", of_old_run("metrics.jsonl", 20), use_journal, unsigned),
    Kind("evaluations", of_old_run("evaluations.jsonl", 20), use_journal, unsigned),
    Kind("events", of_old_run("events.jsonl", 3), use_journal, unsigned),
    Kind("summary", of_old_run("summary.json"), use_object, unsigned),
    Kind("lock", make_lock, use_lock, unsigned),
    Kind("weights", make_version, use_version, sign_weights),
    Kind("weights kept for videos", make_kept_version, use_kept_version, sign_weights),
    Kind("best policy", make_policy, use_policy, sign_weights),
    Kind("best evaluation", of_old_run("best/evaluation.json"), use_object, unsigned),
    Kind("manifest", make_manifest, use_manifest, sign_manifest),
    Kind("serial state", make_serial_state, use_serial_state, sign_weights),
    Kind("rows", make_rows, use_rows, unsigned),
    Kind("log", make_log, use_unparsed, unsigned),
    Kind("tensorboard", make_events_file, use_unparsed, unsigned),
    Kind("video", make_video, use_unparsed, unsigned),
    Kind("remembered settings", make_memory, use_memory, unsigned),
)


# --- states of a learner, which need torch -----------------------------------------------------------------------


def learner_kind() -> Kind:
    import torch

    from spreeze.algorithms.sac import Sac, SacSettings
    from spreeze.algorithms.spec import AlgorithmSpec
    from spreeze.channels.transitions import RowLayout
    from spreeze.learning.checkpoint_writer import CheckpointWriter, Saved
    from spreeze.learning.normalisation import Normaliser
    from spreeze.learning.replay import Replay
    from spreeze.learning.restore import restore

    layout, cpu = RowLayout(3, 2), torch.device("cpu")
    algorithm = Sac(AlgorithmSpec(3, 2, device=cpu, settings=SacSettings(), hidden=(8,)))
    normaliser = Normaliser(3, cpu)

    def make(folder: Path) -> Path:
        folder = folder / "run" / "checkpoint"
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

    return Kind("state", make, load, sign_weights)
