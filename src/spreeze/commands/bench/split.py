"""`spreeze bench split`: would actor and critics on two devices be faster than both on one?

Measured one after the other, each alone: a whole update on one device, the critics' side of it, the actor's side, and
an exchange of parameters. Two devices take as long as the slower side: the gain is a prediction.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from spreeze.adapt.update_times import UpdateTimes
from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.channels.parameters import MailboxChannel
from spreeze.commands.bench.learner import Task, make_algorithm, measure_learner
from spreeze.commands.bench.machine import write_benchmark
from spreeze.config import LearnerRole
from spreeze.host.output_files import require_writable
from spreeze.learning.transfers import Readback

EXCHANGES = 20


def bench_split(
    critic: Task, actor_device: str, batch_sizes: tuple[int, ...], every: int, seconds: float, json_path: Path | None
) -> list[UpdateTimes]:
    """Measure an update at every batch size, print a table and a verdict. critic: the task on the critics' device."""
    require_writable(json_path)
    measured = [measure_split(critic, actor_device, size, every, seconds) for size in batch_sizes]
    console = Console()
    console.print(_table(critic, actor_device, measured))
    for times in measured:
        console.print(str(times), soft_wrap=True)
    about = {"critic_device": critic.device, "actor_device": actor_device, "task": asdict(critic)}
    figures = [{**times._asdict(), "predicted_gain": times.predicted_gain} for times in measured]
    write_benchmark(json_path, "split", {**about, "figures": figures})
    return measured


def measure_split(critic: Task, actor_device: str, batch_size: int, every: int, seconds: float) -> UpdateTimes:
    """Measure the times of one update at one batch size."""

    def update_us(device: str, role: LearnerRole) -> float:
        sizes = (critic.obs_dim, critic.act_dim, critic.hidden)
        return 1e6 / measure_learner(device, batch_size, *sizes, seconds, role, critic.algo)

    whole_us = update_us(critic.device, "all")
    critic_us, actor_us = update_us(critic.device, "critic"), update_us(actor_device, "actor")
    sides = (
        make_algorithm(critic, torch.device(critic.device), "critic"),
        make_algorithm(critic, torch.device(actor_device), "actor"),
    )
    assert isinstance(sides[0], ActorCritic), "the plan has refused others"
    assert isinstance(sides[1], ActorCritic)
    exchange_us, exchange_bytes = _exchange_us(sides[0], sides[1])
    return UpdateTimes(batch_size, whole_us, critic_us, actor_us, exchange_us, exchange_bytes, every)


def _exchange_us(critic: ActorCritic, actor: ActorCritic) -> tuple[float, int]:
    """Return the mean time of a side to send its parameters and load the other's, and the exchanged bytes."""
    times, crossed = [], 0
    for sender, receiver in ((critic, actor), (actor, critic)):
        mailbox = MailboxChannel("bench")
        mailbox.allocate(sum(tensor.numel() for tensor in sender.own()))
        writer, reader, readback = mailbox.writer(), mailbox.reader(), Readback()
        spent: list[float] = []
        crossed += sum(4 * tensor.numel() for tensor in sender.own())
        for number in range(EXCHANGES):
            began = time.perf_counter()
            readback.start({"own": torch.cat([tensor.detach() for tensor in sender.own()])})
            arrived = readback.take(wait=True)
            assert arrived is not None
            writer.send(arrived["own"], number)
            message = reader.newest()
            assert message is not None
            at = 0
            for tensor in receiver.others():
                tensor.copy_(torch.from_numpy(message.parameters[at : at + tensor.numel()]))
                at += tensor.numel()
            spent.append(time.perf_counter() - began)
        times.append(1e6 * statistics.median(spent))
        mailbox.close()
    # Each side sends in one direction and loads in the other: half of both together.
    return sum(times) / 2, crossed


def _table(critic: Task, actor_device: str, measured: list[UpdateTimes]) -> Table:
    table = Table(
        title=f"{critic.algo.upper()}, {critic.obs_dim} observations, {critic.act_dim} actions, "
        f"critics on {critic.device}, actor on {actor_device}; microseconds",
        box=None,
        pad_edge=False,
        title_justify="left",
    )
    for column in ("batch", "update", "critics", "actor", "exchange", "bytes", "predicted gain"):
        table.add_column(column, justify="right", no_wrap=True)
    for times in measured:
        table.add_row(
            f"{times.batch_size:,}",
            f"{times.whole_us:,.0f}",
            f"{times.critic_us:,.0f}",
            f"{times.actor_us:,.0f}",
            f"{times.exchange_us:,.0f}",
            f"{times.exchange_bytes:,}",
            f"{times.predicted_gain:.2f}",
        )
    return table
