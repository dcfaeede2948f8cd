"""The automatic choices of a run, in the order in which they can be made.

In: what was asked for. Out: a `Plan`: first of processes, before there is a run folder; then of memory and disk, once
the environment's spaces are known; and what changes the settings of a run under way.
"""

from __future__ import annotations

import dataclasses
import shutil

from spreeze.adapt.adaptation import Adaptation
from spreeze.adapt.plan import Plan, plan_checkpoints, plan_memory, plan_processes
from spreeze.adapt.recipes import choose_algorithm
from spreeze.adapt.remember import Memory, recall_update_times
from spreeze.adapt.task import is_unconstrained, task_key
from spreeze.adapt.waiting import plan_waiting
from spreeze.channels.environment_facts import EnvironmentFacts
from spreeze.channels.spaces import Spaces
from spreeze.channels.transitions import RowLayout
from spreeze.config import Config
from spreeze.config.own_settings import find_algorithm
from spreeze.config.run_settings import RunSettings
from spreeze.errors import UsageError
from spreeze.host.hardware import this_machine
from spreeze.host.own_files import list_own
from spreeze.supervision.algorithm_checks import require_fitting_settings, require_own_names, require_takes
from spreeze.supervision.request import Driver, RunRequest
from spreeze.supervision.run import Run
from spreeze.supervision.workers import Workers
from spreeze.views.trackers import require_trackers


class OtherAlgorithm(UsageError):
    """The run has begun with an algorithm that is not the one for its environment: it begins again."""

    def __init__(self, algo: str, facts: EnvironmentFacts) -> None:
        super().__init__(f"the algorithm for this environment is {algo}")
        self.algo, self.facts = algo, facts


def choose_processes(request: RunRequest) -> Plan:
    """Choose device, processes, batch size and ratio. A UsageError leaves nothing behind."""
    require_trackers(request.config)
    algorithm = find_algorithm(request.config.algo)
    require_own_names(algorithm, request.config.algo)
    require_fitting_settings(algorithm, request.config)
    machine, config = this_machine(), request.config
    if request.resume_point is not None:
        settings = request.resume_point.progress.settings
        return dataclasses.replace(plan_processes(_with(config, settings), machine), recalled=settings)
    update_times = recall_update_times(machine, config.algo, config.learning.hidden)
    plan = plan_processes(config, machine, update_times=update_times)
    adaptation = config.adaptation
    is_known = request.make_driver is None and request.env.factory is None
    is_known = is_known and not config.serial and not request.env.is_realtime
    if adaptation.adapt and not adaptation.fresh and is_known:
        key = task_key(config, plan.config.learning, machine)
        memory = Memory()
        plan = plan_processes(config, machine, memory.recall(key), update_times).warn(memory.warning)
    return plan


def _with(config: Config, settings: RunSettings) -> Config:
    found = {name: getattr(settings, name) for name in ("samplers", "envs_per_sampler", "batch_size")}
    if settings.learner_threads:
        found["learner_threads"] = settings.learner_threads
    return config.replace(**found)


def choose_for_environment(run: Run, facts: EnvironmentFacts) -> Spaces:
    """Choose what depends on the environment: how it is stepped, and room for its rows."""
    spaces = facts.spaces
    layout = RowLayout.of(spaces)
    algo = run.plan.config.algo
    if run.request.chooses_algorithm:
        choice = choose_algorithm(run.request.env.name, spaces.action_kind)
        if choice.value != algo:
            raise OtherAlgorithm(str(choice.value), facts)
        run.plan = dataclasses.replace(run.plan, choices=(choice, *run.plan.choices))
    require_takes(find_algorithm(algo), algo, spaces, run.request.env.name)
    machine = this_machine()
    plan = plan_waiting(run.plan.take(facts.backend), run.request.asked, facts.cost, machine)
    plan = plan_memory(plan, layout, machine)
    # What shows the run may be other in this session: the next one asks for it again.
    asked = run.request.asked
    kept = dataclasses.replace(plan.config, output=asked.output, watching=asked.watching)
    run.folder.write("config.json", kept.flat())
    old_rows = list_own(run.folder.path / "checkpoint" / "replay", run.folder.path, "rows-*")
    free_bytes = shutil.disk_usage(run.folder.path).free + sum(path.lstat().st_size for path in old_rows)
    run.plan = plan_checkpoints(plan, layout, free_bytes)
    return spaces


def choose_driver(run: Run) -> Driver | None:
    """Choose what changes the settings of a run under way: mostly the adaptation, which remembers what it finds."""
    workers = run.workers
    if not isinstance(workers, Workers):
        return None  # a serial run, which would not repeat itself
    if run.request.make_driver is not None:
        return run.request.make_driver(workers, run.plan)
    asked, machine, memory, log = run.request.asked, this_machine(), Memory(), run.log
    if not asked.adaptation.adapt or run.request.env.is_realtime:
        return None
    key = task_key(asked, run.plan.config.learning, machine)

    def remember(settings: RunSettings) -> None:
        if is_unconstrained(asked):
            memory.keep(key, settings)
            log.warn_once(memory.warning)

    return Adaptation(workers, run.plan, asked, machine, log.record_event, remember)
