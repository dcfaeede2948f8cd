"""Starts and resumes runs, with what else a run may need: the gateway to other machines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spreeze.cluster import GATEWAY
from spreeze.commands.arguments import ResumeArguments
from spreeze.config import SHOWN, Config
from spreeze.config.env_spec import EnvSpec
from spreeze.host.process_group import ending_what_is_started
from spreeze.runs.result import Result
from spreeze.supervision.resume import LIMITS, ResumeRequest, resume_run
from spreeze.supervision.supervisor import supervise
from spreeze.views.terminal import make_display


def train(config: Config, started_at: float) -> Result:
    """Train a policy."""
    with ending_what_is_started():
        return supervise(config, EnvSpec.of(config), started_at, make_display(config), gateway=GATEWAY)


def resume(arguments: ResumeArguments, given: Iterable[str], started_at: float) -> Result:
    """Continue a run. given: the flags that were typed; what shows a run is otherwise as before."""
    names = {name.removeprefix("--no-").removeprefix("--").replace("-", "_") for name in given}
    request = ResumeRequest(
        Path(arguments.run),
        {name: getattr(arguments, name) for name in LIMITS},
        {name: getattr(arguments, name) for name in SHOWN if name in names},
        without_replay=arguments.without_replay,
        cluster=arguments.cluster,
        gateway=GATEWAY,
    )
    with ending_what_is_started():
        return resume_run(request, started_at)
