"""Searches that drive one running training each, where the adaptation drives it: same changes, same measurements.

In: a config, a method, seconds. Out: what was tried and held for the best, when, and how the run did meanwhile.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from spreeze.adapt.adaptation import Adaptation, Gauge
from spreeze.adapt.objective import Sample, log_objective, objective
from spreeze.adapt.plan import Plan, adaptation_bounds
from spreeze.adapt.tune import Bounds
from spreeze.adapt.wording import describe
from spreeze.channels.counters import Reading
from spreeze.commands.bench.grid import drive_run, measure_settings
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings
from spreeze.errors import RunFailed
from spreeze.host.hardware import this_machine
from spreeze.supervision.request import Driver
from spreeze.supervision.workers import Workers

# Of the dozen or two tries that there is time for, random ones before the model of a method decides. By default it
# would be all of them.
STARTUP_TRIES = 5
START_LIMIT_S = 60.0  # for settings to come into force: as long as the adaptation waits


class Optuna:
    """A search method of Optuna's: a tree of Parzen estimators, an evolution strategy, or chance."""

    def __init__(self, method: str, seed: int) -> None:
        import optuna  # now: importing Optuna must not count as searching

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIES),
            "cmaes": lambda: optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=1),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        }
        self._study = optuna.create_study(direction="maximize", sampler=samplers[method]())
        self._choices: dict[str, list[int]] = {}

    def first(self, choices: dict[str, list[int]], start: RunSettings) -> dict[str, int]:
        """Begin a search with these choices for each knob; return what to try first: the start."""
        self._choices = choices
        # Places in the list of choices, not values: neighbours there are alike, which values from 64 to 8192 are not.
        self._study.enqueue_trial({name: values.index(getattr(start, name)) for name, values in choices.items()})
        return self._ask()

    def next(self, objective: float) -> dict[str, int]:
        """Give the study the logarithm of J of its last settings; return the next ones."""
        self._study.tell(self._trial, objective)
        return self._ask()

    def _ask(self) -> dict[str, int]:
        self._trial = self._study.ask()
        chosen = {name: self._trial.suggest_int(name, 0, len(of) - 1) for name, of in self._choices.items()}
        return {name: self._choices[name][place] for name, place in chosen.items()}


class Journal:
    """What a search has done so far, by seconds since it began; and what the run made meanwhile."""

    def __init__(self, workers: Workers, seconds: float) -> None:
        self._gauge, self._seconds = Gauge(workers), seconds
        self._start: Reading | None = None
        self.incumbents: list[dict[str, Any]] = []
        self.tries: list[dict[str, Any]] = []
        self.meanwhile: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        return self._start is not None and time.monotonic() >= self._start.at + self._seconds

    def begin(self) -> None:
        """Start the clock: the learner has chosen its compute mode, and the first settings are in force."""
        self._start = self._gauge.read()

    def end(self) -> None:
        assert self._start is not None
        start, end = self._start, self._gauge.read()
        counters = {"sampling_hz": "env_steps", "update_hz": "updates", "update_frame_hz": "update_frames"}
        for rate, counter in counters.items():
            self.meanwhile[rate] = (getattr(end, counter) - getattr(start, counter)) / (end.at - start.at)
        made = Sample(**self.meanwhile, sampler_wait=0, idle_cores=0, other_cores=0)
        self.meanwhile["objective"] = objective(made)

    def tried(self, settings: RunSettings, objective: float | None) -> None:
        """Record a try. objective: None where it did not come into force."""
        self.tries.append({"at_s": self._now_s(), "settings": settings._asdict(), "objective": objective})

    def holds(self, settings: RunSettings) -> None:
        """Record what the search would continue with if it ended now."""
        if not self.incumbents or self.incumbents[-1]["settings"] != settings._asdict():
            self.incumbents.append({"at_s": self._now_s(), "settings": settings._asdict()})

    def _now_s(self) -> float:
        assert self._start is not None
        return round(time.monotonic() - self._start.at, 2)


class Rule:
    """What drives a run: a search that continues a little in each turn of the supervisor."""

    def __init__(self, search: Iterator[None]) -> None:
        self._search, self.is_over = search, False

    def turn(self, _now: float) -> None:
        """Continue until the search has to wait for the run, or is over."""
        try:
            next(self._search)
        except StopIteration:
            self.is_over = True


def adapt(workers: Workers, plan: Plan, config: Config, journal: Journal) -> Iterator[None]:
    """Let Spreeze's adaptation look at the run, and record what it takes for the best."""

    def record_event(*_: str, **details: Any) -> None:
        if details["decision"] == "try":
            journal.tried(RunSettings(**details["settings"]), None)

    adaptation = Adaptation(workers, plan, config, this_machine(), record_event, lambda _settings: None)
    has_begun = False
    while not journal.is_over:
        adaptation.turn(time.monotonic())
        if not has_begun and adaptation.best is not None and workers.has_reached(adaptation.best):
            has_begun = True
            journal.begin()
        if has_begun and adaptation.best is not None:
            journal.holds(adaptation.best)
        yield
    journal.end()


def ask(
    workers: Workers, planned: RunSettings, bounds: Bounds, asked: Optuna, samples_each: int, journal: Journal
) -> Iterator[None]:
    """Ask for settings and answer with their objective, measured over a few windows each."""
    while not all(side["is_steady"] for side in workers.learner_counters()):
        yield  # the adaptation, too, starts once the learner has chosen its compute mode
    threads = max(int(side["learner_threads"]) for side in workers.learner_counters())
    start = planned._replace(learner_threads=threads)
    journal.begin()
    journal.holds(start)
    gauge, seen = Gauge(workers), defaultdict[RunSettings, list[float]](list)
    settings = start._replace(**asked.first(choices_within(bounds), start))
    while True:
        fresh: list[float] = []
        changed_at = time.monotonic()
        workers.use(settings)
        gauge.restart()
        while len(fresh) < samples_each:
            yield
            if journal.is_over:
                journal.end()
                return
            now = time.monotonic()
            if (sample := gauge.sample(settings, now)) is not None:
                fresh.append(log_objective(sample))
            elif now > changed_at + START_LIMIT_S:
                raise RunFailed(f"{describe(settings)} did not come into force")
        objective = statistics.fmean(fresh)
        journal.tried(settings, math.exp(objective))
        seen[settings] += fresh
        journal.holds(max(seen, key=lambda one: statistics.fmean(seen[one])))
        settings = settings._replace(**asked.next(objective))


def search_live(config: Config, seconds: float, samples_each: int, asked: Optuna | None) -> dict[str, Any]:
    """Search for so many seconds in a training of its own. asked: None for Spreeze's own rule."""
    journals: list[Journal] = []

    def make(workers: Workers, plan: Plan) -> Driver:
        journals.append(Journal(workers, seconds))
        if asked is None:
            return Rule(adapt(workers, plan, config, journals[0]))
        bounds = adaptation_bounds(plan, config, this_machine())
        return Rule(ask(workers, plan.settings, bounds, asked, samples_each, journals[0]))

    drive_run(config, make)
    journal = journals[0]
    return {"tries": journal.tries, "incumbents": journal.incumbents, "meanwhile": journal.meanwhile}


def judge(config: Config, stops: Sequence[RunSettings], samples_each: int) -> list[dict[str, Any]]:
    """Take one training through settings, there and back; return the objective of each, which judges all searches."""
    return [
        {
            "settings": settings._asdict(),
            "objective": statistics.median(map(objective, samples)),
            "samples": [asdict(sample) for sample in samples],
        }
        for settings, samples in measure_settings(config, [*stops, *reversed(stops)], samples_each).items()
    ]


def choices_within(bounds: Bounds) -> dict[str, list[int]]:
    """Return what a search may choose for each knob; one that has no choice is left out."""
    low, high = bounds.batch_size
    found = {
        "samplers": list(range(bounds.samplers[0], bounds.samplers[1] + 1)),
        "batch_size": [low * 2**i for i in range(64) if low * 2**i <= high],
        "learner_threads": list(bounds.learner_threads),
    }
    return {name: values for name, values in found.items() if len(values) > 1}
