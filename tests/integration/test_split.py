"""Actor and critics in processes of their own: exactly as one learner in lock step, freely otherwise, never half."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel, MessageWriter
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.parameters import ParameterMessage
from spreeze.channels.spaces import ContinuousActions, Spaces
from spreeze.channels.transitions import RingChannel, RowLayout, Rows
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config, LearnerRole
from spreeze.config.env_spec import EnvSpec
from spreeze.learning.learner import Learner
from spreeze.learning.lock_step import LockStepCritic
from spreeze.supervision import launch
from spreeze.supervision.launch import Child

if TYPE_CHECKING:
    from conftest import Spreeze

OBS_DIM, ACT_DIM, HIDDEN, UPDATES = 3, 2, (32, 32), 200
LAYOUT = RowLayout(OBS_DIM, ACT_DIM)
SPACES = Spaces(
    {"kind": "box", "shape": [OBS_DIM]},
    ContinuousActions(np.full(ACT_DIM, -1, np.float32), np.ones(ACT_DIM, np.float32), (ACT_DIM,)),
)
ROWS, RINGS = 1500, 2
GUARD_S = 120.0  # against a hang, not an expectation
SPLIT = {"split": None, "actor_device": "cpu", "critic_device": "cpu"}


def config(**fields: Any) -> Config:
    chosen: dict[str, Any] = {
        "samplers": RINGS,
        "envs_per_sampler": 4,
        "warmup_steps": 50,
        "min_updates_per_step": 0.0,
        "max_updates_per_step": None,
        "hidden": HIDDEN,
        "batch_size": 64,
        "learning_rate_batch": 64,
        "replay_rows": 10_000,
        "tau": 0.02,
        "actor_delay": 1,
        "ring_rows": 2 * ROWS,
        "device": "cpu",
        "learner_threads": 1,
        "update_engine": "eager",
        "max_updates": UPDATES,
        "seed": 3,
    }
    return Config("Pendulum-v1").replace(**{**chosen, **fields})


def some_rows(seed: int) -> Rows:
    rows = np.random.default_rng(seed).standard_normal((ROWS, LAYOUT.width)).astype(np.float32)
    rows[:, LAYOUT.action] = np.tanh(rows[:, LAYOUT.action])
    rows[:, LAYOUT.terminated] = rows[:, LAYOUT.terminated] > 1.5
    rows[:, LAYOUT.discount] = 0.99
    return rows


@contextmanager
def filled_channels(folder: Path, readers: int) -> Iterator[Channels]:
    """Rings with the same rows each time, and nobody who would write more."""
    channels = Channels(
        tuple(RingChannel(f"test-{i}", readers) for i in range(RINGS)),
        WeightsChannel(folder),
        MetricsChannel(),
        ControlChannel(),
    )
    for i, channel in enumerate(channels.transitions):
        channel.allocate(LAYOUT, 2 * ROWS)
        channel.writer().write(some_rows(i), lambda: False)
    for mailbox in (channels.to_actor, channels.to_critic):
        mailbox.allocate(100_000)
    channels.control.order(batch_size=64, learner_threads=1, rings=RINGS, envs_at_work=8)
    yield channels
    channels.close()


def spec_of(channels: Channels, folder: Path, index: int, **fields: Any) -> Brief:
    chosen = config(**fields)
    return Brief(index, index, chosen, EnvSpec(chosen.env), SPACES, folder, time.monotonic(), channels=channels)


def one_device(folder: Path) -> list[torch.Tensor]:
    """Return actor, critics and temperature after the updates of a learner that is whole."""
    folder.mkdir()
    with filled_channels(folder, readers=1) as channels:
        read_fd, write_fd = os.pipe()
        learner = Learner(spec_of(channels, folder, 0), MessageWriter(write_fd))
        while channels.metrics.learner["updates"][0] < UPDATES:
            learner.turn()
        os.close(read_fd)
        os.close(write_fd)
        assert learner._publisher is not None
        algorithm = learner._publisher._algorithm
        return [part.flat.detach().clone() for part in (algorithm.actor, algorithm.temperature, algorithm.critic)]


def two_processes(folder: Path, **fields: Any) -> tuple[ParameterMessage, ParameterMessage, Channels]:
    """Run both sides as processes; return their last messages, and the channels, whose counters stay readable."""
    folder.mkdir()
    # The limit is of the critics' updates. In lock step the actor's side makes as many.
    is_over = (
        (lambda done: min(done) == UPDATES)
        if fields.get("exchange_updates") == "lock-step"
        else (lambda done: done[0] == UPDATES)
    )
    with filled_channels(folder, readers=2) as channels:
        sides: list[Child] = []
        try:
            for index in (0, 1):
                side = launch.start("split_learner", index, index, channels, folder / f"side-{index}.log", 1)
                sides.append(side)
                side.send_brief(spec_of(channels, folder, index, actor_device="cpu", critic_device="cpu", **fields))
            guard = time.monotonic() + GUARD_S
            records = (channels.metrics.learner, channels.metrics.actor)
            while not is_over([int(record["updates"][0]) for record in records]):
                for side in sides:
                    errors = [message for message in side.messages.read() if message["kind"] == "error"]
                    assert not errors, errors[0]["traceback"]
                assert time.monotonic() < guard, [int(record["updates"][0]) for record in records]
            channels.control.stop()
            assert [side.process.wait(GUARD_S) for side in sides] == [0, 0]
        finally:
            for side in sides:
                side.kill()
                side.close()
        of_critic, of_actor = channels.to_actor.reader().newest(), channels.to_critic.reader().newest()
        assert of_critic is not None
        assert of_actor is not None
        return of_critic, of_actor, channels


def test_in_lock_step_two_processes_make_the_updates_of_one(tmp_path: Path) -> None:
    actor, temperature, critic = one_device(tmp_path / "one")
    of_critic, of_actor, channels = two_processes(tmp_path / "two", exchange_updates="lock-step")
    assert of_critic.updates == of_actor.updates == UPDATES
    np.testing.assert_allclose(of_critic.parameters, critic.numpy(), rtol=0, atol=1e-5)
    expected = torch.cat([actor, temperature]).numpy()
    np.testing.assert_allclose(of_actor.parameters, expected, rtol=0, atol=1e-5)
    assert int(channels.metrics.actor["others_updates"][0]) == UPDATES


def test_running_freely_both_sides_take_every_row_once_and_each_other_s_parameters(tmp_path: Path) -> None:
    of_critic, of_actor, channels = two_processes(tmp_path / "two", exchange_updates=2)
    critic, actor = channels.metrics.learner, channels.metrics.actor
    for record in (critic, actor):
        assert int(record["rows_consumed"][0]) == RINGS * ROWS
        # With one copy of the other's parameters a side makes 16 updates at most.
        messages = (
            int(record["exchanged_bytes"][0]) // (of_actor if record is critic else of_critic).parameters.nbytes
        )
        assert messages >= (int(record["updates"][0]) - 16) // 16
    assert int(critic["updates"][0]) == UPDATES
    assert int(actor["updates"][0]) <= UPDATES + 2


@pytest.mark.parametrize("role", ["critic", "actor"])
def test_a_side_waits_for_newer_parameters_when_it_has_used_the_same_too_long(
    tmp_path: Path, role: LearnerRole
) -> None:
    with filled_channels(tmp_path, readers=2) as channels:
        read_fd, write_fd = os.pipe()
        spec = spec_of(channels, tmp_path, 0, actor_device="cpu", critic_device="cpu", exchange_updates=3)
        side = Learner(spec, MessageWriter(write_fd), role)
        if role == "actor":
            channels.metrics.learner["updates"] = UPDATES  # far ahead: that alone never stops the actor's side
        own = channels.metrics.actor if role == "actor" else channels.metrics.learner
        inbox = channels.to_actor if role == "actor" else channels.to_critic
        assert side.exchange is not None
        others = side.exchange._algorithm.others()
        parameters = np.concatenate([tensor.detach().numpy() for tensor in others])
        for messages in range(3):
            for _ in range(60):
                side.turn()
            assert int(own["updates"][0]) == 24 * (messages + 1)
            inbox.writer().send(parameters, 7 * (messages + 1))
        side.turn()
        assert int(own["others_updates"][0]) == 21
        os.close(read_fd)
        os.close(write_fd)


def test_in_lock_step_a_round_without_an_update_reports_no_losses(tmp_path: Path) -> None:
    with filled_channels(tmp_path, readers=2) as channels:
        read_fd, write_fd = os.pipe()
        fields = {
            "actor_device": "cpu",
            "critic_device": "cpu",
            "exchange_updates": "lock-step",
            "warmup_steps": 10**6,
        }
        critic = LockStepCritic(Learner(spec_of(channels, tmp_path, 0, **fields), MessageWriter(write_fd), "critic"))
        channels.control.stop()  # else it would wait for the other side
        critic.turn()
        assert int(channels.metrics.learner["rows_consumed"][0]) == RINGS * ROWS
        assert int(channels.metrics.learner["updates"][0]) == 0
        os.close(read_fd)
        os.close(write_fd)


@pytest.mark.gpu
def test_parameters_leave_a_gpu_while_updates_run(tmp_path: Path) -> None:
    with filled_channels(tmp_path, readers=2) as channels:
        read_fd, write_fd = os.pipe()
        devices = {"actor_device": "cuda", "critic_device": "cuda", "device": "cuda"}
        spec = spec_of(channels, tmp_path, 0, **devices, exchange_updates=1, max_updates=10**6)
        side, outbox = Learner(spec, MessageWriter(write_fd), "critic"), channels.to_actor.reader()
        assert side.exchange is not None
        side.exchange._max_lag = 10**6  # nobody answers here
        messages = 0
        for _ in range(200):
            side.turn()
            messages += outbox.newest() is not None
        # A copy is queued behind the launch before it, and the host is two launches ahead at most.
        assert messages >= 200 // 4 - 4
        os.close(read_fd)
        os.close(write_fd)


def test_mirrors_hold_the_same_rows(spreeze: Spreeze) -> None:
    watched = spreeze.with_replay_digests()
    finished = spreeze.train("Toy/Point-v0", environment=watched, **SPLIT, samplers=2, max_env_steps=3000)
    assert finished.returncode == 0, finished.stderr
    replays = spreeze.replay_digests()
    assert set(replays) == {"critic", "actor"}
    assert replays["critic"] == replays["actor"]
    assert replays["critic"][0] >= 3000


def test_steps_that_are_under_way_at_the_end_reach_both_sides(spreeze: Spreeze, tmp_path: Path) -> None:
    (counts := tmp_path / "counts").mkdir()
    kwargs = json.dumps({"step_s": 0.1, "count_dir": str(counts)})
    few = {"samplers": 2, "envs_per_sampler": 1, "warmup_steps": 4}
    watched = spreeze.with_replay_digests()
    run = spreeze.start_training("Toy/Endless-v0", environment=watched, **SPLIT, **few, env_kwargs=kwargs)
    spreeze.wait_until(lambda: _both_have_updated(spreeze), "updates of both sides", run=run)
    run.process.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    played = sum(path.stat().st_size for path in counts.glob("sampler-*"))
    assert {side: rows for side, (rows, _) in spreeze.replay_digests().items()} == {"critic": played, "actor": played}


def _both_have_updated(spreeze: Spreeze) -> bool:
    # Either side may be the last to start, and one that has not started takes no rows.
    return any(line["updates"] > 0 and line["actor_updates"] > 0 for line in spreeze.journal("metrics"))


def test_figures_of_both_sides_are_in_the_metrics(spreeze: Spreeze) -> None:
    run = spreeze.start_training("Toy/Point-v0", **SPLIT)
    losses = ("critic_loss", "actor_loss", "temperature", "entropy", "q_mean")

    def both_are_at_work() -> bool:
        lines = spreeze.journal("metrics")
        return bool(lines) and lines[-1]["actor_updates"] > 500 and all(lines[-1][loss] for loss in losses)

    spreeze.wait_until(both_are_at_work, "figures of both sides", run=run)
    spreeze.wait_until(
        lambda: spreeze.journal("evaluations"), "an evaluation of what the actor's side publishes", run=run
    )
    run.process.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    last = spreeze.journal("metrics")[-1]
    assert last["exchanged_bytes"] > 0
    assert last["exchange_s"] > 0
    assert last["actor_exchange_s"] > 0
    assert abs(last["updates"] - last["actor_updates"]) <= last["updates"] // 2 + 1024


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({**SPLIT, "split": "no"}, "--split no contradicts"),
        ({"actor_device": "cpu"}, "--actor-device needs --critic-device too"),
        ({"critic_device": "cpu"}, "--critic-device needs --actor-device too"),
        ({**SPLIT, "actor_device": "tpu"}, "--actor-device must be cpu, cuda or cuda:N, not 'tpu'"),
        ({**SPLIT, "critic_device": "cuda:64", "device": None}, "--critic-device cuda:64"),
        ({**SPLIT, "exchange_updates": 0}, "--exchange-updates must be at least 1"),
        ({**SPLIT, "exchange_updates": "sometimes"}, "--exchange-updates must be a whole number or lock-step"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_line(spreeze: Spreeze, flags: dict[str, Any], said: str) -> None:
    finished = spreeze("train", "Toy/Point-v0", *spreeze.small(**flags, max_updates=10))
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core for each side")
def test_on_a_cpu_of_several_cores_a_run_is_split(spreeze: Spreeze) -> None:
    assert spreeze.train("Toy/Point-v0", split=None, max_updates=77).returncode == 0
    assert spreeze.read("summary.json")["updates"] == 77
    (choice,) = [event for event in spreeze.journal("events") if event.get("setting") == "split"]
    assert choice["value"] == "yes"
    assert spreeze.read("config.json")["actor_device"] == "cpu"


def test_on_one_core_a_run_is_not_split(spreeze: Spreeze) -> None:
    core = {min(os.sched_getaffinity(0))}
    assert spreeze.start_training("Toy/Point-v0", cores=core, split=None, max_updates=50).finish().returncode == 0
    assert spreeze.read("config.json")["actor_device"] is None
