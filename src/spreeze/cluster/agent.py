"""An agent: starts, watches and replaces the samplers of its machine, and hands their rows to the head in blocks.

In: an `AgentOrder`, the head's pulses, versions of the weights. Out: blocks of rows, and reports. Its samplers are
the same programs as the head's, in front of the same channels: rings that the agent drains, a folder of weights that
it writes, and counters in which it mirrors those of the head, so that they keep the ratio of updates to steps of the
whole run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

from spreeze.channels import Channels
from spreeze.channels.transitions import RowLayout
from spreeze.channels.transport import DEFAULT_TRANSPORT
from spreeze.cluster.ledger import Ledger
from spreeze.cluster.orders import HUNG_S, LEASE_S, AgentOrder, AgentReport, HeadState
from spreeze.cluster.relay import Block, Outbox
from spreeze.config.run_settings import RunSettings
from spreeze.errors import ProcessFailed, one_line
from spreeze.host.process_group import guarded, kill_together
from spreeze.supervision.launch import Launcher
from spreeze.supervision.restart_policy import Attention
from spreeze.supervision.samplers import Samplers

TURN_S = 0.02  # samplers are looked after as often as the supervisor does, and the lease is checked
DRAIN_S = 0.002  # a sampler at 20,000 steps/s has written 40 rows by then; an idle look costs 20 microseconds
ASKED_S = 0.5  # how long a question for a block waits: shorter than the head's patience
DELIVERY_S = 0.5  # for samplers to end by themselves, as at the head
MAX_WARNINGS = 20  # between two reports: an environment that fails at once does so a few times


class Agent:
    """Its methods are called from different threads; what it watches with is a thread of its own."""

    def __init__(self, order: bytes, kept_folder: str = "") -> None:
        """kept_folder: where files outlive this process, but not the machine's time in the cluster."""
        self._order: AgentOrder = cloudpickle.loads(order)
        name = self._order.ledger
        self._ledger = Ledger(Path(kept_folder) / name if kept_folder and name else None, self._order.rows_sampled)
        self._folder = Path(tempfile.mkdtemp(prefix="spreeze-agent-"))
        self._channels = _make_channels(self._order, self._folder)
        self._readers = [channel.reader() for channel in self._channels.transitions]
        layout = RowLayout.of(self._order.spaces)
        self._outbox = Outbox(layout.width, self._rows_written)
        self._heard_at = time.monotonic()
        self._wanted, self._asked_for = self._order.samplers, 0
        self._warnings: list[tuple[str, str]] = []
        self._failure: tuple[str, str] | None = None
        self._at_work = (0, 0)
        self._blocked_s = 0.0
        self._is_over = threading.Event()
        self._have_ended = threading.Event()
        # A sampler ends with the thread that has started it (PR_SET_PDEATHSIG): this one stays as long as the agent.
        threading.Thread(target=self._watch, name="agent", daemon=True).start()
        threading.Thread(target=self._drain, name="drain", daemon=True).start()

    # --- what the head calls -----------------------------------------------------------------------------------

    def pulse(self, state: HeadState) -> AgentReport:
        """Mirror what samplers have to know of the run; report what they have done."""
        self._heard_at = time.monotonic()
        metrics, state = self._channels.metrics, HeadState(*state)
        learner = metrics.learner[0]
        learner["steps_offset"], learner["steps_ahead"] = state.steps_elsewhere, state.steps_ahead
        learner["updates"] = state.updates
        self._channels.control.order(1, 1, len(self._readers), state.envs_at_work)
        self._wanted = min(state.samplers, self._order.samplers)
        warnings, self._warnings = self._warnings, []
        samplers, (at_work, envs) = metrics.samplers, self._at_work
        published = [at for at in samplers["policy_published_at"].tolist() if at]
        return AgentReport(
            env_steps=int(samplers["env_steps"].sum()),
            episodes=int(samplers["episodes"].sum()),
            return_sum=float(samplers["return_sum"].sum()),
            ring_wait_s=float(samplers["ring_wait_s"].sum()),
            ratio_wait_s=float(samplers["ratio_wait_s"].sum()),
            policy_published_at=min(published, default=0.0),
            samplers=at_work,
            envs=envs,
            has_stepped=bool(samplers["first_step_at"].any()),
            rows_written=self._rows_written(),
            blocked_s=self._blocked_s,
            warnings=tuple(warnings),
            failure=self._failure,
            rows_before=self._ledger.before,
        )

    def next_block(self, number: int, acknowledged: int) -> Block | None:
        """Return a block by its number, or None if there is none yet."""
        return self._outbox.take(number, acknowledged, ASKED_S)

    def take_weights(self, version: int, content: Any) -> None:
        """Let samplers act with this version. content: what its file holds."""
        if self._is_over.is_set():
            return  # its folder may be gone already
        with contextlib.suppress(OSError):  # a full disk: they act with the one before, and the lag shows it
            self._channels.weights.take_over(version, bytes(content))

    def finish(self) -> None:
        """End all samplers; what they have written follows in the last blocks."""
        self._is_over.set()
        self._have_ended.wait(2 * DELIVERY_S)

    # --- threads -----------------------------------------------------------------------------------------------

    def _rows_written(self) -> int:
        return sum(channel.written() or 0 for channel in self._channels.transitions)

    def _drain(self) -> None:
        """Take rows out of the rings, as long as there is room for them."""
        while True:
            was_last_look = self._have_ended.is_set()  # nobody writes after that
            drained = 0
            self._ledger.write(self._rows_written())
            for reader in self._readers:
                for rows in reader.read(reader.position + self._outbox.room):
                    drained += self._outbox.add(rows)
            if not drained and was_last_look and all(channel.is_empty() for channel in self._channels.transitions):
                self._outbox.close()
                self._ledger.remove()
                return
            if not drained:
                began, is_blocked = time.monotonic(), not self._outbox.room
                time.sleep(DRAIN_S)  # for samplers, or for the head to take a block
                self._blocked_s += (time.monotonic() - began) * is_blocked

    def _watch(self) -> None:
        """Look after the samplers until the head ends them, or is not heard any more."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._have_ended.set)
            # What environments have started, and the folder, go with this process, however it ends. One that hangs
            # ends too: Ray takes 5 s to kill it, and starts no other as long as it holds its CPUs.
            closing.enter_context(guarded(folder=self._folder, hang_s=HUNG_S))
            closing.callback(shutil.rmtree, self._folder, ignore_errors=True)
            launcher = Launcher(self._order.env, self._channels, self._folder, self._heard_at)
            launcher.begin(self._order.config, self._order.spaces, self._order.policy_kind)
            samplers = Samplers(self._channels, launcher.start_sampler)
            closing.callback(lambda: _end(samplers))
            attention = Attention(time.monotonic())
            (self._folder / "logs").mkdir()
            while not self._is_over.wait(TURN_S):
                if time.monotonic() - self._heard_at > LEASE_S:
                    break
                try:
                    self._turn(samplers, attention)
                except ProcessFailed as error:
                    self._fail(f"{error.role} failed: {error.reason}", error.traceback)
                    break
                except Exception as error:  # of ours: it is to be seen at the head
                    self._fail(f"its agent failed: {type(error).__name__}: {one_line(error)}", traceback.format_exc())
                    break
            else:
                _dismiss(samplers, self._channels)
        while time.monotonic() - self._heard_at <= LEASE_S:
            time.sleep(TURN_S)  # for the head, which ends this process once it has all blocks
        self._exit()

    def _turn(self, samplers: Samplers, attention: Attention) -> None:
        config, wanted = self._order.config, self._wanted
        if wanted != self._asked_for:
            self._asked_for = wanted
            samplers.want(RunSettings(wanted, int(config.sampling.envs_per_sampler), 1, 1))
        attention.turn(time.monotonic(), config.sampling.hang_s)
        samplers.watch(config.sampling, attention)
        samplers.turn()
        for _, message in samplers.read_messages():
            if message["kind"] == "event" and len(self._warnings) < MAX_WARNINGS:
                self._warnings.append((str(message["reason"]), str(message.get("traceback", ""))))
        self._at_work = (samplers.at_work, samplers.envs_at_work)

    def _fail(self, reason: str, trace: str) -> None:
        self._at_work, self._failure = (0, 0), (reason, trace)

    def _exit(self) -> None:
        """End this process: who is cut off from the head may be so for good, and nobody else would end it."""
        written = self._rows_written()
        print(
            f"spreeze: no word from the head for {LEASE_S:g} s; its samplers had written {written} rows", flush=True
        )
        os._exit(1)


def _make_channels(order: AgentOrder, folder: Path) -> Channels:
    """Make the channels between the agent and its samplers."""
    channels = DEFAULT_TRANSPORT.make_channels(max(1, order.samplers), 1, folder / "weights")
    layout = RowLayout.of(order.spaces)
    for channel in channels.transitions:
        channel.allocate(layout, int(order.config.sampling.ring_rows))
    return channels


def _dismiss(samplers: Samplers, channels: Channels) -> None:
    """Let samplers end after their step, with all rows written."""
    for child in samplers.children:
        channels.control.dismiss(child.slot)
    deadline = time.monotonic() + DELIVERY_S
    while any(child.process.poll() is None for child in samplers.children) and time.monotonic() < deadline:
        time.sleep(0.005)  # for the samplers


def _end(samplers: Samplers) -> None:
    kill_together([child.process for child in samplers.children])
    for child in samplers.children:
        child.close()
