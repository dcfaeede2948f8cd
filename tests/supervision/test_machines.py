from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spreeze.channels import Channels
from spreeze.channels.machines import MachineState
from spreeze.channels.transitions import RowLayout
from spreeze.channels.transport import DEFAULT_TRANSPORT
from spreeze.supervision.machines import MachinesReader

LAYOUT = RowLayout(2, 1)


@pytest.fixture
def channels(tmp_path: Path) -> Channels:
    made = DEFAULT_TRANSPORT.make_channels(samplers=2, learners=1, weights_folder=tmp_path, machines=3)
    for channel in made.transitions:
        channel.allocate(LAYOUT, 16)
    return made


def test_rings_of_machines_come_after_those_of_samplers(channels: Channels) -> None:
    assert (len(channels.transitions), channels.rings_here) == (5, 2)
    assert channels.machines.rings == 0
    channels.machines.records[1]["state"] = MachineState.JOINING
    assert channels.machines.rings == 4


def test_a_run_on_one_machine_has_no_figures_of_others(tmp_path: Path) -> None:
    assert MachinesReader(DEFAULT_TRANSPORT.make_channels(1, 1, tmp_path)).read() is None


def test_what_was_sampled_has_arrived_is_lost_or_is_under_way(channels: Channels) -> None:
    reader, record = MachinesReader(channels), channels.machines.records[0]
    record["name"], record["state"], record["samplers"] = b"alpha", MachineState.AT_WORK, 4
    reader.read()
    channels.transitions[2].writer().write(np.zeros((6, LAYOUT.width), np.float32), lambda: True)
    record["rows_sampled"], record["rows_lost"], record["bytes_arrived"] = 10, 3, 240
    channels.metrics.samplers["policy_published_at"][2] = 1.0
    figures = reader.read()
    assert figures is not None
    assert (figures.rows_sampled, figures.rows_arrived, figures.rows_lost) == (10, 6, 3)
    (machine,) = figures.machines
    assert (machine.name, machine.state, machine.samplers, machine.rows_arrived) == ("alpha", "at_work", 4, 6)
    assert machine.rows_hz > 0
    assert machine.bytes_hz > 0
    assert machine.policy_lag_s
    again = reader.read()
    assert again is not None
    assert again.machines[0].rows_hz == 0.0


@pytest.mark.parametrize(("field", "what"), [("link_wait_s", "link"), ("learner_wait_s", "learner"), ("", None)])
def test_what_holds_rows_up_is_named(channels: Channels, field: str, what: str | None) -> None:
    reader, record = MachinesReader(channels), channels.machines.records[0]
    record["state"] = MachineState.AT_WORK
    reader.read()
    if field:
        record[field] = 1000.0
    figures = reader.read()
    assert figures is not None
    assert figures.machines[0].waits_for == what


def test_without_a_gateway_no_machine_is_at_work_and_what_was_under_way_is_lost(channels: Channels) -> None:
    record = channels.machines.records[1]
    record["state"], record["samplers"], record["envs"] = MachineState.AT_WORK, 4, 16
    record["rows_sampled"] = 10
    channels.transitions[3].writer().write(np.zeros((6, LAYOUT.width), np.float32), lambda: True)
    channels.metrics.samplers["env_steps"][3], channels.metrics.samplers["policy_published_at"][3] = 10, 1.0
    for _ in range(2):
        channels.settle_machines()
        assert (channels.machines.samplers_at_work, channels.machines.envs_at_work) == (0, 0)
        assert (record["state"], record["rows_lost"]) == (MachineState.AWAY, 4)
        assert channels.metrics.samplers["env_steps"][3] == 6
        assert channels.metrics.samplers["policy_published_at"][3] == 0
