"""Searches that drive one running training each, where the adaptation drives it: same changes, same measurements.

In: a config, a method, seconds. Out: what was tried and held for the best, when, and how the run did meanwhile.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spreeze.adapt import tune
from spreeze.adapt.adaptation import Adaptation, Gauge
from spreeze.adapt.plan import Plan, adaptation_bounds
from spreeze.adapt.tune import Bounds, Sample
from spreeze.channels.counters import read_counters
from spreeze.commands.bench.grid import Tour
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.config.run_settings import RunSettings
from spreeze.errors import RunFailed
from spreeze.host.hardware import this_machine
from spreeze.supervision.run import Driver
from spreeze.supervision.supervisor import supervise
from spreeze.supervision.workers import Workers
from spreeze.views.display import QuietDisplay

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
        """Tell the logarithm of J of what was answered last; return what to try next."""
        self._study.tell(self._trial, objective)
        return self._ask()

    def _ask(self) -> dict[str, int]:
        self._trial = self._study.ask()
        chosen = {name: self._trial.suggest_int(name, 0, len(of) - 1) for name, of in self._choices.items()}
        return {name: self._choices[name][place] for name, place in chosen.items()}


class Journal:
    """What a search has done so far, by seconds since it began; and what the run made meanwhile."""

    def __init__(self, workers: Workers, seconds: float) -> None:
        self._workers, self._seconds = workers, seconds
        self._began_at: float | None = None
        self.incumbents: list[dict[str, Any]] = []
        self.tries: list[dict[str, Any]] = []
        self.meanwhile: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        return self._began_at is not None and time.monotonic() >= self._began_at + self._seconds

    def begin(self) -> None:
        """Start the clock: the learner has found its own way to compute, and the first settings are in force."""
        self._began_at, self._start = time.monotonic(), self._read()

    def end(self) -> None:
        assert self._began_at is not None
        steps, updates, frames = (end - start for end, start in zip(self._read(), self._start, strict=True))
        seconds = time.monotonic() - self._began_at
        rates = (steps / seconds, updates / seconds, frames / seconds)
        self.meanwhile = dict(zip(("sampling_hz", "update_hz", "update_frame_hz"), rates, strict=True))
        self.meanwhile["objective"] = tune.objective(Sample(*rates, 0.0, 0.0, 0.0))

    def tried(self, settings: RunSettings, objective: float | None) -> None:
        """Note a try. objective: None where it did not come into force."""
        self.tries.append({"at_s": self._now_s(), "settings": settings._asdict(), "objective": objective})

    def holds(self, settings: RunSettings) -> None:
        """Note what the search would go on with if it ended now."""
        if not self.incumbents or self.incumbents[-1]["settings"] != settings._asdict():
            self.incumbents.append({"at_s": self._now_s(), "settings": settings._asdict()})

    def _now_s(self) -> float:
        assert self._began_at is not None
        return round(time.monotonic() - self._began_at, 2)

    def _read(self) -> tuple[int, int, int]:
        sides = self._workers.learner_counters()
        updates, frames = (
            sum(int(side[name]) for side in sides) // len(sides) for name in ("updates", "update_frames")
        )
        return read_counters(self._workers.channels.metrics).env_steps, updates, frames


class OwnRule:
    """Spreeze's adaptation as it is, watched."""

    def __init__(self, workers: Workers, plan: Plan, config: Config, journal: Journal) -> None:
        self._workers, self._journal, self._has_begun = workers, journal, False
        self._adaptation = Adaptation(workers, plan, config, this_machine(), self._note, lambda _settings: None)
        self.is_over = False

    def turn(self, now: float) -> None:
        """Let it look, and note what it holds for the best."""
        self._adaptation.turn(now)
        if self._adaptation.best is None:
            return
        if not self._has_begun:
            if not self._workers.has_reached(self._adaptation.best):
                return
            self._has_begun = True
            self._journal.begin()
        self._journal.holds(self._adaptation.best)
        if self._journal.is_over:
            self._journal.end()
            self.is_over = True

    def _note(self, _kind: str, _reason: str, **details: Any) -> None:
        if details["decision"] == "try":
            self._journal.tried(RunSettings(**details["settings"]), None)


class AskedRule:
    """A search that is asked for settings and told their objective: each is measured over a few windows."""

    def __init__(
        self,
        workers: Workers,
        planned: RunSettings,
        bounds: Bounds,
        asked: Optuna,
        samples_each: int,
        journal: Journal,
    ) -> None:
        self._workers, self._planned, self._bounds, self._asked, self._journal = (
            workers,
            planned,
            bounds,
            asked,
            journal,
        )
        self._samples_each, self._gauge = samples_each, Gauge(workers)
        self._seen: dict[RunSettings, list[float]] = {}
        self._current: RunSettings | None = None
        self._fresh: list[float] = []
        self._changed_at = 0.0
        self.is_over = False

    def turn(self, now: float) -> None:
        """Take a sample if one is due; ask for the next settings after enough of them."""
        if self._current is None:
            self._begin(now)
        elif self._journal.is_over:
            self._journal.end()
            self.is_over = True
        elif (sample := self._gauge.sample(self._current, now)) is not None:
            self._fresh.append(math.log(tune.objective(sample)))
            if len(self._fresh) == self._samples_each:
                self._judge(self._current, now)
        elif now > self._changed_at + START_LIMIT_S:
            raise RunFailed(f"{tune.describe(self._current)} did not come into force")

    def _begin(self, now: float) -> None:
        """Start where the adaptation starts: once the learner has found its own way to compute."""
        sides = self._workers.learner_counters()
        if all(side["is_steady"] for side in sides):
            start = self._planned._replace(learner_threads=max(int(side["learner_threads"]) for side in sides))
            self._journal.begin()
            self._journal.holds(start)
            self._use(start._replace(**self._asked.first(choices_within(self._bounds), start)), now)

    def _judge(self, settings: RunSettings, now: float) -> None:
        objective = statistics.fmean(self._fresh)
        self._journal.tried(settings, math.exp(objective))
        self._seen.setdefault(settings, []).extend(self._fresh)
        self._journal.holds(max(self._seen, key=lambda one: statistics.fmean(self._seen[one])))
        self._use(settings._replace(**self._asked.next(objective)), now)

    def _use(self, settings: RunSettings, now: float) -> None:
        self._current, self._fresh, self._changed_at = settings, [], now
        self._workers.use(settings)
        self._gauge.restart()


def search_live(config: Config, seconds: float, samples_each: int, asked: Optuna | None) -> dict[str, Any]:
    """Search for so many seconds in a training of its own. asked: None for Spreeze's own rule."""
    journals: list[Journal] = []

    def make(workers: Workers, plan: Plan) -> Driver:
        journals.append(Journal(workers, seconds))
        if asked is None:
            return OwnRule(workers, plan, config, journals[0])
        bounds = adaptation_bounds(plan, config, this_machine())
        return AskedRule(workers, plan.settings, bounds, asked, samples_each, journals[0])

    _train(config, make)
    journal = journals[0]
    return {"tries": journal.tries, "incumbents": journal.incumbents, "meanwhile": journal.meanwhile}


def measure_settings(config: Config, stops: Sequence[RunSettings], samples_each: int) -> list[dict[str, Any]]:
    """Take one training through settings, there and back; return the objective of each, which judges all searches."""
    tours: list[Tour] = []

    def make(workers: Workers, _plan: Plan) -> Tour:
        tours.append(Tour(workers, [*stops, *reversed(stops)], samples_each))
        return tours[0]

    _train(config, make)
    return [
        {
            "settings": settings._asdict(),
            "objective": statistics.median(map(tune.objective, samples)),
            "samples": [asdict(sample) for sample in samples],
        }
        for settings, samples in tours[0].samples.items()
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


def _train(config: Config, make_driver: Callable[[Workers, Plan], Driver]) -> None:
    with tempfile.TemporaryDirectory(prefix="questions-") as folder:
        config = config.replace(run_dir=str(Path(folder) / "run"), checkpoint_interval_s=0)
        result = supervise(config, EnvSpec.of(config), time.monotonic(), QuietDisplay(), make_driver)
    if result.stop_reason != "measured":
        raise KeyboardInterrupt  # the run was ended from outside, in order, and so is the benchmark
