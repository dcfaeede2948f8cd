"""Examines an environment in a process of its own: it may exit, crash, hang, or leave threads behind.

In: a config. Out: a `Report`. Run as a program, this module is that process, and writes the report to a file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.environments.backend import check_exists
from spreeze.environments.examine import Examination, examine, in_words
from spreeze.environments.findings import WAITS, Finding, place_in, place_of
from spreeze.environments.gymnasium_checker import find_complaints
from spreeze.environments.rehearsal import Duration
from spreeze.errors import EnvironmentSetupError
from spreeze.host.alarm import TookTooLong, raising_after
from spreeze.host.json_text import exact_json_text, json_text
from spreeze.host.process_group import GroupLeader, as_subreaper, guarded
from spreeze.host.programs import python, python_path

# A call that hangs in Python is interrupted by an exception after --hang-s. One that hangs in C is not: the process
# ends so much later.
GRACE_S = 6.0
SLOW_S = 20.0  # as a run has it (`--stall-s`)
INTERRUPT_S = 1.0  # for the process to say where it was
POLL_S = 0.01  # the user waits for it
SETTINGS = ("env", "env_module", "env_kwargs", "max_episode_steps", "hang_s")
# What faulthandler writes: a headline, and a thread after the other, the innermost call first.
_DUMP = re.compile(r"^(?:Timeout \(|Fatal Python error: )", re.MULTILINE)
_THREAD = re.compile(r"^(Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """What was found out about an environment, in words."""

    described: tuple[tuple[str, str], ...]
    """Name and text of what it has and how long it takes."""
    findings: tuple[Finding, ...]
    printed: tuple[str, ...]
    """The lines that it printed."""

    @property
    def is_fatal(self) -> bool:
        """Whether it cannot be trained on."""
        return any(finding.is_fatal for finding in self.findings)


def examine_apart(config: Config) -> Report:
    """Examine an environment; raise EnvironmentSetupError where there is none of this id."""
    asked = exact_json_text({name: config.flat()[name] for name in SETTINGS})
    with tempfile.TemporaryDirectory() as folder, as_subreaper(), guarded():
        answer, log = Path(folder) / "answer", Path(folder) / "printed"
        with log.open("ab") as file:
            words = python("-m", "spreeze.commands.examination", asked, str(answer), str(GRACE_S))
            process = GroupLeader(words, {**os.environ, "PYTHONPATH": python_path()}, (), file.fileno())
        try:
            _wait_for(process, config.env)
        except KeyboardInterrupt:
            print(f"spreeze: interrupted{_place_of_interrupt(process, answer)}", file=sys.stderr)  # where it may hang
            raise
        finally:
            process.kill()  # and what it has started
        printed = log.read_text(errors="replace")
        found = json.loads(answer.read_text()) if answer.exists() else None
    if found is None:
        dump = _DUMP.search(printed)
        before, after = (printed[: dump.start()], printed[dump.start() :]) if dump else (printed, "")
        return Report(
            (), (_why_it_ended(process.returncode, after, config.sampling.hang_s),), tuple(before.splitlines())
        )
    if "refused" in found:
        raise EnvironmentSetupError(found["refused"])
    findings = tuple(Finding(**each) for each in found["findings"])
    described = tuple((name, text) for name, text in found["described"])
    return Report(described, findings, tuple(printed.splitlines()))


def _wait_for(process: GroupLeader, name: str) -> None:
    slow_at: float | None = time.monotonic() + SLOW_S
    while process.poll() is None:
        if slow_at is not None and time.monotonic() > slow_at:
            slow_at = None
            print(f"{name} takes more than {SLOW_S:.0f} s so far; Ctrl-C ends this", file=sys.stderr)
        time.sleep(POLL_S)  # for another process's work


def _place_of_interrupt(process: GroupLeader, answer: Path) -> str:
    """Interrupt the process too; return where it was, or nothing."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGINT)
    deadline = time.monotonic() + INTERRUPT_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)  # for another process's work
    place = json.loads(answer.read_text()).get("interrupted", "") if answer.exists() else ""
    return str(place)


def _why_it_ended(code: int, dump: str, hang_s: float) -> Finding:
    """Return the finding about an environment whose process has ended without an answer."""
    threads = list(_THREAD.finditer(dump))
    # That which has crashed; where none has, that which Python began with: the last one.
    thread = next((each for each in threads if each[1] == "Current thread"), threads[-1] if threads else None)
    frames = _FRAME.findall(dump[thread.start() :].partition("\n\n")[0]) if thread else []
    place = place_in([(file, int(line), function) for file, line, function in reversed(frames)])
    if dump.startswith("Timeout"):
        return Finding(f"it hangs: it did not return within {hang_s:g} s{place}", WAITS, is_fatal=True)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    return Finding(
        f"its process {how}{place}",
        "raise an exception instead, or see to it that its libraries do not end the process",
        is_fatal=True,
    )


def _described(examination: Examination) -> Iterator[tuple[str, str]]:
    if examination.observations:
        yield "observations", examination.observations
        yield "actions", examination.actions
    for name, duration in (("step", examination.step), ("reset", examination.reset)):
        if duration is not None:
            yield name, _times(duration)


def _times(duration: Duration) -> str:
    return f"{in_words(duration.wall_s)}, of CPU time {in_words(duration.cpu_s)}"


def main() -> None:
    """Examine the environment of argv[1], and write the answer to the file of argv[2]."""
    config, path, grace_s = Config.from_flat(json.loads(sys.argv[1])), Path(sys.argv[2]), float(sys.argv[3])
    faulthandler.enable()
    faulthandler.dump_traceback_later(config.sampling.hang_s + grace_s, exit=True)
    spec, answer = EnvSpec.of(config), dict[str, Any]()
    try:
        with raising_after(config.sampling.hang_s):
            check_exists(spec)
            examination = examine(spec)
            complaints = () if examination.is_fatal else find_complaints(spec)
        findings = [asdict(finding) for finding in (*examination.findings, *complaints)]
        answer = {"findings": findings, "described": list(_described(examination))}
    except EnvironmentSetupError as error:
        answer = {"refused": str(error)}
    except TookTooLong as late:  # an import: what else is user code becomes a finding
        answer = {"refused": f"{spec.name}: {late}{place_of(late)}"}
    except KeyboardInterrupt as interrupt:
        answer = {"interrupted": place_of(interrupt)}
    sys.stdout.flush()
    sys.stderr.flush()
    with path.with_suffix(".new").open("w") as file:
        file.write(json_text(answer))
    path.with_suffix(".new").rename(path)  # whole, or not at all
    os._exit(0)  # its threads, if it has left any, must not delay the end


if __name__ == "__main__":
    main()
