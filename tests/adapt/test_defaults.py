from __future__ import annotations

import pytest

from spreeze.adapt import defaults
from spreeze.adapt.update_times import UpdateTimes
from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.config import Config
from spreeze.config.choice import Choice
from spreeze.host.threads import learner_thread_candidates

CORES = [1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128, 256, 512, 1024]
DEVICES = ["cpu", "cuda", "cuda:1"]
ROW_BYTES = [20, 100, 1000, 3000, 16_384, 10**6]


def chosen(cores: int, device: str) -> dict[str, Choice]:
    return {choice.setting: choice for choice in defaults.choose_parallelism(cores, device)}


def check_explained(choice: Choice) -> None:
    assert choice.reason
    assert "\n" not in choice.reason
    assert choice.setting in Config("x").flat()
    assert Config("x").replace(**{choice.setting: choice.value}).flat()[choice.setting] == choice.value


def test_learner_runs_on_a_gpu_if_there_is_one() -> None:
    assert defaults.choose_device(0).value == "cpu"
    for count in (1, 2, 8):
        assert str(defaults.choose_device(count).value).startswith("cuda")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cores", CORES)
def test_every_choice_is_valid_and_has_a_reason(cores: int, device: str) -> None:
    choices = defaults.choose_parallelism(cores, device)
    assert len({choice.setting for choice in choices}) == len(choices)
    for choice in choices:
        check_explained(choice)
    # Also all together: choices must not contradict one another.
    together = Config("x").replace(**{choice.setting: choice.value for choice in choices})
    assert together.sampling.samplers == chosen(cores, device)["samplers"].value


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cores", CORES)
def test_processes_fit_the_cores(cores: int, device: str) -> None:
    choices = chosen(cores, device)
    samplers = int(choices["samplers"].value)
    assert 1 <= samplers <= max(1, cores)
    assert samplers + 1 <= max(2, cores)  # one for the learner
    candidates = learner_thread_candidates(cores)
    assert candidates[0] == 1
    assert candidates == sorted(set(candidates))
    assert candidates[-1] <= cores
    assert int(choices["envs_per_sampler"].value) >= 1
    assert int(choices["batch_size"].value) >= 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cores", CORES)
def test_there_is_room_for_the_samplers_that_are_chosen(cores: int, device: str) -> None:
    assert int(chosen(cores, device)["samplers"].value) <= MAX_SAMPLERS


@pytest.mark.parametrize("device", DEVICES)
def test_more_cores_never_mean_fewer_samplers(device: str) -> None:
    samplers = [int(chosen(cores, device)["samplers"].value) for cores in range(1, 129)]
    assert samplers == sorted(samplers)
    assert samplers[-1] > samplers[0]


def test_learner_on_a_gpu_takes_larger_batches_and_leaves_the_cores_to_samplers() -> None:
    for cores in CORES[3:]:
        on_cpu, on_gpu = chosen(cores, "cpu"), chosen(cores, "cuda")
        assert int(on_gpu["batch_size"].value) >= int(on_cpu["batch_size"].value)
        assert int(on_gpu["samplers"].value) >= int(on_cpu["samplers"].value)
        assert on_gpu["learner_threads"].value == 1


PAYING, NOT_PAYING = (
    UpdateTimes(8192, 322, 163, 176, 289, 871_484, 64),
    UpdateTimes(8192, 322, 163, 310, 289, 871_484, 64),
)


@pytest.mark.parametrize(
    ("cores", "device", "gpus", "update_times", "split", "said"),
    [
        (1, "cpu", 0, None, "no", "share a core"),
        (2, "cpu", 0, None, "yes", "a core for the critics"),
        (64, "cpu", 0, NOT_PAYING, "yes", "a core for the critics"),
        (64, "cuda", 1, PAYING, "no", "share a GPU"),
        (64, "cuda", 2, None, "no", "`spreeze bench split`"),
        (64, "cuda", 2, PAYING, "yes", "1.78 times the updates"),
        (64, "cuda", 8, NOT_PAYING, "no", "would not pay"),
    ],
)
def test_the_learner_is_split_where_that_was_measured_to_pay(
    cores: int, device: str, gpus: int, update_times: UpdateTimes | None, split: str, said: str
) -> None:
    choice = defaults.choose_split(cores, device, gpus, update_times)
    check_explained(choice)
    assert choice.value == split
    assert said in choice.reason


def test_same_machine_gives_the_same_choices() -> None:
    assert defaults.choose_parallelism(8, "cpu") == defaults.choose_parallelism(8, "cpu")


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_ring_holds_several_steps_of_a_sampler(row_bytes: int) -> None:
    choice = defaults.ring_capacity_rows(row_bytes)
    check_explained(choice)
    for cores in CORES:
        assert int(choice.value) >= 4 * int(chosen(cores, "cpu")["envs_per_sampler"].value)


def test_rings_of_wider_rows_are_not_longer() -> None:
    rows = [int(defaults.ring_capacity_rows(row_bytes).value) for row_bytes in ROW_BYTES]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] > rows[-1]


@pytest.mark.parametrize("free_bytes", [0, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_replay_leaves_memory_free(row_bytes: int, free_bytes: int) -> None:
    choice = defaults.replay_capacity_rows(row_bytes, free_bytes, "cpu")
    check_explained(choice)
    rows = int(choice.value)
    assert 1 <= rows <= defaults.CPU_REPLAY_ROWS
    assert rows == 1 or rows * row_bytes <= defaults.REPLAY_MEMORY_SHARE * free_bytes
    assert rows == defaults.CPU_REPLAY_ROWS or (rows + 1) * row_bytes > defaults.REPLAY_MEMORY_SHARE * free_bytes


@pytest.mark.parametrize("free_bytes", [0, 10**9, 10**11, 10**12])
@pytest.mark.parametrize("samplers", [1, 8, 128])
def test_samplers_together_may_take_half_the_memory_and_each_enough(samplers: int, free_bytes: int) -> None:
    choice = defaults.sampler_memory_mb(free_bytes, samplers)
    check_explained(choice)
    each = int(choice.value)
    assert each >= defaults.MIN_SAMPLER_MB
    assert each == defaults.MIN_SAMPLER_MB or each * samplers * 2**20 <= free_bytes / 2


def test_reason_says_when_the_replay_is_smaller_than_usual() -> None:
    usual, small = (defaults.replay_capacity_rows(100, free_bytes, "cpu") for free_bytes in (10**12, 10**6))
    assert usual.value == defaults.CPU_REPLAY_ROWS
    assert small.value != defaults.CPU_REPLAY_ROWS
    assert small.reason.partition(":")[0] != usual.reason.partition(":")[0]
