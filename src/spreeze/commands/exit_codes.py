"""Ends a command: errors become one line, and whatever ends it an exit code.

In: the function of a command. Out: the end of the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from spreeze.errors import ProcessFailed, SpreezeError
from spreeze.host.files import reason_of
from spreeze.host.logs import STDERR, fill_standard_descriptors, print_forgivingly

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130  # 2, wrong usage, is in the errors


def run_and_exit(run: Callable[[list[str]], int], words: list[str]) -> NoReturn:
    """Run a command and exit with its code."""
    fill_standard_descriptors()
    print_as_before = print_forgivingly()
    code = _run_to_its_end(run, words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one Ctrl-C more must not turn the exit code into a signal
    lost = print_as_before()
    if lost is not None and code == EXIT_DONE:
        # Not through the stream: one that cannot be written either would change the exit code at the very end.
        with contextlib.suppress(OSError):
            os.write(STDERR, f"spreeze: what it prints is lost: {reason_of(lost)}\n".encode())
        code = EXIT_FAILED
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        os._exit(code)  # an environment in this process has left them, and they would keep it; all is printed
    sys.exit(code)


def _run_to_its_end(run: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command; print its error, if there is one, and return its exit code."""
    interrupts: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as by `&` in a script
        signal.signal(signal.SIGINT, interrupt)
    try:
        return run(words)
    except SystemExit as stop:  # after the help of a command, or from an environment
        if stop.code is not None and not isinstance(stop.code, int):
            raise
        return stop.code or EXIT_DONE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if interrupts:
            # Libraries turn Ctrl-C into errors of their own: MuJoCo's import says that NumPy is not there.
            return EXIT_INTERRUPTED
        if not isinstance(error, SpreezeError):
            raise
        return _report(error)


def _report(error: SpreezeError) -> int:
    """Print an error; return its exit code."""
    hint = ""
    if isinstance(error, ProcessFailed):
        print(error.traceback, file=sys.stderr, end="")
        if error.role.startswith("sampler") and error.traceback:  # an environment, as far as can be told
            hint = "; `spreeze doctor ENV` says what is wrong with an environment"
    print(f"spreeze: {error}{hint}", file=sys.stderr)
    return error.exit_code
