"""What `spreeze resume` does: goes on with a run that has stopped, from its newest checkpoint that is whole.

In: a run folder, and limits that replace those of before. Out: a `Result`, and the same run folder.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze.adapt.plan import plan_processes
from spreeze.adapt.remember import Memory
from spreeze.adapt.task import task_key
from spreeze.config import Config, LimitsConfig
from spreeze.config.env_spec import CALLABLE_MARK, EnvSpec
from spreeze.environments.backend import check_exists
from spreeze.errors import CheckpointError, ConfigError, RunFolderError
from spreeze.host.capture_output import output_to
from spreeze.host.hardware import this_machine
from spreeze.runs import replay_log
from spreeze.runs.checkpoint_counters import counters_of
from spreeze.runs.checkpoint_format import discard, newest_checkpoints, verify_states
from spreeze.runs.journal_reader import RunReader, read_object
from spreeze.runs.progress import Progress
from spreeze.runs.result import Result
from spreeze.runs.run_folder import RunFolder, read_run_config
from spreeze.supervision.checkpoint_orders import Standing
from spreeze.supervision.signals import Signals
from spreeze.supervision.supervisor import Supervisor, keeping
from spreeze.views.display import Display
from spreeze.views.terminal import make_display
from spreeze.views.trackers import require_trackers

LIMITS = tuple(field.name for field in dataclasses.fields(LimitsConfig))


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    run: Path
    limits: Mapping[str, Any]
    """Those that were given; None for one that was not."""
    quiet: bool = False
    factory: Callable[..., Any] | None = None
    """Makes the environment, of a run that was trained on a callable."""


def resume_run(request: Request, started_at: float) -> Result:
    """Go on with a run. Refuses one that is under way, has no checkpoint, or has come to its limits."""
    with keeping(RunFolder.reopen(request.run)) as folder:
        config = read_run_config(request.run)
        if config.env.endswith(CALLABLE_MARK) and request.factory is None:
            raise ConfigError(
                f"'{request.run}' was trained on a callable: resume it from Python, with "
                f"spreeze.resume({str(request.run)!r}, env=...)"
            )
        standing, warnings = _newest_whole(request.run)
        limits = _limits(config, request.limits, standing)
        standing = _without_target(standing, config, limits)
        asked = Config(env=config.env).replace(**{k: v for k, v in standing.progress.asked.items() if k != "env"})
        is_quiet = request.quiet or config.output.quiet
        # The backend is chosen anew: what is installed may have changed.
        config = config.replace(backend=asked.environment.backend)
        config, asked = (each.replace(**limits, quiet=is_quiet) for each in (config, asked))
        display = make_display(config)
        for warning in warnings:
            display.warn(warning)
        return _go_on(config, asked, EnvSpec.of(config, request.factory), standing, started_at, folder, display)


def _go_on(
    config: Config,
    asked: Config,
    env: EnvSpec,
    standing: Standing,
    started_at: float,
    folder: RunFolder,
    display: Display,
) -> Result:
    """Supervise the rest of the run. config: as it was planned then; asked: as the user had asked for it."""
    require_trackers(config)
    with output_to(Path(os.devnull)):
        check_exists(env)
    machine, memory, settings = this_machine(), Memory(), standing.progress.settings
    found = {name: getattr(settings, name) for name in ("samplers", "envs_per_sampler", "batch_size")}
    if settings.learner_threads:
        found["learner_threads"] = settings.learner_threads
    plan = dataclasses.replace(plan_processes(config.replace(**found), machine), recalled=settings)
    key = task_key(asked, plan.config.learning, machine)
    with Signals() as signals:
        began_at = started_at - standing.progress.wall_s
        supervisor = Supervisor(plan, asked, env, began_at, folder, display, standing)
        make_driver = supervisor.adapting(machine, memory, key) if asked.adaptation.adapt else None
        return supervisor.run(signals, make_driver)


def _newest_whole(run: Path) -> tuple[Standing, list[str]]:
    """Find the newest checkpoint of which every byte is as it was written; say what is wrong with newer ones."""
    folder, warnings = run / "checkpoint", list[str]()
    kept = newest_checkpoints(folder)
    for at, manifest in enumerate(kept):
        try:
            verify_states(folder, manifest)
            replay_log.verify(folder / "replay", manifest.extents, manifest.row_width)
            counters_of(manifest, "all")
            progress = Progress.of(manifest.progress)
        except CheckpointError as error:
            warnings.append(f"checkpoint {manifest.number} cannot be used, the one before is tried: {error}")
            continue
        for damaged in kept[:at]:
            discard(folder, damaged)
        return Standing(tuple(kept[at:]), _at_last_sign(progress, run)), warnings
    if not warnings:
        raise RunFolderError(f"'{run}' has no checkpoint to go on from: start anew with spreeze train")
    raise CheckpointError(warnings[-1].replace(", the one before is tried", ", and there is no other"))


def _at_last_sign(progress: Progress, run: Path) -> Progress:
    """Let the clock go on from the last line of the metrics: what was spent after the checkpoint was spent."""
    reader, before = RunReader(run), None
    reader.refresh()
    while reader.metrics.newest is not before:  # each time it takes in a few MB
        before = reader.metrics.newest
        reader.refresh()
    wall_s = max(progress.wall_s, _number(reader.metrics.newest or {}, "wall_s", 0.0))
    # The best policy is kept where it is, whichever checkpoint the run goes on from.
    kept = read_object(run / "best" / "evaluation.json") or {}
    known = -math.inf if progress.best_return is None else progress.best_return
    best = max(known, _number(kept, "mean_return", known))
    return dataclasses.replace(progress, wall_s=wall_s, best_return=best if math.isfinite(best) else None)


def _number(line: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = line.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number and value is not None else otherwise


def _limits(config: Config, given: Mapping[str, Any], standing: Standing) -> dict[str, Any]:
    """Return the limits to go on with. Those that were reached are dropped if another one is given."""
    limits = {name: getattr(config.limits, name) for name in LIMITS}
    new = {name: value for name, value in given.items() if value is not None}
    for name, stood in _stood_at(standing).items():
        limit = new.get(name, limits[name])
        if limit is None or stood is None or stood < limit:
            continue
        flag = "--" + name.replace("_", "-")
        if name in new:
            raise ConfigError(f"{flag} {limit:g} was reached before: the run stands at {stood:g}, so give more")
        if not new:
            more = f"{flag} {limit + abs(limit):g}" if limit else flag
            raise ConfigError(f"the run has come to its {flag} {limit:g}: say how far to go on, for example {more}")
        limits[name] = None
    return {**limits, **new}


def _stood_at(standing: Standing) -> dict[str, float | None]:
    counters, progress = standing.checkpoints[0].counters, standing.progress
    return {
        "max_seconds": progress.wall_s,
        "max_env_steps": counters["rows_consumed"],
        "max_updates": counters["updates"],
        "target_return": progress.best_return if progress.time_to_target_s is not None else None,
    }


def _without_target(standing: Standing, config: Config, limits: Mapping[str, Any]) -> Standing:
    """Forget that a target was reached that is no longer the target."""
    if limits["target_return"] == config.limits.target_return:
        return standing
    return dataclasses.replace(standing, progress=dataclasses.replace(standing.progress, time_to_target_s=None))
