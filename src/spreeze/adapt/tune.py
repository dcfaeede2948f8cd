"""Decides how a run is spread over the machine. Pure functions: samples go in, decisions with reasons come out.

A search is a hill climb on the objective J: it tries a change, keeps it if the objective gains, undoes it otherwise,
and settles when nothing is left to try. It begins boldly: a glance of two samples is enough for a verdict, and what
gained much is taken further at once. Then it tries what is left, one change at a time, with as many samples as the
noise asks for. Settled, it only watches, and searches again when the machine changes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from spreeze.adapt.objective import FULL_UPDATES_PER_STEP, RATE_FLOOR, Sample, log_objective, mean_log, noise_of
from spreeze.adapt.strides import doubled, doublings, halved, most_doublings
from spreeze.adapt.wording import describe, describe_change, describe_rates
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
# While a search is bold: samples for a verdict, the noise of ln J that they may hide, and how far beyond the needed
# gain an unclear one must be to be kept.
GLANCE_SAMPLES, GLANCE_NOISE, GLANCE_GAIN = 2, 0.05, 0.03
LINE_GAIN = 0.15  # in ln J, by each doubling or halving: then the next step is longer
MAX_BOLD_TRIES = 12
# The evaluator may take a twentieth of the cores on average. Where it takes more than this share, it is in a burst
# that will end: such samples are left out, as long as there are not too many more of them than of others.
BURST_SHARE, MAX_BURST_SAMPLES = 0.15, 20
# A settled search wakes when other programs' use of cores has changed for six seconds, or the objective from one
# window of two minutes to the next: a policy that learns changes the speed of its environment, but seldom so fast.
WATCHED_SAMPLES, WATCHED_OBJECTIVE_SAMPLES, MAX_WATCHED_SAMPLES = 12, 240, 7200
WAKE_OBJECTIVE, WAKE_CORES, WAKE_CORES_SHARE = 0.35, 0.35, 0.1


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
    is_bold: bool = True
    unclear: frozenset[RunSettings] = frozenset()
    """What was tried boldly without a clear verdict: it may be tried once more."""
    left: RunSettings | None = None
    """The settings from which the last step has gained so much that the next one goes further the same way."""
    burst_samples: int = 0
    """How many more samples were taken in bursts of the evaluator than beside them, lately."""
    others_at_rest: float | None = None
    """Cores that other programs used when the search settled; None while it goes on."""
    wakes: int = 0

    @staticmethod
    def begin(settings: RunSettings) -> Search:
        """Start from these settings."""
        return Search(settings, settings, tried=frozenset({settings}))

    @property
    def is_settled(self) -> bool:
        """Whether everything that seemed worth a try has been tried."""
        return self.others_at_rest is not None

    @property
    def has_settled_on_a_calm_machine(self) -> bool:
        """Whether it settled while other programs left the cores alone: only such settings are worth remembering."""
        return self.others_at_rest is not None and self.others_at_rest < WAKE_CORES


def step(search: Search, sample: Sample, bounds: Bounds) -> tuple[Search, Decision | None]:
    """Add one sample of the current settings; return the new state, and a decision if one can be made."""
    is_burst = sample.evaluator_cores > BURST_SHARE * bounds.cores
    bursts = search.burst_samples + (1 if is_burst else -1)
    search = replace(search, burst_samples=max(0, min(MAX_BURST_SAMPLES + 1, bursts)))
    if is_burst and search.burst_samples <= MAX_BURST_SAMPLES:
        return search, None
    seen = (*search.samples.get(search.current, ()), sample)
    search = replace(search, samples_since_change=search.samples_since_change + 1)
    if search.others_at_rest is not None:
        return _watch(search, search.others_at_rest, seen, bounds.cores)
    search = _with_samples(search, search.current, seen[-MAX_SAMPLES:])
    if search.current != search.best:
        return _judge_boldly(search, seen) if search.is_bold else _judge(search, seen)
    return _try_next(search, seen, bounds)


def settled(settings: RunSettings) -> Search:
    """Return a search that has settled on these settings, which an earlier run has found on a calm machine.

    It only watches, and wakes if the machine is not calm.
    """
    return replace(Search.begin(settings), others_at_rest=0.0)


def _judge_boldly(search: Search, seen: Sequence[Sample]) -> tuple[Search, Decision | None]:
    if len(seen) < GLANCE_SAMPLES:
        return search, None
    before = search.samples[search.best]
    gain, error = _gain(search, seen, noise=max(GLANCE_NOISE, _noise(search)))
    is_clear = abs(gain - search.needed_gain) >= CLEAR_ERRORS * error
    if gain > search.needed_gain + (GLANCE_GAIN if not is_clear and search.needed_gain > 0 else 0.0):
        unclear = search.unclear if is_clear else search.unclear | {search.best}
        is_steep = gain >= LINE_GAIN * most_doublings(search.best, search.current)
        search = replace(search, left=search.best if is_steep else None, unclear=unclear)
        return _keep(search, before, seen, gain)
    if not is_clear:
        search = replace(search, unclear=search.unclear | {search.current})
    return _undo(search, before, seen, gain)


def _judge(search: Search, seen: Sequence[Sample]) -> tuple[Search, Decision | None]:
    if len(seen) < MIN_SAMPLES:
        return search, None
    before = search.samples[search.best]
    gain, error = _gain(search, seen, _noise(search))
    if abs(gain - search.needed_gain) < CLEAR_ERRORS * error and len(seen) < MAX_SAMPLES:
        return search, None
    verdict = _keep if gain > search.needed_gain else _undo
    return verdict(search, before, seen, gain)


def _gain(search: Search, seen: Sequence[Sample], noise: float) -> tuple[float, float]:
    """Return what the current settings have gained over the best, and the standard error of that."""
    before = search.samples[search.best]
    return mean_log(seen) - mean_log(before), noise * math.sqrt(1 / len(seen) + 1 / len(before))


def _keep(
    search: Search, before: Sequence[Sample], seen: Sequence[Sample], gain: float
) -> tuple[Search, Decision | None]:
    told = f"kept {_told(search, before, seen, gain)}"
    return replace(search, best=search.current), Decision("keep", search.current, told)


def _undo(
    search: Search, before: Sequence[Sample], seen: Sequence[Sample], gain: float
) -> tuple[Search, Decision | None]:
    told = f"undone {_told(search, before, seen, gain)}"
    # Half of its samples are taken again: the policy has changed, and with it the speed of the environment.
    search = _with_samples(search, search.best, tuple(before[-MAX_SAMPLES // 2 :]))
    search = replace(search, current=search.best, samples_since_change=0)
    return search, Decision("return", search.best, told)


def _told(search: Search, before: Sequence[Sample], seen: Sequence[Sample], gain: float) -> str:
    change, rates = describe_change(search.best, search.current), describe_rates(before, seen)
    return f"{change}: objective {math.expm1(gain):+.1%} ({rates})"


def _noise(search: Search) -> float:
    return noise_of(samples for samples in search.samples.values() if len(samples) >= MIN_SAMPLES)


class _Proposal(NamedTuple):
    settings: RunSettings
    reason: str
    needed_gain: float = MIN_GAIN


def _try_next(search: Search, seen: Sequence[Sample], bounds: Bounds) -> tuple[Search, Decision | None]:
    if search.is_bold:
        if len(seen) < (GLANCE_SAMPLES if search.tries else MIN_SAMPLES):
            return search, None
        proposals = _bold_proposals(search, seen, bounds) if search.tries < MAX_BOLD_TRIES else iter(())
        proposal = next((p for p in proposals if p.settings not in search.tried), None)
        if proposal is not None:
            return _begin_try(search, proposal)
        search = replace(
            search, is_bold=False, tried=search.tried - search.unclear | {search.best}, unclear=frozenset()
        )
    # The best settings are measured well before any careful try, since every try is compared with them.
    enough = math.ceil((CLEAR_ERRORS * _noise(search) / MIN_GAIN) ** 2 / 2)
    if len(seen) < max(MIN_SAMPLES, min(MAX_SAMPLES, enough)) or search.samples_since_change < MIN_SAMPLES // 2:
        return search, None
    proposals = _proposals(search, seen, bounds) if search.tries < MAX_TRIES else iter(())
    proposal = next((p for p in proposals if p.settings not in search.tried), None)
    if proposal is not None:
        return _begin_try(search, proposal)
    others = statistics.median(s.other_cores for s in seen)
    at_rest = replace(_with_samples(search, search.best, ()), others_at_rest=others, samples_since_change=0)
    found = f"{describe(search.best)}, objective {math.exp(mean_log(seen)):.4g}"
    reason = f"settled after {search.tries} {'try' if search.tries == 1 else 'tries'}: {found}"
    return at_rest, Decision("settle", search.best, reason)


def _begin_try(search: Search, proposal: _Proposal) -> tuple[Search, Decision]:
    search = replace(
        _with_samples(search, proposal.settings, ()),
        current=proposal.settings,
        tried=search.tried | {proposal.settings},
        needed_gain=proposal.needed_gain,
        tries=search.tries + 1,
        samples_since_change=0,
    )
    return search, Decision("try", proposal.settings, f"try {describe(proposal.settings)}: {proposal.reason}")


def _bold_proposals(search: Search, seen: Sequence[Sample], bounds: Bounds) -> Iterator[_Proposal]:
    best = search.best
    waiting = statistics.median(sample.sampler_wait for sample in seen)
    if search.left is not None:
        for power in (2, 1):
            yield _Proposal(_further(search.left, best, power, bounds), f"step {power} times as long the same way")
    samplers = list(_propose_samplers(best, seen, waiting, bounds.samplers))
    if waiting > MAX_WAIT:
        # Everyone waits for the learner: as few samplers as do the work, and much smaller batches at once.
        smaller = halved(best.batch_size, bounds.batch_size[0], times=2)
        fewest = samplers[0].settings.samplers if samplers else best.samplers
        if doublings(best.batch_size, smaller) == 2:
            why = f"samplers wait {waiting:.0%} of their time: smaller batches"
            yield _Proposal(best._replace(samplers=fewest, batch_size=smaller), why)
    yield from samplers
    threads = list(_propose_threads(best, bounds.learner_threads))
    yield from threads[:1] if statistics.median(sample.idle_cores for sample in seen) >= FREE_CORE / 2 else ()
    batches = list(_propose_batch_sizes(best, search.samples, bounds.batch_size))
    yield from reversed(batches) if waiting > MAX_WAIT else batches
    yield from threads


def _further(old: RunSettings, new: RunSettings, power: int, bounds: Bounds) -> RunSettings:
    """Return settings that are as much further the same way as the last step was long, or the square of that."""
    batch, threads, samplers = new.batch_size, new.learner_threads, new.samplers
    times = power * round(doublings(old.batch_size, batch))
    batch = doubled(batch, bounds.batch_size[1], times) if batch > old.batch_size else batch
    batch = halved(batch, bounds.batch_size[0], times) if batch < old.batch_size else batch
    if threads != old.learner_threads:
        wanted = threads * (threads / max(1, old.learner_threads)) ** power
        threads = min(bounds.learner_threads, key=lambda candidate: abs(candidate - wanted), default=threads)
    # Fewer samplers, and very many at once, come from what is measured: how long they wait, how many cores are idle.
    if old.samplers < samplers <= 4 * old.samplers:
        samplers = min(bounds.samplers[1], round(samplers * (samplers / old.samplers) ** power))
    return new._replace(batch_size=batch, learner_threads=threads, samplers=samplers)


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
        samplers_too = best.samplers
        if not best.pinned and waiting <= MAX_WAIT:  # more samplers then take no time from the learner
            samplers_too = min(bounds.samplers[1], max(best.samplers, bounds.cores))
        why = "all cores for everyone" if best.pinned else "the learner may be faster on cores of its own"
        yield _Proposal(best._replace(samplers=samplers_too, pinned=not best.pinned), why)


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
    updates_per_step = statistics.median(sample.update_hz / max(sample.sampling_hz, RATE_FLOOR) for sample in seen)
    if updates_per_step > FULL_UPDATES_PER_STEP and max(known) <= best.envs_per_sampler:
        # Environments that wait for something, side by side, make as many more steps as there are more of them.
        if 2 * best.envs_per_sampler <= bounds[1]:
            why = f"experience is scarce, with {updates_per_step:.1f} updates for each step"
            yield _Proposal(best._replace(envs_per_sampler=2 * best.envs_per_sampler), why)
        return
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


def _watch(search: Search, before: float, seen: tuple[Sample, ...], cores: int) -> tuple[Search, Decision | None]:
    # The windows double with each wake: a machine that keeps changing is not worth a search each time.
    window, objective_window = (
        min(MAX_WATCHED_SAMPLES, samples * 2**search.wakes)
        for samples in (WATCHED_SAMPLES, WATCHED_OBJECTIVE_SAMPLES)
    )
    search = _with_samples(search, search.current, seen[-2 * objective_window :])
    if len(seen) < window:
        return search, None
    now = statistics.median(s.other_cores for s in seen[-window:])
    if abs(now - before) > max(WAKE_CORES, WAKE_CORES_SHARE * cores):
        verb = "take" if now > before else "have given back"
        return _wake(search, f"other programs {verb} {abs(now - before):.1f} of {cores} cores")
    # A long window is looked at a few times while it passes.
    if len(seen) < 2 * objective_window or search.samples_since_change % (objective_window // 6):
        return search, None
    earlier, later = (
        statistics.median(map(log_objective, half))
        for half in (seen[-2 * objective_window : -objective_window], seen[-objective_window:])
    )
    if abs(later - earlier) <= WAKE_OBJECTIVE:
        return search, None
    return _wake(search, f"the objective has changed by {math.expm1(later - earlier):+.0%}")


def _wake(search: Search, reason: str) -> tuple[Search, Decision]:
    awake = replace(Search.begin(search.current), wakes=search.wakes + 1, burst_samples=search.burst_samples)
    return awake, Decision("wake", search.current, f"{reason}: searching again")


def _with_samples(search: Search, settings: RunSettings, samples: tuple[Sample, ...]) -> Search:
    return replace(search, samples={**search.samples, settings: samples})


def _median_frames(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.update_frame_hz for sample in samples)
