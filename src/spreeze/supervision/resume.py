"""What `spreeze resume` does: continues a run that has stopped, from its newest checkpoint whose networks are intact.

In: a run folder, and limits that replace those of before. Out: a `Result`, and the same run folder.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spreeze.adapt.plan import Plan
from spreeze.config import SHOWN, Config, LimitsConfig
from spreeze.config.env_spec import CALLABLE_MARK, EnvSpec
from spreeze.config.fields import flag
from spreeze.errors import ConfigError, RunFolderError
from spreeze.runs.result import Result
from spreeze.runs.run_folder import RunFolder, read_run_config, require_run_at_rest
from spreeze.supervision.checkpoint_orders import ResumePoint
from spreeze.supervision.choices import choose_processes
from spreeze.supervision.facts import find_facts_before_run, keep_log
from spreeze.supervision.own_process import as_it_was_raised
from spreeze.supervision.request import RunRequest
from spreeze.supervision.resume_point import discard_newer, newest_intact
from spreeze.supervision.same_environment import require_same_environment
from spreeze.supervision.signals import Signals
from spreeze.supervision.supervisor import keeping, supervise_in, system_errors_in_words
from spreeze.views.terminal import make_display

LIMITS = tuple(field.name for field in dataclasses.fields(LimitsConfig))


@dataclass(frozen=True)
class ResumeRequest:
    """What is asked for."""

    run: Path
    limits: Mapping[str, Any]
    """Those that were given; None for one that was not."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """What of `SHOWN` is other than the run was started with, in this session."""
    factory: Callable[..., Any] | None = None
    """Makes the environment, of a run that was trained on a callable."""
    algo: str | None = None
    """The algorithm, where its class is known by another name now."""
    without_replay: bool = False
    """Whether to continue with the networks alone, and collect rows first as at a start."""
    cluster: str | None = None
    """The cluster whose machines are used too; the one that the run had before may be gone."""
    gateway: str | None = None
    """The program of the gateway to them."""


def resume_run(request: ResumeRequest, started_at: float) -> Result:
    """Continue a run. Refuses one that is under way, has no checkpoint, or has come to its limits: it stays as is."""
    with as_it_was_raised():
        run = request.run.absolute()  # in a serial run, the environment may change the working directory
        with system_errors_in_words():
            ready = _look(request, started_at)
        with keeping(RunFolder.reopen(run)) as folder:  # the lock is the first thing that is written
            if _standing(run, request.without_replay) != ready.standing:
                raise RunFolderError(f"'{request.run}' was continued by somebody else meanwhile: resume it again")
            folder.repair()
            discard_newer(run, ready.request.resume_point)
            keep_log(run, ready.printed)
            with Signals() as signals:
                return supervise_in(folder, ready.request, ready.plan, signals)


@dataclass(frozen=True)
class _Standing:
    """What a run is resumed from, as it is in its folder."""

    config: Config
    resume_point: ResumePoint


@dataclass(frozen=True)
class _Ready:
    """All that is known before anything is written."""

    request: RunRequest
    plan: Plan
    standing: _Standing
    printed: bytes
    """What the environment has printed while it was examined."""


def _look(request: ResumeRequest, started_at: float) -> _Ready:
    """Look at everything that may refuse to be resumed. Changes nothing."""
    require_run_at_rest(request.run)
    run_request, standing, warnings = _run_request(request, started_at)
    plan, resume_point = choose_processes(run_request), standing.resume_point
    env, limits = run_request.env, run_request.config.limits
    ends_at = math.inf if limits.max_seconds is None else limits.max_seconds - resume_point.progress.wall_s
    is_serial = run_request.config.serial
    facts, printed = find_facts_before_run(env, is_serial, lambda: time.monotonic() - started_at >= ends_at)
    if facts is not None:
        warnings += require_same_environment(request.run, env, resume_point, facts)
    for warning in warnings:
        plan = plan.warn(warning)
    return _Ready(dataclasses.replace(run_request, facts=facts), plan, standing, printed)


def _standing(run: Path, without_replay: bool) -> _Standing:
    return _Standing(read_run_config(run), newest_intact(run, without_replay)[0])


def _run_request(request: ResumeRequest, started_at: float) -> tuple[RunRequest, _Standing, list[str]]:
    """Return what to start the run with, where it stands, and what is wrong with newer checkpoints."""
    config = read_run_config(request.run)
    if config.env.endswith(CALLABLE_MARK) and request.factory is None:
        raise ConfigError(
            f"'{request.run}' was trained on a callable: resume it from Python, with "
            f"spreeze.resume({str(request.run)!r}, env=...)"
        )
    resume_point, warnings = newest_intact(request.run, request.without_replay)
    standing = _Standing(config, resume_point)
    limits = _limits(config, request.limits, resume_point)
    resume_point = _without_target(resume_point, config, limits)
    asked = Config.from_flat({**resume_point.progress.asked, "env": config.env})
    started_with = {name: config.flat()[name] for name in SHOWN}
    # The backend is chosen again: what is installed may have changed.
    config = config.replace(backend=asked.environment.backend)
    if request.algo is not None:
        config, asked = (dataclasses.replace(each, algo=request.algo) for each in (config, asked))
    if request.cluster is None and asked.sampling.samplers == 0:
        raise ConfigError(f"'{request.run}' has all its samplers on other machines: give --cluster auto or HOST:PORT")
    given = {**limits, **started_with, "cluster": request.cluster}
    config, asked = (each.replace(**given).with_all_own_settings() for each in (config, asked))
    config = as_shown(config, request.shown)
    env, display = EnvSpec.of(config, request.factory), make_display(config)
    run_request = RunRequest(asked, config, env, started_at, display, resume_point, gateway=request.gateway)
    return run_request, standing, warnings


def as_shown(config: Config, shown: Mapping[str, Any]) -> Config:
    """Return a run's config with what is to be shown of it in this session."""
    without_page: dict[str, Any] = {"keep_dashboard": False} if shown.get("dashboard") is False else {}
    return config.replace(**(without_page | dict(shown)))


def _limits(config: Config, given: Mapping[str, Any], resume_point: ResumePoint) -> dict[str, Any]:
    """Return the limits to continue with. Those that were reached are dropped if another one is given."""
    limits = {name: getattr(config.limits, name) for name in LIMITS}
    new = {name: value for name, value in given.items() if value is not None}
    for name, stood in _stood_at(resume_point).items():
        limit = new.get(name, limits[name])
        if limit is None or stood is None or stood < limit:
            continue
        if name in new:
            raise ConfigError(f"{flag(name)} {limit:g} was reached before: the run stands at {stood:g}, so give more")
        if not new:
            more = f"{flag(name)} {limit + abs(limit):g}" if limit else flag(name)
            raise ConfigError(f"the run has reached its {flag(name)} {limit:g}: give it more, for example {more}")
        limits[name] = None
    return {**limits, **new}


def _stood_at(resume_point: ResumePoint) -> dict[str, float | None]:
    counters, progress = resume_point.checkpoints[0].counters, resume_point.progress
    return {
        "max_seconds": progress.wall_s,
        "max_env_steps": counters["rows_consumed"],
        "max_updates": counters["updates"],
        "target_return": progress.best_return if progress.time_to_target_s is not None else None,
    }


def _without_target(resume_point: ResumePoint, config: Config, limits: Mapping[str, Any]) -> ResumePoint:
    """Forget that a target was reached that is no longer the target."""
    if limits["target_return"] == config.limits.target_return:
        return resume_point
    return dataclasses.replace(
        resume_point, progress=dataclasses.replace(resume_point.progress, time_to_target_s=None)
    )
