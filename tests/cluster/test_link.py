"""The head's end of an agent, with an agent in this process: every row in the ring once, or counted as lost."""

from __future__ import annotations

import numpy as np
import pytest
from fake_agent import LAYOUT, STATE, VERSIONS, FakeActor, rows

from spreeze.channels.machines import MachinesChannel, MachineState, settle
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.transitions import RingChannel, Rows
from spreeze.cluster.link import AgentFailed, AgentLink, Stage


class Head:
    """A ring, records and a link, as the gateway has them."""

    def __init__(self, ring_rows: int = 100) -> None:
        self.channel = RingChannel("ring")
        self.channel.allocate(LAYOUT, ring_rows)
        self.reader = self.channel.reader()
        self.machine, self.sampler = MachinesChannel(0, 1).records, MetricsChannel().samplers[:1]
        self.actor = FakeActor()
        self.link = self.begin()

    def begin(self) -> AgentLink:
        self.actor = FakeActor()
        link = AgentLink(self.actor, self.actor.take, self.channel, self.machine, self.sampler, ("spreeze",))
        self.link = link
        self.turn()
        assert link.greeting == VERSIONS
        link.begin(b"")
        self.turn()
        assert link.stage == Stage.WORKING
        return link

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.link._pulse_due_at = 0.0  # no test waits for the time of a pulse
            self.link.turn(set(self.link.under_way), lambda _: STATE)

    def read(self) -> Rows:
        return np.concatenate(
            [np.empty((0, LAYOUT.width), np.float32), *(block.copy() for block in self.reader.read())]
        )


def test_rows_of_an_agent_come_into_the_ring_and_its_counters_into_its_record() -> None:
    head = Head()
    head.actor.sample(rows(0, 5))
    head.turn(3)
    assert np.array_equal(head.read(), rows(0, 5))
    sampler, machine = head.sampler[0], head.machine[0]
    assert (sampler["env_steps"], sampler["episodes"], sampler["return_sum"]) == (5, 2, -3.0)
    assert (sampler["policy_published_at"], sampler["first_step_at"] > 0) == (7.0, True)
    assert (machine["state"], machine["samplers"], machine["envs"]) == (MachineState.AT_WORK, 1, 4)
    assert (machine["rows_sampled"], machine["bytes_arrived"]) == (5, 5 * LAYOUT.row_bytes)


def test_rows_that_find_no_room_wait_and_no_more_are_asked_for() -> None:
    head = Head(ring_rows=4)
    head.actor.sample(rows(0, 10))
    head.turn(3)
    asked = len(head.actor.answers)
    head.turn(3)
    assert len(head.actor.answers) <= asked
    got = [head.read()]
    for _ in range(4):
        head.turn()
        got.append(head.read())
    assert np.array_equal(np.concatenate(got), rows(0, 10))
    assert head.machine["learner_wait_s"][0] > 0


def test_a_block_is_acknowledged_only_when_all_its_rows_are_in_the_ring() -> None:
    head = Head(ring_rows=4)
    head.actor.sample(rows(0, 6))
    head.turn(3)
    assert not head.actor.outbox.is_empty
    head.read()
    head.turn(3)
    head.actor.take(head.link.under_way[-1])
    assert head.actor.outbox.is_empty


def test_what_an_agent_had_sampled_and_not_sent_is_lost_and_counted_once() -> None:
    head = Head()
    head.actor.sample(rows(0, 5))
    head.turn(3)
    head.actor.written += 3  # it reports them, and dies
    head.turn()
    assert head.link.settle() == 3
    assert (head.machine["rows_sampled"][0], head.machine["rows_lost"][0]) == (8, 3)
    assert head.sampler["env_steps"][0] == len(head.read()) == 5
    head.begin()
    head.actor.sample(rows(5, 4))
    head.turn(3)
    assert head.link.settle() == 0
    assert (head.machine["rows_sampled"][0], head.machine["rows_lost"][0]) == (12, 3)
    assert head.sampler["env_steps"][0] == 9


def test_what_an_agent_has_sampled_since_its_last_report_is_counted_by_the_next_one() -> None:
    head = Head()
    head.actor.sample(rows(0, 5))
    head.turn(3)
    assert head.link.settle() == 0
    link = head.begin()
    head.actor.rows_before = 12  # seven that nobody has heard of
    head.actor.sample(rows(12, 4))
    head.turn(3)
    head.turn(3)  # told with each report, counted once
    assert (head.machine["rows_sampled"][0], head.machine["rows_lost"][0]) == (16, 7)
    assert [reason for reason, _ in link.warnings] == ["7 rows that it sampled before it was lost are lost too"]
    assert head.link.settle() == 0
    assert len(head.read()) == 9


def test_a_gateway_that_is_started_again_counts_what_the_one_before_had_under_way() -> None:
    head = Head()
    head.actor.sample(rows(0, 5))
    head.turn(3)
    head.actor.written += 2
    head.turn()
    assert settle(head.channel, head.machine, head.sampler) == 2  # as the next one begins
    assert head.machine["samplers"][0] == head.machine["envs"][0] == 0


def test_the_last_rows_of_an_agent_are_delivered_before_it_ends() -> None:
    head = Head()
    head.turn(2)
    head.actor.sample(rows(0, 7))
    head.link.finish()
    head.turn(6)
    assert head.link.stage == Stage.DELIVERED
    assert np.array_equal(head.read(), rows(0, 7))
    assert head.link.settle() == 0


def test_an_agent_that_raises_is_lost_with_its_reason() -> None:
    head = Head()
    head.turn(2)

    def raise_error() -> None:
        raise OSError("no space left\nand a trace of many lines")

    head.actor.answers = dict.fromkeys(head.actor.answers, raise_error)
    with pytest.raises(AgentFailed, match=r"^OSError: no space left$"):
        head.turn()


def test_an_agent_that_is_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head()
    head.turn(2)
    monkeypatch.setattr("spreeze.cluster.link.SILENCE_S", -1.0)
    with pytest.raises(AgentFailed, match="does not answer"):
        head.link.turn(set(), lambda _: STATE)
