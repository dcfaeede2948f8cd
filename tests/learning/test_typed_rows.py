"""Rows with indices and images among their numbers, from the sampler to a batch: each field comes out as it was."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from spreeze.channels import Channels
from spreeze.channels.brief import Brief
from spreeze.channels.control import ControlChannel
from spreeze.channels.metrics import MetricsChannel
from spreeze.channels.spaces import DiscreteActions, Spaces
from spreeze.channels.transitions import RingChannel, RowLayout, Rows
from spreeze.channels.weights import WeightsChannel
from spreeze.config import Config
from spreeze.config.env_spec import EnvSpec
from spreeze.learning.intake import Intake
from spreeze.learning.replay import Replay
from spreeze.runs.replay_log import ReplayLog, read_rows
from spreeze.sampling.multi_step import MultiStep

IMAGE = (3, 5, 1)  # 15 bytes: they do not fill their words
SPACES = Spaces(
    {"kind": "dict", "parts": {"arm": {"kind": "box", "shape": [2]}, "eye": {"kind": "image", "shape": IMAGE}}},
    DiscreteActions("multi_discrete", (3, 2**30), (0, 0), (2,), "int64"),
)
LAYOUT = RowLayout.of(SPACES)


def drawn_rows(count: int, seed: int = 0) -> Rows:
    """Rows whose indices and images have bits that are no number as float32: NaN, infinity, huge ones."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, LAYOUT.width), np.float32)
    records = LAYOUT.records(rows)
    for name in ("observation", "next_observation", "reward"):
        records[name] = rng.standard_normal(records[name].shape)
    records["reward"] = np.arange(count)  # tells a row
    records["action"] = rng.integers(0, 2**30, records["action"].shape)
    for name in ("observation.eye", "next_observation.eye"):
        records[name] = rng.choice(np.array([0, 127, 128, 255], np.uint8), records[name].shape)
    return rows


def test_rows_go_through_the_ring_and_the_intake_bit_by_bit(tmp_path: Path) -> None:
    channels = Channels((RingChannel("test"),), WeightsChannel(tmp_path), MetricsChannel(), ControlChannel())
    channels.transitions[0].allocate(LAYOUT, 64)
    channels.control.order(32, 1, rings=1, envs_at_work=1)
    config = Config("x")
    brief = Brief(0, 0, config, EnvSpec("x"), SPACES, tmp_path, time.monotonic(), channels=channels)
    intake, rows = Intake(brief, LAYOUT, channels.metrics.learner, 0), drawn_rows(40)
    assert not np.isfinite(rows).all()  # or the test could not fail
    rows[7, LAYOUT.next_observation] = np.nan
    channels.transitions[0].writer().write(rows, lambda: False)
    taken = np.concatenate([block.copy() for block in intake.usable_rows()])
    assert taken.tobytes() == np.delete(rows, 7, axis=0).tobytes()
    channels.close()


def test_a_batch_has_each_field_in_its_own_type() -> None:
    replay, rows = Replay(LAYOUT, 50, torch.device("cpu")), drawn_rows(40)
    replay.add(rows)
    batch, records = replay.draw(200), LAYOUT.records(rows)
    at = batch.reward.int().numpy()
    assert batch.action.dtype == torch.int32
    np.testing.assert_array_equal(batch.action.numpy(), records["action"][at])
    np.testing.assert_array_equal(batch.observation.numpy(), records["observation"][at])
    assert replay._rows[: len(rows)].numpy().tobytes() == rows.tobytes()  # images among them


def test_the_replay_on_disk_holds_the_same_bits(tmp_path: Path) -> None:
    folder, rows = tmp_path / "run" / "checkpoint" / "replay", drawn_rows(40)
    folder.parent.mkdir(parents=True)
    log = ReplayLog(folder, LAYOUT.width)
    log.append(0, rows)
    read = np.concatenate([block for _, block in read_rows(folder, log.extents(), LAYOUT.width)])
    assert read.tobytes() == rows.tobytes()


def test_a_transition_over_several_steps_has_what_was_seen_and_done_first() -> None:
    rows, several = drawn_rows(3), MultiStep(LAYOUT, 1, 3, 0.5)
    made = [several.add(rows[i : i + 1], np.array([False])) for i in range(3)]
    (several_steps,), records = LAYOUT.records(made[-1]), LAYOUT.records(rows)
    for name in ("observation", "observation.eye", "action"):
        np.testing.assert_array_equal(several_steps[name], records[name][0])
    for name in ("next_observation", "next_observation.eye"):
        np.testing.assert_array_equal(several_steps[name], records[name][2])
    assert several_steps["reward"] == 0 + 0.5 * 1 + 0.25 * 2
