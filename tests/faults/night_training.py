"""One training of `benchmarks/soak.py`: started, stopped, resumed, and looked at for what it has lost or left behind.

In: a task, a folder, faults from outside. Out: a `Trouble` for each promise of docs/reliability.md that was broken.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import threading
import time
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from session import SPREEZE, children_by_role
from spreeze.runs.checkpoint_format import Manifest, newest_checkpoints, verify_states
from spreeze.runs.replay_log import read_rows

Json = dict[str, Any]
Seen = list[tuple[float, int]]  # figures by the age of the run in seconds
ROLES = ("learner", "sampler", "evaluator", "viewer", "dashboard")
MARK = "SPREEZE_SOAK"
REPLAY_ROWS = 100_000
FOR_EACH_CHILD = 3  # descriptors of a supervisor, which has more samplers at some times than at others
FLAGS = f"--replay-rows {REPLAY_ROWS} --checkpoint-interval-s 10 --hang-s 20 --max-sampler-mb 400 --no-video".split()
TICK_S = 0.2
LATE_S = 3.0  # that an event may come after the line of metrics that it explains
YOUNG_S = 20.0  # a process that has just been started has not its size yet
# Guards, not expectations: this many times what an idle machine takes.
PROGRESS_GUARD_S, END_GUARD_S, LEFT_GUARD_S = 180.0, 90.0, 20.0
KEPT = (
    r"config\.json|summary\.json|(metrics|evaluations|events)\.jsonl"
    r"|weights/policy-\d+\.safetensors|best/(policy\.safetensors|evaluation\.json)|logs/[\w-]+\.log"
    r"|checkpoint/(manifest-\d+\.json|state-\w+-\d+\.safetensors|replay/rows-\d+\.f32)"
    r"|tensorboard/events\.\S+"
)
# What only a run that was killed may leave: its lock, and files that it was writing aside.
KILLED = KEPT + r"|lock|(\w+/)*\.[\w.-]+\.\d+|checkpoint/\.state-\S+"


class Trouble(Exception):
    """A promise was broken; the message says which."""


class Journal:
    """A journal as far as it was read: none of that may change or vanish."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, list[Json]()
        self._bytes = self._checksum = 0

    def read(self) -> list[Json]:
        """Take in the lines that are new and whole."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._bytes)
            content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            new = [json.loads(line) for line in content.splitlines()]
            self._bytes, self._checksum = self._bytes + len(content), zlib.crc32(content, self._checksum)
            self.lines += new
            return new
        return []

    def check(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        if zlib.crc32(content[: self._bytes]) != self._checksum:
            raise Trouble(f"{self.path.name} has lost or changed lines that it had")


def descriptors_of(pid: int) -> int:
    """Count descriptors but for those of rings: a session has as many rings as its environment may need samplers."""
    count = 0
    with contextlib.suppress(OSError):  # it ended while we looked
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += not str(fd.readlink()).startswith("/memfd:spreeze-ring")
    return count


def is_after(line: Json, counters: Json | None) -> bool:
    if counters is None:
        return False
    return bool(line["updates"] >= counters["updates"] and line["env_steps"] >= counters["rows_stored"])


def patience(seconds: float) -> Iterator[None]:
    """Yield several times a second for so long, as far as it was seen: the machine may sleep."""
    for _ in range(round(seconds / TICK_S)):
        yield
        time.sleep(TICK_S)


class Training:
    """A training that faults are done to."""

    def __init__(self, task: str, folder: Path, train_args: list[str]) -> None:
        """folder: gets what the training prints, and switches of its environment; its run folder goes to `disk/`."""
        self.task, self.folder, self.disk, self.run_dir = task, folder, folder / "disk", folder / "disk" / "run"
        self.checkpoints = self.run_dir / "checkpoint"
        self.troubles = list[str]()
        self.times: dict[str, list[float]] = defaultdict(list)
        """Seconds after each fault until it trained again, by the name of the fault."""
        self.resident: dict[str, Seen] = defaultdict(list)
        self.descriptors: dict[str, Seen] = defaultdict(list)
        self.damaged = set[int]()
        """Numbers of checkpoints that a fault has made unusable."""
        self.learner_failures = (0, 0)
        """The newest checkpoint when the learner was last killed, and how often it was since that."""
        self._log, self._mark, self._began = folder / "log.txt", uuid.uuid4().hex, time.monotonic()
        self._journals = {
            name: Journal(self.run_dir / f"{name}.jsonl") for name in ("metrics", "evaluations", "events")
        }
        self._counted: dict[int, Json] = {}
        self._checked, self._rows_to_have = 1, 0
        self._starting, self.is_closed = threading.Lock(), False
        kwargs = ["--env-kwargs", json.dumps({"folder": str(folder)})] if task.startswith("Faulty/") else []
        self._start(
            "train", task, "--run-dir", str(self.run_dir), *FLAGS, "--env-module", "night_env", *kwargs, *train_args
        )

    def _start(self, *words: str) -> None:
        path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        environment = {**os.environ, **cache, "PYTHONPATH": path, MARK: self._mark}
        with self._starting, self._log.open("ab") as log:
            if self.is_closed:
                raise Trouble("it is over")
            # A session of its own: a signal to its group, as a terminal sends it, reaches nobody else.
            self.process = subprocess.Popen(
                [*SPREEZE, *words], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    # --- what it does ------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.task}: {what}", flush=True)

    def by_role(self) -> dict[str, list[psutil.Process]]:
        with contextlib.suppress(psutil.Error):
            return children_by_role(self.process.pid, ROLES)
        return {}

    def processes(self) -> list[psutil.Process]:
        """Return all that came of it and are alive."""
        # Of a process that may not be looked at, or ends meanwhile, environ is None.
        found = psutil.process_iter(["environ"])
        return [process for process in found if (process.info["environ"] or {}).get(MARK) == self._mark]

    def look(self) -> None:
        """Note what its processes take."""
        age = time.monotonic() - self._began
        with contextlib.suppress(psutil.Error):  # it ended while we looked
            there = {"supervisor": [psutil.Process(self.process.pid)], **self.by_role()}
            for role, processes in there.items():
                others = sum(map(len, there.values())) - 1 if role == "supervisor" else 0
                for process in processes:
                    if time.time() - process.create_time() > YOUNG_S:
                        self.resident[role].append((age, process.memory_info().rss))
                        self.descriptors[role].append((age, descriptors_of(process.pid) - FOR_EACH_CHILD * others))

    def manifests(self) -> list[Manifest]:
        """Return the checkpoints that are there, newest first."""
        found = newest_checkpoints(self.checkpoints)
        self._counted |= {manifest.number: dict(manifest.counters) for manifest in found}
        return found

    def wait(self, until: Any, what: str, guard_s: float = PROGRESS_GUARD_S) -> None:
        for _ in patience(guard_s):
            if until():
                return
            if self.process.poll() is not None:
                code = self.process.returncode
                raise Trouble(f"it ended by itself, waiting for {what}: exit code {code}, {self._last_words()}")
            self.manifests()
        raise Trouble(f"no {what} within {guard_s:.0f} s: {self._last_words()}")

    def wait_for_progress(self) -> float:
        """Wait until steps and updates rise again from one second to the next; return the seconds that took."""
        began, metrics = time.monotonic(), self._journals["metrics"]
        metrics.read()
        first = len(metrics.lines) + 1  # the next line may be of the time before the fault

        def has_progress() -> bool:
            metrics.read()
            pairs = zip(metrics.lines[first:], metrics.lines[first + 1 :], strict=False)
            return any(all(b[name] > a[name] for name in ("env_steps", "updates")) for a, b in pairs)

        self.wait(has_progress, "progress")
        if (rows := metrics.lines[-1]["replay_rows"]) < self._rows_to_have:
            raise Trouble(f"its replay has {rows:,} rows of the {self._rows_to_have:,} of its checkpoint")
        return time.monotonic() - began

    def wait_for_checkpoints(self, count: int) -> None:
        newest = max((manifest.number for manifest in self.manifests()), default=0)
        self.wait(lambda: self.manifests()[:1] and self.manifests()[0].number >= newest + count, "newer checkpoint")

    # --- stopped and resumed -----------------------------------------------------------------------------------

    def end(self, expected: int) -> None:
        """Wait for its end with this exit code, and check what it has left."""
        if not any(self.process.poll() is not None for _ in patience(END_GUARD_S)):
            raise Trouble(f"it has not ended within {END_GUARD_S:.0f} s: {self._last_words()}")
        code = self.process.returncode
        if all(self.processes() for _ in patience(LEFT_GUARD_S)):
            left = [" ".join(process.cmdline()) for process in self.processes()]
            raise Trouble(f"left behind: {', '.join(left)}")
        if code != expected:
            raise Trouble(f"exit code {code}, not {expected}: {self._last_words()}")
        self._check(was_killed=code < 0)

    def resume(self) -> None:
        """Continue, and check that it does from the newest checkpoint that is whole."""
        counters = next(manifest.counters for manifest in self.manifests() if manifest.number not in self.damaged)
        self._rows_to_have = min(int(counters["replay_written"]), REPLAY_ROWS)
        self._start("resume", str(self.run_dir))

    def _check(self, was_killed: bool) -> None:
        for journal in self._journals.values():
            journal.read()
            journal.check()
        form = KILLED if was_killed else KEPT
        files = [path.relative_to(self.run_dir).as_posix() for path in self.run_dir.rglob("*") if path.is_file()]
        if odd := [name for name in files if not re.fullmatch(form, name)]:
            raise Trouble(f"left behind: {', '.join(odd)}")
        whole = [manifest for manifest in self.manifests() if manifest.number not in self.damaged]
        if not whole:
            raise Trouble("no checkpoint is left")
        self._check_checkpoint(whole[0])
        self._check_counters()
        events = self._journals["events"].lines
        if not was_killed and not any("no time for a checkpoint" in line["reason"] for line in events[-3:]):
            summary, counters = json.loads((self.run_dir / "summary.json").read_text()), whole[0].counters
            if (summary["updates"], summary["env_steps"]) != (counters["updates"], counters["rows_stored"]):
                raise Trouble(f"its last checkpoint is not of its end: {summary} {dict(counters)}")

    def _check_checkpoint(self, manifest: Manifest) -> None:
        verify_states(self.checkpoints, manifest)
        end = int(manifest.counters["replay_written"])
        first = max(0, end - REPLAY_ROWS)
        rows = 0
        for number, block in read_rows(self.checkpoints / "replay", manifest.extents, manifest.row_width):
            rows += max(0, number + len(block) - max(first, number))
        if rows != end - first:
            raise Trouble(f"checkpoint {manifest.number} has {rows:,} rows of {end - first:,}")

    def _check_counters(self) -> None:
        """Counters only go back to a checkpoint, and that is the newest that is whole."""
        events, newest, restarts = self._journals["events"].lines, 0, []
        for event in events:
            made = re.match(r"checkpoint (\d+) after", event["reason"]) if event["kind"] == "checkpoint" else None
            used = re.search(r"from checkpoint (\d+) ", event["reason"])
            if made is not None and int(made[1]) not in self.damaged:
                newest = int(made[1])
            elif used is not None:
                restarts.append((event["wall_s"], int(used[1])))
                if int(used[1]) < newest:
                    raise Trouble(f"it went back to checkpoint {used[1]} and not to {newest}")
        lines = self._journals["metrics"].lines
        begin, self._checked = self._checked, len(lines)
        for before, line in itertools.pairwise(lines[begin - 1 :]):
            if line["wall_s"] <= before["wall_s"]:
                raise Trouble(f"metrics go from {before['wall_s']} s to {line['wall_s']} s")
            if line["updates"] >= before["updates"] and line["env_steps"] >= before["env_steps"]:
                continue
            # They go back when the learner has loaded what it was restarted from: the last, or the one before that.
            used = [number for at, number in restarts if at <= line["wall_s"] + LATE_S][-2:]
            if not any(is_after(line, self._counted.get(number)) for number in used):
                raise Trouble(f"counters went back behind those of checkpoints {used} at {line['wall_s']} s")

    def _last_words(self) -> str:
        return " / ".join(self._log.read_text(errors="replace").splitlines()[-5:])[-1000:]

    def close(self) -> None:
        """End it for good, whatever another thread does with it."""
        with self._starting:
            self.is_closed = True
        self.kill()

    def kill(self) -> None:
        """End everything at once."""
        while there := self.processes():
            for process in there:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.05)
        self.process.wait()

    def figures(self) -> Json:
        last, events = self._journals["metrics"].lines[-1:], self._journals["events"].lines
        return {
            "task": self.task,
            **{name: line[name] for line in last for name in ("updates", "env_steps")},
            "evaluations": len(self._journals["evaluations"].lines),
            "sessions": 1 + sum(event["kind"] == "resume" for event in events),
            "folder_bytes": sum(path.stat().st_size for path in self.run_dir.rglob("*") if path.is_file()),
        }
