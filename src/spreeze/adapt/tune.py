"""Decides how a run is spread over the machine. Pure functions: samples go in, decisions with reasons come out.

The objective is the geometric mean of the three rates a run is measured by,

    J = (sampling_hz * update_hz * update_frame_hz) ** (1/3),

that is, sampling_hz^(1/3) * update_hz^(2/3) * batch_size^(1/3): twice the sampling rate is worth as much as twice the
batch size, and either as much as 1.41 times the updates. A search is a hill climb: it tries one change at a time,
keeps it if the objective gains, undoes it otherwise, never tries the same settings twice, and settles when nothing is
left to try. It then only watches, and searches again when the machine changes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from spreeze.config.run_settings import RunSettings

MIN_SAMPLES, MAX_SAMPLES = 4, 16  # of the same settings: few if the verdict is clear, many if noise hides it
CLEAR_ERRORS = 2.0  # standard errors from the needed gain at which a verdict is clear
MIN_GAIN = 0.02  # in ln J, that a change must bring: less is not worth the disturbance
MAX_TRIES = 24  # settings that one search tries
MAX_WAIT = 0.25  # share of their time that samplers may wait before there are too many of them
FREE_CORE = 0.75  # idle cores above which there is room for another sampler
FAST_STEPS_HZ = 2000.0  # of one sampler; with slower environments the time of the policy is negligible
# Of one environment. If it is slower, policies change faster than it gets through an episode, and learn less from a
# step (docs/recipes.md: Ant with 67 steps/s in each of 448 environments, and with 270 in each of 112).
SLOW_ENV_HZ = 150.0
FAR_FROM_KNEE = 1.7  # growth of the frame rate by a doubling of the batch: above it, the next try is two doublings
# A settled search watches a window of this length, and wakes when the objective or the load of other programs has
# changed by more than these.
WATCHED_SAMPLES, MAX_WATCHED_SAMPLES = 6, 7200  # three seconds to an hour
WAKE_OBJECTIVE, WAKE_CORES, WAKE_CORES_SHARE = 0.25, 0.35, 0.1


@dataclass(frozen=True)
class Sample:
    """Measurements of a run over a short window."""

    sampling_hz: float
    update_hz: float
    update_frame_hz: float
    sampler_wait: float
    """Share of their time that samplers waited, for the learner or for room in their rings."""
    idle_cores: float
    other_cores: float
    """Cores that other programs use."""


@dataclass(frozen=True)
class Bounds:
    """The settings a search may try, both ends included; equal ends mean that the user has set it."""

    samplers: tuple[int, int]
    envs_per_sampler: tuple[int, int]
    batch_size: tuple[int, int]
    learner_threads: tuple[int, ...]
    cores: int
    may_pin: bool = False


@dataclass(frozen=True)
class Decision:
    """What to do next: settings to use from now on, and the reason in words."""

    kind: Literal["try", "keep", "return", "settle", "wake"]
    settings: RunSettings
    reason: str


@dataclass(frozen=True)
class Search:
    """The state of a search."""

    best: RunSettings
    current: RunSettings
    samples: Mapping[RunSettings, tuple[Sample, ...]] = field(default_factory=dict)
    tried: frozenset[RunSettings] = frozenset()
    needed_gain: float = MIN_GAIN
    """What the current settings must gain over the best."""
    tries: int = 0
    samples_since_change: int = 0
    """Samples since the last change."""
    settled_at: Level | None = None
    wakes: int = 0

    @staticmethod
    def begin(settings: RunSettings) -> Search:
        """Start from these settings."""
        return Search(settings, settings, tried=frozenset({settings}))

    @property
    def is_settled(self) -> bool:
        """Whether everything that seemed worth a try has been tried."""
        return self.settled_at is not None

    @property
    def has_settled_on_a_calm_machine(self) -> bool:
        """Whether it settled while other programs left the cores alone: only such settings are worth remembering."""
        return self.settled_at is not None and self.settled_at.other_cores < WAKE_CORES


class Level(NamedTuple):
    """The state of the machine when a search settled."""

    log_objective: float
    other_cores: float


def objective(sample: Sample) -> float:
    """Return J."""
    return math.exp(_log_objective(sample))


def step(search: Search, sample: Sample, bounds: Bounds) -> tuple[Search, Decision | None]:
    """Add one sample of the current settings; return the new state, and a decision if one can be made."""
    seen = (*search.samples.get(search.current, ()), sample)
    search = replace(search, samples_since_change=search.samples_since_change + 1)
    if search.settled_at is not None:
        return _watch(search, search.settled_at, seen, bounds.cores)
    search = _with_samples(search, search.current, seen[-MAX_SAMPLES:])
    if len(seen) < MIN_SAMPLES or search.samples_since_change < MIN_SAMPLES // 2:
        return search, None
    if search.current != search.best:
        return _judge(search, seen)
    return _try_next(search, seen, bounds)


def settled(settings: RunSettings) -> Search:
    """Return a search that has settled on these settings, which an earlier run has found on a calm machine.

    It only watches, and wakes if the machine is not calm.
    """
    return replace(Search.begin(settings), settled_at=Level(math.nan, 0.0))


def _judge(search: Search, seen: Sequence[Sample]) -> tuple[Search, Decision | None]:
    before = search.samples[search.best]
    gain = _mean_log(seen) - _mean_log(before)
    error = _noise(search.samples.values()) * math.sqrt(1 / len(seen) + 1 / len(before))
    if abs(gain - search.needed_gain) < CLEAR_ERRORS * error and len(seen) < MAX_SAMPLES:
        return search, None
    result = f"{_change(search.best, search.current)}: objective {math.expm1(gain):+.1%} ({_rates(before, seen)})"
    if gain > search.needed_gain:
        return replace(search, best=search.current), Decision("keep", search.current, f"kept {result}")
    # Half of its samples are taken again: the policy has changed, and with it the speed of the environment.
    search = _with_samples(search, search.best, before[-MAX_SAMPLES // 2 :])
    search = replace(search, current=search.best, samples_since_change=0)
    return search, Decision("return", search.best, f"undone {result}")


def _noise(groups: Iterable[Sequence[Sample]]) -> float:
    """Return the standard deviation of ln J between samples of the same settings, robust to outliers."""
    deviations = []
    for samples in groups:
        if len(samples) >= MIN_SAMPLES:
            middle = statistics.median(_log_objective(sample) for sample in samples)
            deviations += [abs(_log_objective(sample) - middle) for sample in samples]
    # For normally distributed errors, the standard deviation is 1.48 times the median absolute deviation.
    return 1.48 * statistics.median(deviations or [0.0])


class _Proposal(NamedTuple):
    settings: RunSettings
    reason: str
    needed_gain: float = MIN_GAIN


def _try_next(search: Search, seen: Sequence[Sample], bounds: Bounds) -> tuple[Search, Decision | None]:
    noise = _noise(search.samples.values())
    # The best settings are measured well before any try, since every try is compared with them.
    if len(seen) < min(MAX_SAMPLES, math.ceil((CLEAR_ERRORS * noise / MIN_GAIN) ** 2 / 2)):
        return search, None
    proposals = _proposals(search, seen, bounds) if search.tries < MAX_TRIES else iter(())
    proposal = next((p for p in proposals if p.settings not in search.tried), None)
    if proposal is None:
        level = Level(_mean_log(seen), statistics.median(s.other_cores for s in seen))
        at_rest = replace(_with_samples(search, search.best, ()), settled_at=level)
        found = f"{describe(search.best)}, objective {math.exp(level.log_objective):.4g}"
        reason = f"settled after {search.tries} {'try' if search.tries == 1 else 'tries'}: {found}"
        return at_rest, Decision("settle", search.best, reason)
    search = replace(
        _with_samples(search, proposal.settings, ()),
        current=proposal.settings,
        tried=search.tried | {proposal.settings},
        needed_gain=proposal.needed_gain,
        tries=search.tries + 1,
        samples_since_change=0,
    )
    return search, Decision("try", proposal.settings, f"try {describe(proposal.settings)}: {proposal.reason}")


def _proposals(search: Search, seen: Sequence[Sample], bounds: Bounds) -> Iterator[_Proposal]:
    best = search.best
    waiting = statistics.median(sample.sampler_wait for sample in seen)
    yield from _propose_samplers(best, seen, waiting, bounds.samplers)
    batches = list(_propose_batch_sizes(best, search.samples, bounds.batch_size))
    # Samplers that wait for the learner are slowed by every update: smaller batches are then more likely to gain.
    yield from reversed(batches) if waiting > MAX_WAIT else batches
    yield from _propose_threads(best, bounds.learner_threads)
    if waiting <= MAX_WAIT:
        yield from _propose_environments(search, seen, bounds.envs_per_sampler)
    if bounds.may_pin and all(settings.pinned == best.pinned for settings in search.tried):
        samplers = best.samplers
        if not best.pinned and waiting <= MAX_WAIT:  # more samplers then take no time from the learner
            samplers = min(bounds.samplers[1], max(best.samplers, bounds.cores))
        why = "all cores for everyone" if best.pinned else "the learner may be faster on cores of its own"
        yield _Proposal(best._replace(samplers=samplers, pinned=not best.pinned), why)


def _propose_samplers(
    best: RunSettings, seen: Sequence[Sample], waiting: float, bounds: tuple[int, int]
) -> Iterator[_Proposal]:
    low, high = bounds
    idle = statistics.median(sample.idle_cores for sample in seen)
    if waiting > MAX_WAIT:
        enough = max(low, math.ceil(best.samplers * (1.0 - waiting) * 1.1))
        if enough < best.samplers:
            # Fewer samplers do the same work: they are kept unless the objective falls.
            why = f"samplers wait {waiting:.0%} of their time"
            yield _Proposal(best._replace(samplers=enough), why, needed_gain=-MIN_GAIN)
    elif idle >= FREE_CORE:
        for more in (int(idle) or 1, int(idle) // 2):
            if more and best.samplers < high:
                samplers = min(high, best.samplers + more)
                yield _Proposal(best._replace(samplers=samplers), f"{idle:.1f} cores are idle")
    else:
        more, fewer = best.samplers + max(1, best.samplers // 4), best.samplers - max(1, best.samplers // 5)
        if more <= high:
            yield _Proposal(best._replace(samplers=more), "more samplers get more of the cores")
        if fewer >= low:
            yield _Proposal(best._replace(samplers=fewer), "no core is idle, which may slow the learner")


def _propose_environments(search: Search, seen: Sequence[Sample], bounds: tuple[int, int]) -> Iterator[_Proposal]:
    best = search.best
    each_hz = statistics.median(sample.sampling_hz for sample in seen) / best.samplers
    # Each number is tried once in a search: the cost of a pass through the policy hardly depends on other settings.
    known = {settings.envs_per_sampler for settings in search.tried}
    enough = max(bounds[0], int(each_hz / SLOW_ENV_HZ))
    if enough < best.envs_per_sampler and enough not in known:
        # Fewer environments make as many steps: they are kept unless the objective falls.
        why = f"an environment makes {each_hz / best.envs_per_sampler:,.0f} steps/s, and policies change faster"
        yield _Proposal(best._replace(envs_per_sampler=enough), why, needed_gain=-MIN_GAIN)
    for envs in (2 * best.envs_per_sampler, best.envs_per_sampler // 2):
        is_quick = each_hz > FAST_STEPS_HZ and (envs <= enough or envs < best.envs_per_sampler)
        if is_quick and bounds[0] <= envs <= bounds[1] and envs not in known:
            why = f"a sampler makes {each_hz:,.0f} steps/s: the time of the policy matters"
            yield _Proposal(best._replace(envs_per_sampler=envs), why)


def _propose_batch_sizes(
    best: RunSettings, samples: Mapping[RunSettings, tuple[Sample, ...]], bounds: tuple[int, int]
) -> Iterator[_Proposal]:
    low, high = bounds
    half = samples.get(best._replace(batch_size=best.batch_size // 2), ())
    whole = samples.get(best, ())
    frames_gained = _median_frames(whole) / _median_frames(half) if half and whole and _median_frames(half) else 0.0
    strides = (4, 2) if frames_gained >= FAR_FROM_KNEE else (2,)
    for stride in strides:
        if stride * best.batch_size <= high:
            why = f"frames grew by {frames_gained:.2f} at the last doubling" if frames_gained else "maybe more frames"
            yield _Proposal(best._replace(batch_size=stride * best.batch_size), why)
    if best.batch_size // 2 >= low:
        yield _Proposal(best._replace(batch_size=best.batch_size // 2), "smaller batches mean more updates")


def _propose_threads(best: RunSettings, candidates: Sequence[int]) -> Iterator[_Proposal]:
    larger = [threads for threads in candidates if threads > best.learner_threads]
    smaller = [threads for threads in candidates if threads < best.learner_threads]
    for threads in (*larger[:1], *smaller[-1:]):
        why = "more cores for the updates" if threads > best.learner_threads else "threads wait less for each other"
        yield _Proposal(best._replace(learner_threads=threads), why)


def _watch(search: Search, level: Level, seen: tuple[Sample, ...], cores: int) -> tuple[Search, Decision | None]:
    # The window doubles with each wake: a machine that keeps changing is not worth a search each time.
    window = min(MAX_WATCHED_SAMPLES, WATCHED_SAMPLES * 2**search.wakes)
    search = _with_samples(search, search.current, seen[-window:])
    if len(seen) < window:
        return search, None
    now = Level(_mean_log(seen[-window:]), statistics.median(s.other_cores for s in seen[-window:]))
    if math.isnan(level.log_objective):  # remembered from another run: the first window sets the level of this one
        level = level._replace(log_objective=now.log_objective)
        search = replace(search, settled_at=level)
    more_taken = now.other_cores - level.other_cores
    change = now.log_objective - level.log_objective
    if abs(more_taken) > max(WAKE_CORES, WAKE_CORES_SHARE * cores):
        verb = "take" if more_taken > 0 else "have given back"
        reason = f"other programs {verb} {abs(more_taken):.1f} of {cores} cores"
    elif abs(change) > WAKE_OBJECTIVE:
        reason = f"the objective has changed by {math.expm1(change):+.0%}"
    else:
        return search, None
    awake = replace(Search.begin(search.current), wakes=search.wakes + 1)
    return awake, Decision("wake", search.current, f"{reason}: searching again")


def describe(settings: RunSettings) -> str:
    """Return settings in words."""
    words = [
        f"{_count(settings.samplers, 'sampler')} x {_count(settings.envs_per_sampler, 'environment')}",
        f"batch {settings.batch_size}",
        _count(settings.learner_threads, "learner thread"),
    ]
    return ", ".join([*words, *(["cores kept apart"] if settings.pinned else [])])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _change(old: RunSettings, new: RunSettings) -> str:
    names = {
        "samplers": "samplers",
        "envs_per_sampler": "environments per sampler",
        "batch_size": "batch size",
        "learner_threads": "learner threads",
        "pinned": "cores kept apart",
    }
    changes = [
        f"{name} {getattr(old, key)} -> {getattr(new, key)}"
        for key, name in names.items()
        if getattr(old, key) != getattr(new, key)
    ]
    return ", ".join(changes)


def _rates(before: Sequence[Sample], after: Sequence[Sample]) -> str:
    def pair(name: str) -> str:
        old, new = (statistics.median(getattr(sample, name) for sample in samples) for samples in (before, after))
        return f"{old:,.0f} -> {new:,.0f}"

    return f"env steps/s {pair('sampling_hz')}, updates/s {pair('update_hz')}"


def _with_samples(search: Search, settings: RunSettings, samples: tuple[Sample, ...]) -> Search:
    return replace(search, samples={**search.samples, settings: samples})


def _log_objective(sample: Sample) -> float:
    # The logarithm needs a positive rate, also for a window without a step or an update.
    rates = (sample.sampling_hz, sample.update_hz, sample.update_frame_hz)
    return sum(math.log(max(rate, 1e-3)) for rate in rates) / len(rates)


def _mean_log(samples: Sequence[Sample]) -> float:
    """Return the mean of ln J without its extremes, at least one on either side: an outlier must not decide."""
    values = sorted(_log_objective(sample) for sample in samples)
    cut = max(1, len(values) // 6) if len(values) >= MIN_SAMPLES else 0
    return statistics.fmean(values[cut : len(values) - cut])


def _median_frames(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.update_frame_hz for sample in samples)
