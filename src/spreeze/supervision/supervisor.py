"""The supervisor: starts, watches and ends every process of a run, and owns its run folder.

In: a config and an environment. Out: a `Result`, and a run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from spreeze.adapt.plan import Plan
from spreeze.channels.transport import DEFAULT_TRANSPORT, Transport
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.errors import RunFailed, UsageError, one_line
from spreeze.host.cores import leaving_a_core
from spreeze.host.lifetime import CLOSE_GRACE_S
from spreeze.host.logs import print_forgivingly
from spreeze.host.process_group import as_subreaper, guarded
from spreeze.runs.result import Result
from spreeze.runs.run_folder import RunFolder
from spreeze.supervision.choices import OtherAlgorithm, choose_processes
from spreeze.supervision.end import NeverBegan, ending_in_order
from spreeze.supervision.own_process import as_it_was_raised, without_warnings_of_numpy
from spreeze.supervision.request import MakeDriver, RunRequest
from spreeze.supervision.run import Run
from spreeze.supervision.signals import Signals
from spreeze.supervision.start import start
from spreeze.supervision.watch import Watch
from spreeze.views.display import Display

PRINT_PATIENCE_S = 1.0  # a terminal over a slow network reads something within that


def supervise(
    config: Config,
    env: EnvSpec,
    started_at: float,
    display: Display,
    make_driver: MakeDriver | None = None,
    transport: Transport = DEFAULT_TRANSPORT,
    gateway: str | None = None,
) -> Result:
    """Run a training from its first process to its summary.

    make_driver: what drives it instead of the adaptation. transport: what makes the channels that carry data.
    gateway: the program of the gateway to other machines, for --cluster.
    """
    asked, config = config, config.with_first_guess()
    request = RunRequest(
        config,
        config,
        env,
        started_at,
        display,
        chooses_algorithm=asked.chooses_algorithm,
        make_driver=make_driver,
        transport=transport,
        gateway=gateway,
    )
    try:
        return _supervise(request)
    except OtherAlgorithm as other:
        # Its processes have started with the guess, which is right for continuous actions, and is not waited with.
        config, facts = asked.with_algorithm(other.algo), other.facts
    return _supervise(dataclasses.replace(request, asked=config, config=config, facts=facts))


def _supervise(request: RunRequest) -> Result:
    plan, config = choose_processes(request), request.config
    with as_it_was_raised(), Signals() as signals, keeping(RunFolder.create(config)) as folder:
        try:
            return supervise_in(folder, request, plan, signals)
        except (UsageError, NeverBegan):
            folder.discard()  # there is nothing to keep
            if signals.stop_reason is None:
                raise
            # Libraries turn Ctrl-C into errors of their own, too.
            kept = f"{folder.path} is as it was" if folder.path.exists() else "no run folder is left"
            request.display.note(f"Ended while {request.env.name} was being made: {kept}")
            raise KeyboardInterrupt from None


def supervise_in(folder: RunFolder, request: RunRequest, plan: Plan, signals: Signals) -> Result:
    """Start everything, watch until a limit is reached, end everything, sum up."""
    run = Run(request, plan, folder)
    watch = Watch(run)
    is_realtime = request.env.is_realtime
    guard = guarded(run.plan.config.serial, CLOSE_GRACE_S if is_realtime else 0.0)
    plain = without_warnings_of_numpy() if run.plan.config.serial else contextlib.nullcontext()
    with plain, leaving_a_core(is_realtime), as_subreaper(), guard, ending_in_order(run, watch, signals):
        try:
            run.stop_reason = start(run, watch, signals) or watch.until_limit(signals)
        except KeyboardInterrupt:
            if not run.has_config and signals.stop_reason is not None:
                raise NeverBegan from None
            run.stop_reason = signals.stop_reason or watch.limit_reached() or "interrupted"
    if run.failure is not None:
        raise RunFailed(run.failure)
    assert run.result is not None, "what has failed was raised"
    return run.result


@contextlib.contextmanager
def keeping(folder: RunFolder) -> Iterator[RunFolder]:
    """Let go of a run folder at the end. What the system refuses, and what was not written, are errors in words."""
    print_as_before = print_forgivingly(PRINT_PATIENCE_S)
    try:
        with system_errors_in_words():
            yield folder
    finally:
        lost = folder.close()
        print_as_before()
    if lost is not None:
        raise RunFailed(lost)


@contextlib.contextmanager
def system_errors_in_words() -> Iterator[None]:
    """Raise what the system refuses as an error of one line."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"the system refused what the run needs: {one_line(error)} (disk full? `ulimit -n`? folder gone?); where "
            "processes or shared memory are not allowed, --serial needs neither"
        ) from error
