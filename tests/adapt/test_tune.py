"""The decision function on simulated machines: where it comes to, how soon, and that it is quiet afterwards."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from machines import Gpu, Machine

from spreeze.adapt import tune
from spreeze.adapt.objective import Sample
from spreeze.adapt.tune import Bounds, Decision, Search
from spreeze.config.run_settings import RunSettings

FAST, SLOW = Gpu(), Gpu(speed=0.1)
MACHINES = [
    Machine("2 cores", 2),
    Machine("4 cores", 4),
    Machine("12 cores", 12),
    Machine("32 cores", 32),
    *(Machine(f"{cores} cores and a fast GPU", cores, FAST) for cores in (6, 12, 32, 64)),
    *(Machine(f"{cores} cores and a slow GPU", cores, SLOW) for cores in (6, 12, 32, 64)),
    Machine("12 cores and large batches", 12, FAST, max_batch_size=32768),
    Machine("12 cores and a GPU that does not wait", 12, Gpu(waits_for_host=False)),
    Machine("slow environment", 12, FAST, step_s=20e-3),
    Machine("slow environment on 2 cores", 2, step_s=20e-3),
    Machine("sleeping environment", 12, FAST, step_s=1e-4, sleep_s=20e-3),
    Machine("very fast environment", 12, FAST, step_s=2e-6),
    Machine("very fast environment on 2 cores", 2, step_s=2e-6),
]
STARTS = ("defaults", "few", "many")
NOISY = [machine for machine in MACHINES if machine.name in ("2 cores", "12 cores and a fast GPU")] + MACHINES[6:8]
SAMPLES_LIMIT = 5000  # against a search that never ends
QUIET_SAMPLES = 300


class Run:
    """A search on a simulated machine."""

    def __init__(self, machine: Machine, start: RunSettings, noise: float = 0.0, seed: int = 0) -> None:
        self.machine, self.noise = machine, noise
        self.search = Search.begin(start)
        self.decisions: list[Decision] = []
        self.bold_tries: list[RunSettings] = []
        self._random = random.Random(seed)

    def step(self) -> Decision | None:
        sample = self.machine.sample(self.search.current, self.noise, self._random)
        self.search, decision = tune.step(self.search, sample, self.machine.bounds)
        if decision is not None:
            self.decisions.append(decision)
            if decision.kind == "try" and self.search.is_bold:
                self.bold_tries.append(decision.settings)
        return decision

    def settle(self) -> Run:
        for _ in range(SAMPLES_LIMIT):
            if self.search.is_settled:
                return self
            self.step()
        raise AssertionError(f"not settled after {SAMPLES_LIMIT} samples: {self.decisions[-3:]}")

    def tries(self) -> list[RunSettings]:
        return [decision.settings for decision in self.decisions if decision.kind == "try"]

    def wake(self) -> Decision:
        for _ in range(SAMPLES_LIMIT):
            decision = self.step()
            if decision is not None:
                return decision
        raise AssertionError("it never woke")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_search_settles_near_the_best_and_is_quiet_then(machine: Machine, start: str) -> None:
    run = Run(machine, machine.starts[start]).settle()
    # With slow environments, fewer of them are kept where that costs less than 2%, and on two cores two settings
    # would have to change together: either alone costs a few percent.
    near = 0.93 if machine.name.startswith("slow environment") else 0.95
    assert machine.share_of_best(run.search.best) >= near, (run.search.best, machine.best)
    assert len(run.tries()) <= tune.MAX_TRIES
    assert run.search.current == run.search.best
    assert [run.step() for _ in range(QUIET_SAMPLES)] == [None] * QUIET_SAMPLES


@pytest.mark.parametrize("machine", NOISY, ids=str)
def test_noise_of_a_tenth_does_not_lead_astray(machine: Machine) -> None:
    for seed in range(20):
        run = Run(machine, machine.starts["defaults"], noise=0.1, seed=seed).settle()
        assert machine.share_of_best(run.search.best) >= 0.95, (seed, run.search.best, machine.best)
        assert len(run.tries()) <= tune.MAX_TRIES
        assert [run.step() for _ in range(QUIET_SAMPLES)] == [None] * QUIET_SAMPLES


@pytest.mark.parametrize("start", STARTS)
def test_noise_from_any_start_costs_little_on_any_machine(start: str) -> None:
    shares = []
    for machine in MACHINES:
        for seed in range(5):
            run = Run(machine, machine.starts[start], noise=0.1, seed=seed).settle()
            shares.append(machine.share_of_best(run.search.best))
            assert len(run.tries()) <= tune.MAX_TRIES
    # Not all: from far away, a climb under such noise may stop one step of a few percent early.
    assert sum(share >= 0.95 for share in shares) >= 0.85 * len(shares)
    assert min(shares) >= 0.8


@pytest.mark.parametrize("cores", [12, 32])
def test_search_wakes_when_others_take_half_the_cores_and_when_they_give_them_back(cores: int) -> None:
    free = Machine("free", cores, FAST)
    taken = replace(free, other_cores=cores / 2)
    run = Run(free, free.starts["defaults"]).settle()
    before = run.search.best

    run.machine = taken
    woken = run.wake()
    assert woken.kind == "wake"
    assert "take" in woken.reason
    assert f"of {cores} cores" in woken.reason
    run.settle()
    assert taken.share_of_best(run.search.best) >= 0.95
    assert [run.step() for _ in range(QUIET_SAMPLES)] == [None] * QUIET_SAMPLES

    run.machine = free
    woken = run.wake()
    assert woken.kind == "wake"
    assert "given back" in woken.reason
    run.settle()
    assert free.share_of_best(run.search.best) >= 0.95
    assert free.share_of_best(before) >= 0.95


def test_search_wakes_when_the_objective_has_changed() -> None:
    machine = Machine("12 cores", 12, FAST)
    run = Run(machine, machine.starts["defaults"]).settle()
    assert [run.step() for _ in range(QUIET_SAMPLES)] == [None] * QUIET_SAMPLES
    run.machine = replace(machine, gpu=Gpu(speed=0.5))
    woken = run.wake()
    assert woken.kind == "wake"
    assert "objective" in woken.reason
    assert "%" in woken.reason


def test_a_machine_that_is_never_the_same_is_chased_ever_more_slowly() -> None:
    calm, loaded = Machine("calm", 12, FAST), Machine("loaded", 12, FAST, other_cores=6)
    run = Run(calm, calm.starts["defaults"]).settle()
    samples_to_wake = []
    for machine in (loaded, calm, loaded, calm):
        run.machine, samples = machine, 0
        while run.search.is_settled:
            run.step()
            samples += 1
        samples_to_wake.append(samples)
        run.settle()
    assert samples_to_wake == sorted(samples_to_wake)
    assert samples_to_wake[-1] > 2 * samples_to_wake[0]


# --- where it may go -------------------------------------------------------------------------------------------


def settings_of(run: Run) -> list[RunSettings]:
    return [decision.settings for decision in run.decisions]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_no_settings_are_tried_twice_in_the_same_way_or_outside_the_bounds(machine: Machine, start: str) -> None:
    begin, bounds = machine.starts[start], machine.bounds
    run = Run(machine, begin, noise=0.1).settle()
    tried, bold = run.tries(), run.bold_tries
    careful = tried[len(bold) :]
    assert tried[: len(bold)] == bold
    assert len(bold) == len(set(bold))
    assert len(careful) == len(set(careful))
    assert begin not in bold
    for settings in tried:
        assert bounds.samplers[0] <= settings.samplers <= bounds.samplers[1]
        assert bounds.envs_per_sampler[0] <= settings.envs_per_sampler <= bounds.envs_per_sampler[1]
        assert bounds.batch_size[0] <= settings.batch_size <= bounds.batch_size[1]
        assert settings.learner_threads in bounds.learner_threads
        assert bounds.may_pin or not settings.pinned
        assert math.log2(settings.batch_size / begin.batch_size).is_integer()


@pytest.mark.parametrize("field", ["samplers", "envs_per_sampler", "batch_size", "learner_threads"])
def test_what_the_user_has_set_is_never_changed(field: str) -> None:
    machine = Machine("12 cores", 12)
    start = machine.starts["few"]
    value = getattr(start, field)
    end: tuple[int, ...] = (value,) if field == "learner_threads" else (value, value)
    bounds = replace(machine.bounds, **{field: end})
    search, numbers = Search.begin(start), random.Random(0)
    tried = []
    while not search.is_settled:
        search, decision = tune.step(search, machine.sample(search.current, 0.1, numbers), bounds)
        if decision is not None:
            tried.append(decision.settings)
    assert {getattr(settings, field) for settings in tried} == {value}
    assert len(tried) > 1


def test_nothing_to_choose_is_nothing_to_try() -> None:
    machine = Machine("2 cores", 2)
    start = machine.starts["defaults"]
    bounds = Bounds((1, 1), (16, 16), (128, 128), (start.learner_threads,), cores=2)
    search, decisions = Search.begin(start), []
    for _ in range(50):
        search, decision = tune.step(search, machine.rates(start), bounds)
        decisions.append(decision)
    assert [decision.kind for decision in decisions if decision is not None] == ["settle"]


# --- single decisions ------------------------------------------------------------------------------------------

START = RunSettings(samplers=4, envs_per_sampler=16, batch_size=256, learner_threads=1)
BOUNDS = Bounds((1, 32), (16, 16), (256, 256), (1,), cores=16)


def sample(**changes: float) -> Sample:
    usual = Sample(4000.0, 100.0, 25600.0, sampler_wait=0.0, idle_cores=0.0, other_cores=0.0)
    return replace(usual, **changes)


def first_try(measured: Sample, bounds: Bounds = BOUNDS, start: RunSettings = START) -> Decision:
    search = Search.begin(start)
    for _ in range(tune.MAX_SAMPLES):
        search, decision = tune.step(search, measured, bounds)
        if decision is not None:
            return decision
    raise AssertionError("no decision")


def test_idle_cores_get_as_many_samplers() -> None:
    decision = first_try(sample(idle_cores=9.3))
    assert decision.settings.samplers == 4 + 9
    assert "9.3 cores are idle" in decision.reason


def test_samplers_that_wait_are_reduced_to_those_that_work() -> None:
    decision = first_try(sample(sampler_wait=0.75, idle_cores=9.0))
    assert decision.settings.samplers == 2
    assert "75%" in decision.reason


def test_fewer_samplers_that_do_the_same_work_are_kept() -> None:
    search = Search.begin(START)
    kinds = []
    for _ in range(20):
        search, decision = tune.step(search, sample(sampler_wait=0.75 if search.current == START else 0.2), BOUNDS)
        if decision is not None:
            kinds.append(decision.kind)
    assert kinds[:2] == ["try", "keep"]
    assert search.best.samplers == 2


def test_environments_that_hardly_get_on_become_fewer_and_stay_so_at_no_cost() -> None:
    bounds = Bounds((4, 4), (4, 64), (256, 256), (1,), cores=16)
    slow = sample(sampling_hz=4 * 16 * 62.5)
    decision = first_try(slow, bounds)
    assert decision.settings.envs_per_sampler == 6
    assert "62 steps/s" in decision.reason
    search = Search.begin(START)
    for _ in range(60):
        search, _ = tune.step(search, slow, bounds)
    assert search.best.envs_per_sampler == 6


def test_environments_do_not_become_so_many_that_they_hardly_get_on() -> None:
    bounds = Bounds((4, 4), (4, 64), (256, 256), (1,), cores=16)
    quick = sample(sampling_hz=4 * 16 * 200.0)  # a sampler makes 3,200 steps/s, and with 32 environments 100 in each
    assert first_try(quick, bounds).settings.envs_per_sampler == 8


def test_what_costs_is_undone_and_the_reason_has_the_figures() -> None:
    search = Search.begin(START)
    told = []
    for _ in range(12):
        slower = 1.0 if search.current == START else 0.5
        search, decision = tune.step(search, sample(update_hz=100 * slower), BOUNDS)
        if decision is not None:
            told.append(decision)
    assert [decision.kind for decision in told[:2]] == ["try", "return"]
    assert told[1].settings == START
    for figure in ("4 -> 5", "-20.6%", "100 -> 50"):
        assert figure in told[1].reason


def test_one_hiccup_does_not_decide() -> None:
    search, taken = Search.begin(START), []
    for i in range(60):
        hiccup = 0.01 if i % 9 == 5 else 1.0
        search, decision = tune.step(search, sample(sampling_hz=4000 * hiccup), BOUNDS)
        if decision is not None:
            taken.append(decision.kind)
    assert "keep" not in taken


@pytest.mark.parametrize("machine", MACHINES[:8], ids=str)
def test_every_decision_has_a_reason_with_a_figure(machine: Machine) -> None:
    run = Run(machine, machine.starts["many"]).settle()
    assert run.decisions[-1].kind == "settle"
    for decision in run.decisions:
        assert any(character.isdigit() for character in decision.reason)


def test_remembered_settings_are_only_watched() -> None:
    machine = Machine("12 cores", 12, FAST)
    run = Run(machine, machine.starts["few"])
    run.search = tune.settled(machine.starts["few"])
    assert [run.step() for _ in range(QUIET_SAMPLES)] == [None] * QUIET_SAMPLES
    run.machine = replace(machine, other_cores=6)
    assert run.wake().kind == "wake"


def test_remembered_settings_are_looked_at_again_where_the_machine_is_not_calm() -> None:
    machine = Machine("12 cores", 12, FAST, other_cores=6)
    run = Run(machine, machine.starts["defaults"])
    run.search = tune.settled(machine.starts["defaults"])
    assert "take" in run.wake().reason


@pytest.mark.parametrize(("other_cores", "is_calm"), [(0.0, True), (6.0, False)])
def test_only_what_was_found_on_a_calm_machine_is_worth_remembering(other_cores: float, is_calm: bool) -> None:
    machine = Machine("12 cores", 12, FAST, other_cores=other_cores)
    assert Run(machine, machine.starts["defaults"]).settle().search.has_settled_on_a_calm_machine is is_calm


def test_a_step_changes_nothing_but_what_it_returns() -> None:
    machine = Machine("12 cores", 12, FAST)
    run = Run(machine, machine.starts["defaults"])
    for _ in range(30):
        search, measured = run.search, machine.rates(run.search.current)
        kept = repr(search)
        assert tune.step(search, measured, machine.bounds) == tune.step(search, measured, machine.bounds)
        assert repr(search) == kept
        run.step()


def test_a_run_that_stands_still_is_no_error() -> None:
    search = Search.begin(START)
    for _ in range(100):
        search, _ = tune.step(search, sample(sampling_hz=0.0, update_hz=0.0, update_frame_hz=0.0), BOUNDS)
    assert search.is_settled
