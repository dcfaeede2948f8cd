from __future__ import annotations

import dataclasses
import re
from importlib import metadata
from typing import Any

import pytest

from spreeze.adapt import defaults
from spreeze.adapt.plan import Plan, adaptation_bounds, plan_checkpoints, plan_memory, plan_processes
from spreeze.adapt.update_times import UpdateTimes
from spreeze.channels.machines import MAX_MACHINES
from spreeze.channels.metrics import MAX_SAMPLERS
from spreeze.channels.transitions import RowLayout
from spreeze.config import Config
from spreeze.config.choice import Choice
from spreeze.config.run_settings import RunSettings
from spreeze.errors import ConfigError
from spreeze.host.hardware import Gpu, Machine

WITHOUT_GPU = Machine(cores=8, memory_bytes=2**34, gpus=())
WITH_GPU = Machine(cores=8, memory_bytes=2**34, gpus=(Gpu("some GPU", 2**34),))
LAYOUT = RowLayout(observation_size=17, action_size=6)
needs_cuda_build = pytest.mark.skipif("+cpu" in metadata.version("torch"), reason="this torch knows no GPU")


def planned(config: Config, machine: Machine = WITHOUT_GPU, free_bytes: int | None = None) -> Plan:
    """Plan for a machine, or for one with this much memory left after the rings."""
    plan = plan_processes(config, machine)
    if free_bytes is not None:
        plan = plan.take(Choice("ring_rows", 64, "little room"))
        ring_bytes = 64 * LAYOUT.row_bytes * int(plan.config.sampling.samplers)
        machine = dataclasses.replace(machine, memory_bytes=free_bytes + ring_bytes)
    return plan_memory(plan, LAYOUT, machine)


def test_nothing_is_left_to_choose() -> None:
    config = planned(Config("Pendulum-v1")).config
    # The entropy's target needs the action's size, which the learner knows; how environments are stepped and
    # what learns their actions, one to look at; other machines have as many samplers as they have free CPUs; the
    # others are found by trying.
    of_environment = {"algo", "backend", "env_threads", "stagger_episodes"}
    left = {name for name, value in config.flat().items() if value == "auto"}
    assert (
        left
        <= {"target_entropy", "learner_threads", "update_engine", "pin_cores", "cluster_samplers"} | of_environment
    )


def test_every_choice_is_recorded_with_its_reason() -> None:
    config = Config("Pendulum-v1")
    plan = planned(config)
    before, after = config.flat(), plan.config.flat()
    changed = {name: after[name] for name in before if before[name] != after[name]}
    assert {choice.setting: choice.value for choice in plan.choices} == changed
    assert all(choice.reason for choice in plan.choices)


def test_what_the_user_has_set_is_kept_and_not_called_a_choice() -> None:
    pinned = {
        "samplers": 3,
        "envs_per_sampler": 5,
        "batch_size": 77,
        "learner_threads": 6,
        "min_updates_per_step": 0.125,
        "max_updates_per_step": 2.5,
        "ring_rows": 321,
        "max_sampler_mb": 2000,
        "replay_rows": 12_345,
        "device": "cpu",
        "split": "no",
        "gamma": 0.75,
        "n_step": 3,
        "actor_delay": 4,
        "exploration": 0.5,
        "exploration_high": 0.75,
        "update_engine": "eager",
        "tau": 0.5,
        "learning_rate_batch": 99,
        "max_samplers": 7,
        "max_batch_size": 300,
    }
    plan = planned(Config("Pendulum-v1").replace(**pinned))
    assert {name: plan.config.flat()[name] for name in pinned} == pinned
    assert plan.choices == ()


@pytest.mark.parametrize(
    ("env", "n_step", "envs"),
    [("Humanoid-v5", 3, 8), ("Ant-v5", 3, 8), ("HumanoidStandup-v5", 1, 16), ("HalfCheetah-v5", 1, 16)],
)
def test_a_family_has_its_own_settings_and_nobody_else_has(env: str, n_step: int, envs: int) -> None:
    config = planned(Config(env)).config
    assert (config.learning.n_step, config.sampling.envs_per_sampler) == (n_step, envs)


def test_what_an_earlier_run_has_found_goes_before_the_settings_of_a_family() -> None:
    found = RunSettings(samplers=1, envs_per_sampler=4, batch_size=64, learner_threads=1)
    assert plan_processes(Config("Ant-v5"), WITHOUT_GPU, found).settings.envs_per_sampler == 4


@pytest.mark.parametrize("setting", ["samplers", "envs_per_sampler", "batch_size", "learner_threads", "ring_rows"])
def test_one_pinned_setting_leaves_the_others_to_choose(setting: str) -> None:
    plan = planned(Config("Pendulum-v1").replace(**{setting: 1}))
    assert plan.config.flat()[setting] == 1
    assert setting not in {choice.setting for choice in plan.choices}
    assert len(plan.choices) >= 5


def test_more_samplers_than_there_is_room_for_are_refused_in_one_line() -> None:
    assert planned(Config("Pendulum-v1").replace(samplers=MAX_SAMPLERS)).config.sampling.samplers == MAX_SAMPLERS
    with pytest.raises(ConfigError, match="--samplers") as raised:
        planned(Config("Pendulum-v1").replace(samplers=MAX_SAMPLERS + 1))
    assert str(MAX_SAMPLERS) in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match=str(MAX_SAMPLERS - MAX_MACHINES)):  # each machine has a record too
        planned(Config("Pendulum-v1").replace(samplers=MAX_SAMPLERS, cluster="auto"))


def test_all_samplers_may_be_on_other_machines() -> None:
    plan = planned(Config("Pendulum-v1").replace(samplers=0, cluster="auto", adapt=False))
    assert plan.config.sampling.samplers == 0


def test_settings_that_are_not_auto_by_default_are_never_touched() -> None:
    config = Config("Pendulum-v1").replace(gamma=0.5, hidden=(7,), seed=9)
    touched = {choice.setting for choice in planned(config).choices}
    by_default_auto = {name for name, value in Config("x").flat().items() if value == "auto"}
    assert touched <= by_default_auto | {"actor_device", "critic_device"}  # these follow `split`


def test_taking_a_choice_leaves_the_plan_before_as_it_was() -> None:
    plan = Plan(Config("Pendulum-v1"))
    taken = plan.take(Choice("samplers", 2, "test"))
    assert plan.config.sampling.samplers == "auto"
    assert taken.config.sampling.samplers == 2
    assert taken.take(Choice("samplers", 4, "test")) == taken


# --- device -----------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_learner_runs_on_the_cpu() -> None:
    assert planned(Config("Pendulum-v1")).config.learning.device == "cpu"


def test_cpu_may_be_wanted_where_there_is_a_gpu() -> None:
    config = planned(Config("Pendulum-v1").replace(device="cpu"), WITH_GPU).config
    assert config.learning.device == "cpu"
    assert config.learning.batch_size == planned(Config("Pendulum-v1")).config.learning.batch_size


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
def test_gpu_that_is_not_here_is_refused_in_one_line(device: str) -> None:
    with pytest.raises(ConfigError, match=f"--device {device}:") as raised:
        plan_processes(Config("Pendulum-v1").replace(device=device), WITHOUT_GPU)
    assert "--device cpu" in str(raised.value)
    assert "\n" not in str(raised.value)


@needs_cuda_build
def test_gpu_is_used_if_there_is_one() -> None:
    assert planned(Config("Pendulum-v1"), WITH_GPU).config.learning.device == "cuda"
    assert planned(Config("Pendulum-v1").replace(device="cuda:0"), WITH_GPU).config.learning.device == "cuda:0"
    with pytest.raises(ConfigError, match="cuda:1"):
        plan_processes(Config("Pendulum-v1").replace(device="cuda:1"), WITH_GPU)


# --- choices where the user has set something ------------------------------------------------------------------


@pytest.mark.parametrize("replay_rows", [1, 100])
def test_batch_is_chosen_to_fit_a_small_replay(replay_rows: int) -> None:
    config = planned(Config("Pendulum-v1").replace(replay_rows=replay_rows)).config
    assert int(config.learning.batch_size) <= replay_rows


@pytest.mark.parametrize("bound", [1e-6, 0.01, 1.0])
def test_ratio_is_chosen_below_the_users_upper_bound(bound: float) -> None:
    learning = planned(Config("Pendulum-v1").replace(max_updates_per_step=bound)).config.learning
    assert float(learning.min_updates_per_step) <= bound


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, defaults.MAX_UPDATES_PER_STEP),
        ({"min_updates_per_step": 0.5}, defaults.MAX_UPDATES_PER_STEP),
        ({"min_updates_per_step": 20.0}, 20.0),
        ({"max_updates_per_step": 0.5}, 0.5),
        ({"max_updates_per_step": None}, None),
    ],
)
@pytest.mark.usefixtures("gpu_build")
@pytest.mark.parametrize("machine", [WITHOUT_GPU, WITH_GPU], ids=["cpu", "gpu"])
def test_updates_wait_for_steps_at_a_ratio_that_learns_well_unless_the_user_wants_more(
    machine: Machine, fields: dict[str, Any], most: float | None
) -> None:
    assert planned(Config("Pendulum-v1").replace(**fields), machine).config.learning.max_updates_per_step == most


@pytest.mark.parametrize("cores", [1, 2, 4, 64, 1024])
def test_any_number_of_cores_can_be_planned_for(cores: int) -> None:
    config = planned(Config("Pendulum-v1"), Machine(cores, 2**34, ())).config
    assert int(config.sampling.samplers) >= 1


# --- memory -----------------------------------------------------------------------------------------------------


def test_replay_that_does_not_fit_is_refused_with_one_that_does() -> None:
    free_bytes = 10_000 * LAYOUT.row_bytes
    config = Config("Pendulum-v1").replace(replay_rows=20_000, batch_size=32)
    with pytest.raises(ConfigError, match="--replay-rows 20000") as raised:
        planned(config, free_bytes=free_bytes)
    message = str(raised.value)
    assert "\n" not in message
    advised = int(re.findall(r"use --replay-rows (\d+)", message)[0])
    assert 0 < advised < 10_000
    followed = planned(config.replace(replay_rows=advised), free_bytes=free_bytes)
    assert followed.config.learning.replay_rows == advised


def test_chosen_replay_fits_the_memory() -> None:
    free_bytes = 100_000 * LAYOUT.row_bytes
    rows = int(planned(Config("Pendulum-v1"), free_bytes=free_bytes).config.learning.replay_rows)
    assert 0 < rows * LAYOUT.row_bytes < free_bytes


def test_machine_without_room_for_a_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="--replay-rows"):
        planned(Config("Pendulum-v1").replace(batch_size=32), free_bytes=31 * LAYOUT.row_bytes)


def test_rings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="--ring-rows"):
        planned(Config("Pendulum-v1").replace(ring_rows=10**9))


@needs_cuda_build
def test_replay_on_a_gpu_is_planned_with_the_gpus_memory() -> None:
    small = dataclasses.replace(WITH_GPU, gpus=(Gpu("small GPU", 1000 * LAYOUT.row_bytes),))
    assert int(planned(Config("Pendulum-v1").replace(batch_size=32), small).config.learning.replay_rows) < 1000


# --- how far an adaptation may go --------------------------------------------------------------------------------

FOUND = RunSettings(samplers=5, envs_per_sampler=8, batch_size=256, learner_threads=2, pinned=True)


def test_what_the_user_has_set_cannot_be_adapted() -> None:
    config = Config("Pendulum-v1").replace(samplers=3, envs_per_sampler=5, batch_size=77, learner_threads=6)
    bounds = adaptation_bounds(plan_processes(config, WITHOUT_GPU), config, WITHOUT_GPU)
    assert (bounds.samplers, bounds.envs_per_sampler, bounds.batch_size) == ((3, 3), (5, 5), (77, 77))
    assert bounds.learner_threads == (6,)


def test_bounds_follow_the_flags() -> None:
    config = Config("Pendulum-v1").replace(max_samplers=5, max_batch_size=1024)
    bounds = adaptation_bounds(plan_processes(config, WITHOUT_GPU), config, WITHOUT_GPU)
    assert (bounds.samplers, bounds.batch_size) == ((1, 5), (64, 1024))
    capped = config.replace(replay_rows=100)
    assert adaptation_bounds(plan_processes(capped, WITHOUT_GPU), capped, WITHOUT_GPU).batch_size == (64, 100)


@pytest.mark.parametrize(
    ("fields", "setting", "value"),
    [
        ({"max_samplers": 1}, "samplers", 1),
        ({"max_batch_size": 32}, "batch_size", 32),
    ],
)
def test_a_run_starts_within_its_bounds(fields: dict[str, int], setting: str, value: int) -> None:
    plan = planned(Config("Pendulum-v1").replace(**fields))
    assert getattr(plan.settings, setting) == value


def test_without_adaptation_there_are_as_many_channels_as_samplers() -> None:
    adapting, static = (planned(Config("Pendulum-v1").replace(adapt=adapt)) for adapt in (True, False))
    assert static.most_samplers == static.settings.samplers
    assert adapting.most_samplers == adapting.config.adaptation.max_samplers


def test_a_run_starts_with_what_an_earlier_one_has_found() -> None:
    plan = plan_processes(Config("Pendulum-v1"), WITHOUT_GPU, FOUND)
    assert plan.settings == FOUND
    found = {choice.setting for choice in plan.choices if "earlier run" in choice.reason}
    assert found == {"samplers", "envs_per_sampler", "batch_size", "learner_threads"}


@pytest.mark.parametrize(
    "fields",
    [
        {"samplers": 3},
        {"max_samplers": 4},
        {"batch_size": 128},
        {"max_batch_size": 128},
        {"envs_per_sampler": 16},
        {"learner_threads": 1},
        {"pin_cores": "no"},
    ],
)
def test_what_was_found_with_other_settings_than_allowed_is_not_used_in_part(fields: dict[str, Any]) -> None:
    config = Config("Pendulum-v1").replace(**fields)
    assert plan_processes(config, WITHOUT_GPU, FOUND) == plan_processes(config, WITHOUT_GPU)


def test_more_samplers_to_try_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"--max-samplers {MAX_SAMPLERS + 1}"):
        planned(Config("Pendulum-v1").replace(max_samplers=MAX_SAMPLERS + 1))


def test_the_learning_rate_is_meant_for_the_batch_that_was_set_or_else_for_the_default() -> None:
    assert planned(Config("Pendulum-v1").replace(batch_size=777)).config.learning.learning_rate_batch == 777
    chosen = planned(Config("Pendulum-v1"))
    assert int(chosen.config.learning.learning_rate_batch) >= chosen.settings.batch_size
    recalled = plan_processes(Config("Pendulum-v1"), WITHOUT_GPU, FOUND)
    assert recalled.config.learning.learning_rate_batch == chosen.config.learning.learning_rate_batch


@pytest.mark.parametrize(("pin_cores", "is_pinned", "may_change"), [("yes", True, False), ("no", False, False)])
def test_cores_are_kept_apart_as_the_user_says(pin_cores: str, is_pinned: bool, may_change: bool) -> None:
    config = Config("Pendulum-v1").replace(pin_cores=pin_cores)
    plan = plan_processes(config, WITHOUT_GPU)
    assert plan.settings.pinned is is_pinned
    assert adaptation_bounds(plan, config, WITHOUT_GPU).may_pin is may_change


@pytest.mark.parametrize(
    "fields",
    [
        {"max_batch_size": 32},
        {"samplers": 100},
        {"batch_size": 4096},
        {"replay_rows": 32},
    ],
)
def test_a_bound_that_is_chosen_gives_way_to_what_is_set(fields: dict[str, int]) -> None:
    config = Config("Pendulum-v1").replace(**fields)
    plan = planned(config)
    bounds = adaptation_bounds(plan, config, WITHOUT_GPU)
    assert bounds.samplers[0] <= plan.settings.samplers <= bounds.samplers[1]
    assert bounds.batch_size[0] <= plan.settings.batch_size <= bounds.batch_size[1]


@pytest.mark.parametrize(
    "fields",
    [{"samplers": 3, "max_samplers": 1}, {"batch_size": 16, "max_batch_size": 8}],
)
def test_what_contradicts_its_own_bounds_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is above --max-"):
        Config("Pendulum-v1").replace(**fields)


# --- two devices ------------------------------------------------------------------------------------------------

PAYING = UpdateTimes(8192, 322, 163, 176, 289, 871_484, 64)
WITH_TWO_GPUS = dataclasses.replace(WITH_GPU, gpus=WITH_GPU.gpus * 2)


@pytest.fixture
def gpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that would use the GPUs of a machine that is only planned for."""
    monkeypatch.setattr("spreeze.adapt.plan.usable_gpu_count", lambda machine: len(machine.gpus))


def sides(config: Config, machine: Machine, times: UpdateTimes | None = PAYING) -> tuple[str | None, str | None]:
    learning = plan_processes(config, machine, update_times=times).config.learning
    return learning.critic_device, learning.actor_device


@pytest.mark.usefixtures("gpu_build")
def test_two_gpus_have_a_side_of_the_learner_each_where_that_pays() -> None:
    config = Config("Pendulum-v1")
    assert sides(config, WITH_TWO_GPUS) == ("cuda:0", "cuda:1")
    assert sides(config, WITH_TWO_GPUS, times=None) == (None, None)
    assert sides(config, WITH_TWO_GPUS, times=PAYING._replace(actor_us=400.0)) == (None, None)
    assert sides(config, WITH_GPU) == (None, None)


@pytest.mark.usefixtures("gpu_build")
def test_what_the_user_says_about_two_devices_comes_first() -> None:
    config = Config("Pendulum-v1")
    assert sides(config.replace(split="no"), WITH_TWO_GPUS) == (None, None)
    assert sides(config.replace(split="yes"), WITH_TWO_GPUS, times=None) == ("cuda:0", "cuda:1")
    assert sides(config.replace(split="yes"), WITH_GPU) == ("cuda", "cuda")
    assert sides(config.replace(device="cuda:1"), WITH_TWO_GPUS) == (None, None)
    devices = {"critic_device": "cuda:1", "actor_device": "cpu"}
    assert sides(config.replace(**devices), WITH_TWO_GPUS) == ("cuda:1", "cpu")


@pytest.mark.usefixtures("gpu_build")
def test_with_one_side_on_the_cpu_everything_suits_the_cpu() -> None:
    on_cpu = planned(Config("Pendulum-v1").replace(device="cpu"), WITH_GPU)
    mixed = planned(Config("Pendulum-v1").replace(critic_device="cuda:0", actor_device="cpu"), WITH_GPU)
    for name in ("samplers", "min_updates_per_step", "tau", "max_batch_size"):
        assert mixed.config.flat()[name] == on_cpu.config.flat()[name], name
    assert mixed.config.learning.batch_size == mixed.config.learning.learning_rate_batch == 512
    assert mixed.config.learning.learner_threads == "auto"
    assert adaptation_bounds(mixed, Config("Pendulum-v1"), WITH_GPU).learner_threads == (1, 2, 3, 4)


@pytest.mark.usefixtures("gpu_build")
@pytest.mark.parametrize(("critic", "actor"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_either_side_may_be_on_the_cpu(critic: str, actor: str) -> None:
    config = Config("Pendulum-v1").replace(critic_device=critic, actor_device=actor, update_engine="graph")
    assert planned(config, WITH_GPU).config.learning.batch_size == 512


@pytest.mark.usefixtures("gpu_build")
def test_a_device_beside_two_others_is_refused() -> None:
    config = Config("Pendulum-v1").replace(critic_device="cuda", actor_device="cuda", device="cpu")
    with pytest.raises(ConfigError, match="--device cpu contradicts"):
        plan_processes(config, WITH_GPU)


@pytest.mark.usefixtures("gpu_build")
@pytest.mark.parametrize(
    "fields", [{"actor_delay": 2}, {"algo": "td3", "actor_delay": 1}, {"atoms": 3, "value_range": (0.0, 1.0)}]
)
def test_times_of_another_update_are_not_used(fields: dict[str, Any]) -> None:
    assert sides(Config("Pendulum-v1").replace(**fields), WITH_TWO_GPUS) == (None, None)


# --- recipes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        ({}, 1.0, 1.0),
        ({"algo": "td3"}, 0.1, 0.4),
        ({"algo": "td3", "exploration": 0.2}, 0.2, 0.2),
        ({"algo": "td3", "exploration_high": 0.8}, 0.1, 0.8),
        ({"algo": "td3", "exploration_high": 0.05}, 0.05, 0.05),
        ({"exploration": 0.5, "exploration_high": 2.0}, 0.5, 2.0),
    ],
)
def test_noise_is_as_the_algorithm_needs_it_and_as_the_user_says(
    fields: dict[str, Any], low: float, high: float
) -> None:
    sampling = planned(Config("Pendulum-v1").replace(**fields)).config.sampling
    assert (sampling.exploration, sampling.exploration_high) == (low, high)


@pytest.mark.usefixtures("gpu_build")
@pytest.mark.parametrize(
    ("env", "setting", "cpu", "gpu"),
    [
        ("Hopper-v5", "n_step", 5, 1),
        ("Hopper-v5", "gamma", 0.995, 0.99),
        ("Walker2d-v5", "n_step", 5, 1),
        ("Walker2d-v5", "gamma", 0.995, 0.99),
        ("Ant-v5", "n_step", 3, 3),
        ("Ant-v5", "gamma", 0.99, 0.99),
        ("HalfCheetah-v5", "n_step", 1, 1),
    ],
)
def test_a_recipe_of_one_kind_of_device_is_not_used_on_another(
    env: str, setting: str, cpu: float, gpu: float
) -> None:
    assert planned(Config(env), WITHOUT_GPU).config.flat()[setting] == cpu
    assert planned(Config(env), WITH_GPU).config.flat()[setting] == gpu
    own = cpu - 0.5 if setting == "gamma" else 2
    assert planned(Config(env).replace(**{setting: own}), WITHOUT_GPU).config.flat()[setting] == own


@pytest.mark.parametrize(("free", "is_saved"), [(3 * 1000 * 32, True), (3 * 1000 * 32 - 1, False)])
def test_the_replay_is_saved_where_the_disk_has_room_for_it(free: int, is_saved: bool) -> None:
    layout = RowLayout(2, 1)
    assert layout.row_bytes == 32
    plan = plan_checkpoints(planned(Config("Pendulum-v1").replace(replay_rows=1000)), layout, free)
    assert plan.config.checkpoints.checkpoint_replay is is_saved
    assert (plan.warnings == ()) is is_saved


# --- in one process ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "ratio"),
    [
        ({}, 1.0),
        ({"min_updates_per_step": 0.25}, 0.25),
        ({"min_updates_per_step": 0.0}, 1.0),  # "never wait" has no meaning there
        ({"max_updates_per_step": 2.0}, 2.0),
        ({"max_updates_per_step": None}, 1.0),
        ({"min_updates_per_step": 0.5, "max_updates_per_step": 4.0}, 4.0),
    ],
)
def test_a_serial_run_makes_all_updates_that_follow_from_a_step(fields: dict[str, Any], ratio: float) -> None:
    plan = plan_processes(Config("Pendulum-v1").replace(serial=True, **fields), WITHOUT_GPU)
    assert plan.config.learning.max_updates_per_step == ratio


def test_nothing_in_a_serial_run_depends_on_time_or_on_other_processes() -> None:
    asked = Config("Pendulum-v1").replace(serial=True, dashboard=True, video=True, video_every=2)
    plan = plan_processes(asked, WITHOUT_GPU)
    config = plan.config
    assert (config.sampling.samplers, config.learning.learner_threads, config.learning.update_engine) == (
        1,
        1,
        "eager",
    )
    assert not config.learning.is_split
    assert (config.adaptation.adapt, config.watching.dashboard, config.watching.video) == (False,) * 3
    assert plan.most_samplers == 1
    assert {"samplers", "split", "learner_threads"} <= {choice.setting for choice in plan.choices}


def test_what_is_set_stays_in_a_serial_run() -> None:
    fields = {"samplers": 3, "learner_threads": 2, "update_engine": "bfloat16"}
    sides = {"actor_device": "cpu", "critic_device": "cpu"}
    config = plan_processes(Config("Pendulum-v1").replace(serial=True, **fields, **sides), WITHOUT_GPU).config
    assert {name: config.flat()[name] for name in fields} == fields
    assert config.learning.is_split
    assert config.learning.is_lock_step


@pytest.mark.usefixtures("gpu_build")
def test_bfloat16_is_for_cpus() -> None:
    with pytest.raises(ConfigError, match="--update-engine bfloat16 is for CPUs"):
        plan_processes(Config("Pendulum-v1").replace(update_engine="bfloat16"), WITH_GPU)


def test_one_real_robot_has_one_environment_and_a_core_that_the_learner_leaves_alone() -> None:
    asked = Config("Pendulum-v1").replace(realtime=50, video=True)
    plan = planned(asked, dataclasses.replace(WITHOUT_GPU, cores=2))
    config = plan.config
    assert (config.sampling.samplers, config.sampling.envs_per_sampler, plan.most_samplers) == (1, 1, 1)
    assert config.learning.min_updates_per_step == 0
    assert config.learning.max_updates_per_step == defaults.MAX_UPDATES_PER_STEP
    assert not config.adaptation.adapt
    assert not config.watching.view
    assert not config.watching.video
    assert not config.evaluation.last_evaluation
    assert config.learning.split == "no"
    assert planned(asked.replace(max_updates_per_step=1.5)).config.learning.max_updates_per_step == 1.5
    assert config.evaluation.eval_episodes == 5
    assert planned(asked.replace(eval_episodes=3)).config.evaluation.eval_episodes == 3
    assert {"samplers", "eval_episodes", "max_updates_per_step"} <= {choice.setting for choice in plan.choices}
