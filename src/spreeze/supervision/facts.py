"""Has the environment examined by a process of its own: it is user code, which must not run in the supervisor.

In: that process, or an `EnvSpec`. Out: `EnvironmentFacts`, or an error with the reason why there are none.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from spreeze.channels.brief import EnvironmentBrief
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.config import SamplingConfig
from spreeze.config.env_spec import EnvSpec
from spreeze.errors import EnvironmentSetupError
from spreeze.host.lifetime import CLOSE_GRACE_S
from spreeze.host.logs import KEPT_BYTES, last_line, open_log
from spreeze.host.process_group import as_subreaper, guarded
from spreeze.supervision import launch
from spreeze.supervision.launch import ENVIRONMENT_SLOT, Child
from spreeze.supervision.signals import Signals

FACTS_POLL_S = 0.002  # somebody waits for the answer


def facts_from(child: Child, env_name: str, hang_s: float) -> EnvironmentFacts | None:
    """Return what the process has found, None as long as it has not answered.

    It gets as much time as a sampler for its environments.
    """
    has_ended = child.process.poll() is not None  # asked first: its last words are there then
    for _, message in child.receive():
        if message.pop("kind") == "environment":
            return EnvironmentFacts.of(message)
    if child.raised is not None:
        # An error of ours is whole without the name of its class.
        raise EnvironmentSetupError(child.raised.reason.removeprefix(f"{EnvironmentSetupError.__name__}: "))
    if has_ended:
        # Quoted, since the log goes with the folder of a run that has not begun.
        printed = last_line(child.log_path)
        output = f"its output ends with {printed!a}" if printed else "it printed nothing"
        raise EnvironmentSetupError(f"{env_name} could not be examined: {child.how_it_ended()}; {output}")
    if time.monotonic() - child.counted_from > (limit_s := child.silence_limit_s(hang_s)):
        raise EnvironmentSetupError(
            f"{env_name} was not made within {limit_s:.0f} s: its constructor hangs, or needs more --hang-s"
        )
    return None


def find_facts_before_run(
    env: EnvSpec, is_serial: bool, is_over: Callable[[], bool], hang_s: float = SamplingConfig.hang_s
) -> tuple[EnvironmentFacts | None, bytes]:
    """Examine the environment of a run that has not started, without writing to its folder.

    Return also what was printed meanwhile, for the run's log. A serial run examines it in this process, as always.
    is_over: whether the time of the run has passed; then nothing is found out, and nothing needs to be.
    """
    if is_serial:
        from spreeze.environments.facts import find_facts

        return find_facts(env, is_serial=True), b""
    with contextlib.ExitStack() as closing:
        signals = closing.enter_context(Signals())
        closing.enter_context(signals.raising_after(0))  # a constructor may take long, or hang
        closing.enter_context(as_subreaper())
        closing.enter_context(guarded(grace_s=CLOSE_GRACE_S if env.is_realtime else 0.0))
        logs = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="spreeze-"))) / "logs"
        logs.mkdir()
        child = launch.start("environment", 0, ENVIRONMENT_SLOT, None, logs / "environment.log", 1)
        closing.callback(child.close)
        closing.callback(child.kill)
        if env.is_realtime:
            closing.callback(_let_it_close, child, signals)
        child.send_brief(EnvironmentBrief(env))
        while (facts := facts_from(child, env.name, hang_s)) is None and not is_over():
            time.sleep(FACTS_POLL_S)  # for another process's work
        with child.log_path.open("rb") as log:
            return facts, log.read(KEPT_BYTES)


def _let_it_close(child: Child, signals: Signals) -> None:
    """Wait until a robot is closed, also where somebody is in a hurry."""
    deadline = time.monotonic() + CLOSE_GRACE_S
    with signals.held_back():
        while child.process.poll() is None and time.monotonic() < deadline:
            time.sleep(FACTS_POLL_S)  # for another process's work


def keep_log(run: Path, printed: bytes) -> None:
    """Append what was printed before the run to the log of the process that examines the environment."""
    with contextlib.suppress(OSError):  # a full disk: the run continues without
        if printed:
            with os.fdopen(open_log(run / "logs" / "environment.log"), "ab") as log:
                log.write(printed)
