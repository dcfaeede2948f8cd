"""The faults of `benchmarks/soak.py`: each is done from outside to a training under way.

Left out is a calendar that jumps: it cannot be set for one program, and tests/test_clocks.py shows that none asks it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from night_training import ROLES, Training, patience

from spreeze.runs.checkpoint_format import manifest_path

STOP_S, LONG_STOP_S = 6.0, 30.0  # below and above FLAGS' --hang-s: of one process, and of all
DISK_S = 8.0
MOST_TROUBLES = 3
MOST_LEARNER_FAILURES = 3  # from one checkpoint: what learner_restarts.py promises to survive
Apply = Callable[[Training, random.Random], bool | None]


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    apply: Apply
    """Does it; False where it cannot be done now."""
    share: int = 3
    needs_mount: bool = False
    needs_faulty_env: bool = False


# --- processes ---------------------------------------------------------------------------------------------------


def kill(role: str, training: Training, rng: random.Random) -> bool:
    there = training.by_role().get(role, [])
    if not there or (role == "learner" and not may_lose_learner(training)):
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        rng.choice(there).kill()
    return True


def may_lose_learner(training: Training) -> bool:
    newest = training.manifests()[0].number
    at, failures = training.learner_failures
    training.learner_failures = (newest, 1 if at != newest else failures + 1)
    return training.learner_failures[1] <= MOST_LEARNER_FAILURES


def stop(role: str, training: Training, rng: random.Random) -> bool:
    there = training.by_role().get(role, [])
    return bool(there) and pause([rng.choice(there)], rng.uniform(0.5, STOP_S))


def stop_supervisor(training: Training, rng: random.Random) -> bool:
    return pause([psutil.Process(training.process.pid)], rng.uniform(0.5, LONG_STOP_S))


def stop_all(training: Training, rng: random.Random) -> bool:
    there = training.processes()
    rng.shuffle(there)
    return pause(there, rng.uniform(0.5, LONG_STOP_S))


def pause(processes: list[psutil.Process], seconds: float) -> bool:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    time.sleep(seconds)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    return True


# --- the disk ----------------------------------------------------------------------------------------------------


def full_disk(training: Training, rng: random.Random) -> None:
    ballast, began = training.disk / "ballast", time.monotonic()
    kills_at = began + rng.uniform(0.0, 2 * DISK_S)  # half of the time: faults come together too
    try:
        with ballast.open("ab", buffering=0) as file:
            while (now := time.monotonic()) < began + DISK_S:
                for block in (1 << 16, 1):  # also what is free for a moment, while a file is replaced
                    with contextlib.suppress(OSError):
                        while file.write(bytes(block)):
                            pass
                if now >= kills_at:
                    kill(rng.choice(ROLES), training, rng)
                    kills_at = now + DISK_S
                time.sleep(0.1)
    finally:
        ballast.unlink()


def read_only_disk(training: Training, rng: random.Random) -> None:
    # A mount of the folder upon itself: one without writers, as a disk that fails is turned read-only.
    mount("--bind", training.run_dir, training.run_dir)
    try:
        for _ in patience(DISK_S):
            with contextlib.suppress(subprocess.CalledProcessError):  # somebody is writing through it already
                mount("-o", "remount,ro,bind", training.run_dir)
                break
        time.sleep(DISK_S / 2)
        if rng.random() < 0.5:
            kill(rng.choice(ROLES), training, rng)
        time.sleep(DISK_S / 2)
    finally:
        unmount(training.run_dir)


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Mount a small file system for as long as this lasts; yield whether that is allowed."""
    try:
        mount("-t", "tmpfs", "-o", f"size={size}", "soak", folder)
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        yield True
    finally:
        unmount(folder)


# --- files -------------------------------------------------------------------------------------------------------


def damage(path: Path, rng: random.Random) -> None:
    """Flip a bit of a file, cut it, or delete it."""
    content = path.read_bytes()
    match rng.choice(("flip", "cut", "delete")) if content else "delete":
        case "flip":
            at = rng.randrange(len(content))
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([content[at] ^ 1 << rng.randrange(8)]))
        case "cut":
            os.truncate(path, rng.randrange(len(content)))
        case _:
            path.unlink()


def damage_weights(training: Training, rng: random.Random) -> None:
    with contextlib.suppress(FileNotFoundError, ValueError):  # a newer one has come
        damage(max((training.run_dir / "weights").glob("policy-*")), rng)


def damage_log(training: Training, rng: random.Random) -> bool:
    logs = sorted((training.run_dir / "logs").glob("*.log"))
    if logs:
        damage(rng.choice(logs), rng)
    return bool(logs)


def damage_checkpoint(training: Training, rng: random.Random) -> bool:
    """Damage the newest of two that are whole."""
    newest, *older = training.manifests()
    if newest.number in training.damaged or not older or older[0].number in training.damaged:
        return False
    training.damaged.add(newest.number)
    states = [training.checkpoints / state.name for state in newest.states]
    damage(rng.choice([manifest_path(training.checkpoints, newest.number), *states]), rng)
    return True


def damaged_checkpoint_and_dead_learner(training: Training, rng: random.Random) -> bool:
    return damage_checkpoint(training, rng) and kill("learner", training, rng)


def cut_rows(training: Training, rng: random.Random) -> None:
    """Cut the replay of all checkpoints that are there, when one has just been written; the next may be hit too."""
    training.wait_for_checkpoints(1)
    newest = training.manifests()[0].number
    training.damaged |= set(range(1, newest + 2))
    os.truncate(max((training.checkpoints / "replay").glob("rows-*")), rng.randrange(1000))
    training.wait_for_checkpoints(3)


# --- the end of a session, and resume ----------------------------------------------------------------------------


def end(
    number: signal.Signals, training: Training, rng: random.Random, *, to_group: bool = False, times: int = 1
) -> None:
    del rng
    for _ in range(times):
        (os.killpg if to_group else os.kill)(training.process.pid, number)
        time.sleep(0.3 if times > 1 else 0.0)
    training.end(-9 if number == signal.SIGKILL else 130)
    training.resume()


def kill_everything(training: Training, rng: random.Random) -> None:
    there = training.processes()
    rng.shuffle(there)
    for process in there:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    training.end(-9)
    training.resume()


def loss_of_power(training: Training, rng: random.Random) -> bool:
    """Kill it, and damage what it may have been writing."""
    training.process.kill()
    training.end(-9)
    damage_checkpoint(training, rng)
    for name in ("metrics", "evaluations", "events"):
        with (training.run_dir / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"wall_s": 12.5, "env_st'[: rng.randrange(25)])
    training.resume()
    return True


# --- the environment ---------------------------------------------------------------------------------------------


def environment(fault: str, role: str, training: Training, rng: random.Random) -> bool:
    del rng
    if role not in training.by_role():
        return False
    aside, switch = training.folder / "switch", training.folder / f"switch-{role}"
    aside.write_text(fault)
    aside.rename(switch)
    training.wait(lambda: not switch.exists(), "process that has the fault")
    return True


SAMPLER_FAULTS = ("raises", "exits", "crashes", "hangs", "leaks", "prints", "NaN", "another shape", "forks")
FAULTS = (
    *(Fault(f"kill -9 of the {role}", partial(kill, role)) for role in ROLES),
    *(Fault(f"{role} stopped for some seconds", partial(stop, role)) for role in ROLES),
    Fault("supervisor stopped for up to half a minute", stop_supervisor, share=1),
    Fault("all processes stopped for up to half a minute", stop_all, share=2),
    Fault("disk full", full_disk, needs_mount=True),
    Fault("disk read-only", read_only_disk, needs_mount=True),
    Fault("newest weights damaged or deleted", damage_weights),
    Fault("log cut, damaged or deleted", damage_log),
    Fault("newest checkpoint damaged or deleted", damage_checkpoint, share=2),
    Fault("newest checkpoint damaged, then kill -9 of the learner", damaged_checkpoint_and_dead_learner, share=2),
    Fault("replay of the checkpoints cut", cut_rows, share=1),
    Fault("kill -9 of the supervisor, resume", partial(end, signal.SIGKILL), share=1),
    Fault("kill -9 of everything, resume", kill_everything, share=1),
    Fault("kill -9, half lines and a damaged checkpoint, resume", loss_of_power, share=1),
    Fault("SIGTERM, resume", partial(end, signal.SIGTERM), share=1),
    Fault("SIGHUP, resume", partial(end, signal.SIGHUP), share=1),
    Fault("Ctrl-C, resume", partial(end, signal.SIGINT, to_group=True), share=1),
    Fault("Ctrl-C twice, resume", partial(end, signal.SIGINT, to_group=True, times=2), share=1),
    *(
        Fault(
            f"environment: {fault}, in the sampler", partial(environment, fault, "sampler"), 1, needs_faulty_env=True
        )
        for fault in SAMPLER_FAULTS
    ),
    *(
        Fault(f"environment: {fault}, in the {role}", partial(environment, fault, role), 1, needs_faulty_env=True)
        for role, fault in (
            ("evaluator", "raises"),
            ("evaluator", "NaN"),
            ("evaluator", "hangs"),
            ("viewer", "exits"),
        )
    ),
)


def drawn(faults: list[Fault], task: str, rng: random.Random) -> Iterator[Fault]:
    """Yield faults of a task in a random order in which each has its share."""
    possible = [fault for fault in faults if task.startswith("Faulty/") or not fault.needs_faulty_env]
    while True:
        deck = [fault for fault in possible for _ in range(fault.share)]
        rng.shuffle(deck)
        yield from deck


def night(
    training: Training,
    faults: list[Fault],
    rng: random.Random,
    deadline: float,
    every_s: float,
    kept: Path | None,
) -> None:
    """Do one fault after the other to a training, note how long it took to train again, and end it.

    kept: gets a copy of its folder where a promise was broken. After a few of these it is given up.
    """
    name, next_faults = "start", drawn(faults, training.task, rng)
    while len(training.troubles) < MOST_TROUBLES:
        try:
            training.wait_for_progress()
            if name == "start":
                training.wait_for_checkpoints(2)
            while time.monotonic() < deadline:
                fault = next(next_faults)
                name = fault.name
                if fault.apply(training, rng) is False:
                    continue
                training.times[name].append(round(training.wait_for_progress(), 1))
                training.say(f"{name}: {training.times[name][-1]} s")
                time.sleep(rng.uniform(0.5, 1.5) * every_s)
            name = "the end"
            training.process.send_signal(signal.SIGINT)
            training.end(130)
            return
        except Exception as error:  # a broken promise, or what only that can have led to
            if training.is_closed:
                return
            training.troubles.append(f"{name}: {type(error).__name__}: {error}")
            training.say(training.troubles[-1])
            training.kill()
            if kept is not None:
                shutil.copytree(training.run_dir, kept / f"{training.folder.name}-{len(training.troubles)}")
            if not training.manifests():
                return  # it never came to a checkpoint
            training.resume()
