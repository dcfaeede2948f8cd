"""A training on hosts: `spreeze train` on the head, and what it says of its machines."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numbered_env
import psutil
from hosts import Host
from numbered_rows import Stored, steps_made, stored_rows

# Guards against a hang, not expectations.
START_S, END_S, GONE_S = 120.0, 90.0, 30.0
HERE = str(Path(__file__).parent)
FLAGS: Mapping[str, Any] = {
    "cluster": "auto",
    "samplers": 0,
    "env_module": "numbered_env",
    "envs_per_sampler": 4,
    "device": "cpu",
    "learner_threads": 1,
    "split": "no",
    "env_threads": "no",
    "hidden": (16, 16),
    "batch_size": 32,
    "warmup_steps": 200,
    "replay_rows": 4_000_000,  # all rows of a run: what was overwritten could not be counted
    "checkpoint_interval_s": 2,
    "eval_episodes": 1,
    "eval_interval_s": 30,
}
ONLY = ("--no-adapt", "--no-dashboard", "--no-video", "--no-last-evaluation", "--quiet")


Train = Callable[..., "Training"]
"""From a head, and words or flags of the command."""


class Training:
    """A run of the numbered task."""

    def __init__(self, head: Host, folder: Path, *words: str, **flags: Any) -> None:
        """words: the beginning of the command, if it is not `train` with the numbered task."""
        self.head, self.run_dir, self.counts = head, folder / "run", folder / "counts"
        self.kept_up: Sequence[Host] = ()
        """Hosts on which Ray is started again where it ends, while something is waited for."""
        self.counts.mkdir(exist_ok=True)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (for as long as the run)
        arguments = {"run_dir": self.run_dir, **FLAGS, "env_kwargs": self.env_kwargs(), **flags}
        command = words or ("train", numbered_env.ENV_ID, *flags_of(arguments), *ONLY)
        self._command = command[0]
        self.process = head.start(
            sys.executable,
            *("-m", "spreeze", *command),
            environment={"PYTHONPATH": f"{HERE}:{Path.cwd() / 'src'}"},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def env_kwargs(self) -> dict[str, Any]:
        return {"count_dir": str(self.counts), "step_s": 0.0005}

    # --- what it says ---

    @property
    def said(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def journal(self, name: str) -> list[dict[str, Any]]:
        """Return the whole lines of a journal."""
        path = self.run_dir / f"{name}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.run_dir / "summary.json").read_text())
        return content

    def machine(self, name: str) -> dict[str, Any]:
        """Return what the newest line of metrics says of a machine; nothing if it does not know it."""
        lines = self.journal("metrics")[-1:]
        found = [machine for line in lines for machine in line["cluster"]["machines"] if machine["name"] == name]
        return dict(found[0]) if found else {}

    def events(self, text: str) -> list[str]:
        """Return what it has recorded with these words."""
        return [event["reason"] for event in self.journal("events") if text in event["reason"]]

    def arrived(self, name: str) -> int:
        return int(self.machine(name).get("rows_arrived", 0))

    # --- waiting for it ---

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, f"the run ended before there was {what}:\n{self.said}"
            assert time.monotonic() < deadline, f"after {timeout_s:.0f} s there is still not: {what}\n{self.report()}"
            for host in self.kept_up:
                host.revive_ray()
            time.sleep(0.02)  # between two looks

    def wait_for_rows(self, name: str, more: int = 500) -> None:
        """Wait until rows of a machine have arrived that were sampled after now."""
        enough = self.arrived(name) + more
        self.wait_until(lambda: self.arrived(name) >= enough, f"{more} more rows of {name}")

    def wait_for_event(self, text: str, count: int = 1) -> None:
        self.wait_until(lambda: len(self.events(text)) >= count, f"an event '{text}'")

    def report(self) -> str:
        """Describe what a failed test has to show."""
        events = [f"{event['wall_s']:.1f} {event['reason']}" for event in self.journal("events")[-20:]]
        return "\n".join([self.said, *events, str(self.journal("metrics")[-1:])])

    # --- its end ---

    def supervisor(self) -> psutil.Process:
        found = self.head.processes(f"-m spreeze {self._command}")
        return next(process for process in found if any(str(self.run_dir) in word for word in process.cmdline()))

    def stop(self) -> None:
        """End it as Ctrl-C does, and wait."""
        self.supervisor().terminate()
        self.finish()

    def finish(self) -> int:
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {END_S:.0f} s:\n{self.report()}") from None

    def end(self) -> None:
        """End what a failed test has left running, so that the next one has the machines."""
        if self.process.poll() is None:
            self.supervisor().kill()
            self.finish()
        self._output.close()

    def wait_until_gone(self, hosts: Sequence[Host]) -> None:
        """Wait until nothing of Spreeze runs on these hosts."""
        deadline = time.monotonic() + GONE_S
        while left := [process for host in hosts for process in host.processes("spreeze") if process.is_running()]:
            if time.monotonic() > deadline:
                raise AssertionError(f"left behind: {[process.cmdline() for process in left]}")
            time.sleep(0.05)  # for them

    def check_rows(self) -> Stored:
        """Check that each row has come once, and that all are accounted for; return them."""
        stored, cluster = stored_rows(self.run_dir), self.summary["cluster"]
        assert stored.troubles() == []
        assert stored.rows == self.summary["env_steps"] == cluster["rows_arrived"]
        assert stored.rows + cluster["rows_lost"] == cluster["rows_sampled"]
        made = steps_made(self.counts)
        assert sum(made.values()) >= cluster["rows_sampled"]
        assert all(len(steps) <= made[source] for source, steps in stored.steps.items())
        return stored


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the flags of a config; those named as None are left out."""
    words: list[str] = []
    for name, value in settings.items():
        if value is not None:
            words += ["--" + name.replace("_", "-")]
            words += [json.dumps(value)] if isinstance(value, dict) else []
            words += (
                [] if isinstance(value, dict) else [str(v) for v in (value if isinstance(value, tuple) else (value,))]
            )
    return words
