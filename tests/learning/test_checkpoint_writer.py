"""A learner is saved while it learns, and another one continues from the checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import making
import numpy as np
import pytest
import torch

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.channels.transitions import RowLayout, Rows
from spreeze.channels.weights import read_weights, write_weights
from spreeze.config.own_settings import find_algorithm
from spreeze.errors import CheckpointError
from spreeze.learning import checkpoint_writer
from spreeze.learning.checkpoint_writer import CheckpointWriter, NotSaved, Saved, named_state
from spreeze.learning.normalisation import Normaliser
from spreeze.learning.replay import Replay
from spreeze.learning.restore import restore
from spreeze.runs import replay_log
from spreeze.runs.checkpoint_format import (
    Manifest,
    newest_checkpoints,
    oldest_row_needed,
    state_path,
    verify_states,
    write_manifest,
)

LAYOUT = RowLayout(3, 2)
CAPACITY = 500
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def rows(count: int, seed: int = 0) -> Rows:
    made = np.random.default_rng(seed).standard_normal((count, LAYOUT.width)).astype(np.float32)
    made[:, LAYOUT.terminated] = 0
    made[:, LAYOUT.discount] = 0.99
    return made


def make(device: str, algo: str = "sac", hidden: tuple[int, ...] = (16, 16), seed: int = 1) -> ActorCritic:
    made: ActorCritic = making.make(
        find_algorithm(algo), 3, 2, hidden, actor_delay=2, device=torch.device(device), seed=seed
    )
    return made


def save(saver: CheckpointWriter, folder: Path, number: int, **counters: int) -> Manifest:
    kept = newest_checkpoints(folder)
    saver.begin(number, oldest_row_needed(kept), counters)
    saved = saver.finish(lambda: None)
    assert isinstance(saved, Saved), saved
    manifest = Manifest(number, (saved.state,), saved.extents, saved.row_width, saved.counters)
    write_manifest(folder, manifest)
    return manifest


def updated(algorithm: ActorCritic, replay: Replay, count: int) -> list[torch.Tensor]:
    for _ in range(count):
        algorithm.update(replay.draw(32))
    return [tensor.clone() for tensor in algorithm.state()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algo", making.CONTINUOUS)
def test_a_restored_learner_makes_the_updates_that_the_other_would_have_made(
    tmp_path: Path, algo: str, device: str
) -> None:
    torch.manual_seed(0)
    normaliser = Normaliser(3, torch.device(device))
    replay = Replay(LAYOUT, CAPACITY, torch.device(device), normaliser)
    for seed in range(7):  # more than it holds
        block = rows(100, seed)
        replay.add(block)
        normaliser.add(block[:, LAYOUT.observation])
    replay.flush()
    normaliser.take_over()
    algorithm = make(device, algo)
    updated(algorithm, replay, 5)
    manifest = save(CheckpointWriter(tmp_path, algorithm, replay, normaliser), tmp_path, 1, updates=5)
    expected = updated(algorithm, replay, 5)

    verify_states(tmp_path, manifest)
    other = make(device, algo, seed=99)
    other_normaliser = Normaliser(3, torch.device(device))
    other_replay = Replay(LAYOUT, CAPACITY, torch.device(device), other_normaliser)
    torch.manual_seed(123)
    restore(tmp_path, newest_checkpoints(tmp_path)[0], other, other_replay, other_normaliser)
    assert torch.equal(replay._rows, other_replay._rows)
    assert (other_replay.written, len(other_replay)) == (700, CAPACITY)
    assert torch.equal(normaliser.mean, other_normaliser.mean)
    found = updated(other, other_replay, 5)
    assert len(expected) == len(found)
    for one, two in zip(expected, found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_only_new_rows_are_written(tmp_path: Path, device: str) -> None:
    replay = Replay(LAYOUT, CAPACITY, torch.device(device))
    algorithm = make(device)
    saver = CheckpointWriter(tmp_path, algorithm, replay, None)
    sizes = []
    for number in range(1, 12):
        replay.add(rows(90, number))
        replay.flush()
        manifest = save(saver, tmp_path, number)
        sizes.append(sum(extent.rows for extent in manifest.extents))
        other = Replay(LAYOUT, CAPACITY, torch.device(device))
        restore(tmp_path, manifest, make(device), other, None)
        assert torch.equal(replay._rows[: len(replay)], other._rows[: len(other)])
    assert sizes[0] == 90
    assert sizes[4] == 450


def test_a_saver_goes_on_after_a_restart(tmp_path: Path) -> None:
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(300))
    save(CheckpointWriter(tmp_path, make("cpu"), replay, None), tmp_path, 1)
    kept = newest_checkpoints(tmp_path)
    other = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    restored = restore(tmp_path, kept[0], make("cpu"), other, None)
    other.add(rows(400, 5))
    saver = CheckpointWriter(tmp_path, make("cpu"), other, None, restored)
    save(saver, tmp_path, 2)
    third = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    restore(tmp_path, newest_checkpoints(tmp_path)[0], make("cpu"), third, None)
    assert torch.equal(other._rows, third._rows)
    assert third.written == 700


@pytest.mark.parametrize("damaged", [[0], [100], [200], [0, 100, 200]])
def test_a_saver_goes_on_after_some_rows_were_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: list[int]
) -> None:
    monkeypatch.setattr(replay_log, "FILE_BYTES", 100 * 4 * LAYOUT.width)
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(300))
    manifest = save(CheckpointWriter(tmp_path, make("cpu"), replay, None), tmp_path, 1)
    for first_row in damaged:
        replay_log.path_of(tmp_path / "replay", first_row).write_bytes(b"damaged")
    intact = [row for first in {0, 100, 200}.difference(damaged) for row in rows(300)[first : first + 100]]

    for number, count in ((2, 50), (3, 150)):  # each in a session of its own
        other = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
        restored = restore(tmp_path, manifest, make("cpu"), other, None)
        assert restored is not None
        assert restored.left_out == (100 * len(damaged) if number == 2 else 0)
        saver = CheckpointWriter(tmp_path, make("cpu"), other, None, restored, after=manifest.number)
        intact += list(rows(count, number))
        other.add(rows(count, number))
        manifest = save(saver, tmp_path, number)
        assert other.written == manifest.counters["replay_written"]
        held = other._rows[: len(other)].numpy()
        assert sorted(row.tobytes() for row in held) == sorted(row.tobytes() for row in intact)
        assert sum(extent.rows for extent in manifest.extents) == len(intact)


def test_rows_that_are_overwritten_while_they_are_saved_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "CHUNK_BYTES", 50 * 4 * LAYOUT.width)
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(600))
    copy_out, calls = replay.copy_out, list[int]()

    def overtaken(first_row: int, into: torch.Tensor) -> bool:
        calls.append(first_row)
        if len(calls) == 1:
            replay.add(rows(120, 9))
        return copy_out(first_row, into)

    monkeypatch.setattr(replay, "copy_out", overtaken)
    manifest = save(CheckpointWriter(tmp_path, make("cpu"), replay, None), tmp_path, 1)
    assert manifest.extents[0].first_row > 100
    other = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    restore(tmp_path, manifest, make("cpu"), other, None)
    kept = 600 - manifest.extents[0].first_row
    assert (other.written, len(other)) == (600, kept)
    assert other._rows[:kept].numpy().tobytes() == rows(600)[-kept:].tobytes()


def test_a_disk_that_fails_costs_the_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(300))
    saver = CheckpointWriter(tmp_path, make("cpu"), replay, None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_writer.ReplayLog, "append", full)
        saver.begin(1, 0, {})
        assert saver.finish(lambda: None) == NotSaved(1, "all", "No space left on device")
    manifest = save(saver, tmp_path, 2)
    other = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    restore(tmp_path, manifest, make("cpu"), other, None)
    assert torch.equal(other._rows[:300], replay._rows[:300])


def test_a_folder_that_cannot_be_used_at_first_is_used_later(tmp_path: Path) -> None:
    """As where a learner is restarted while the disk is read-only for a moment."""
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(300))
    (tmp_path / "replay").write_text("in the way")
    saver = CheckpointWriter(tmp_path, make("cpu"), replay, None)
    saver.begin(1, 0, {})
    assert isinstance(saver.finish(lambda: None), NotSaved)
    (tmp_path / "replay").unlink()
    manifest = save(saver, tmp_path, 2)
    other = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    restore(tmp_path, manifest, make("cpu"), other, None)
    assert torch.equal(other._rows[:300], replay._rows[:300])


@pytest.mark.parametrize("updates_continue", [True, False])
def test_a_state_is_copied_only_where_updates_change_it_meanwhile(tmp_path: Path, updates_continue: bool) -> None:
    """A copy of gigabytes at the end of a run takes longer than it takes to write them."""
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(300))
    algorithm = make("cpu")
    before = [tensor.clone() for tensor in algorithm.state()]
    saver = CheckpointWriter(tmp_path, algorithm, None, None)
    written: list[dict[str, np.ndarray[Any, Any]]] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_writer, "write_weights", lambda _path, tensors, *_: written.append(tensors))
        saver.begin(1, 0, {}, updates_continue=updates_continue)
        if updates_continue:
            updated(algorithm, replay, 3)
        saver.finish(lambda: None)
    (tensors,) = written
    own = {name: tensor.numpy() for name, tensor in named_state(algorithm).items()}
    is_shared = {np.shares_memory(tensors[name], array) for name, array in own.items()}
    assert is_shared == {not updates_continue}
    for one, two in zip(before, own, strict=True):
        np.testing.assert_array_equal(one.reshape(-1).numpy(), tensors[two])


@pytest.mark.parametrize("hidden", [(16, 17), (16,)])
def test_a_state_of_other_networks_is_refused(tmp_path: Path, hidden: tuple[int, ...]) -> None:
    manifest = save(CheckpointWriter(tmp_path, make("cpu"), None, None), tmp_path, 1)
    with pytest.raises(CheckpointError):
        restore(tmp_path, manifest, make("cpu", hidden=hidden), None, None)


@pytest.mark.parametrize("written", [None, 0, 299])
def test_more_rows_than_were_ever_written_are_refused(tmp_path: Path, written: int | None) -> None:
    replay = Replay(LAYOUT, CAPACITY, torch.device("cpu"))
    replay.add(rows(300))
    manifest = save(CheckpointWriter(tmp_path, make("cpu"), replay, None), tmp_path, 1)
    counters = {} if written is None else {"replay_written": written}
    changed = dataclasses.replace(manifest, counters=counters)
    with pytest.raises(CheckpointError, match="holds more"):
        restore(tmp_path, changed, make("cpu"), Replay(LAYOUT, CAPACITY, torch.device("cpu")), None)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite_is_refused_before_anything_is_changed(tmp_path: Path, value: float) -> None:
    manifest = save(CheckpointWriter(tmp_path, make("cpu"), None, None), tmp_path, 1)
    path = state_path(tmp_path, 1, "all")
    arrays, about = read_weights(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    arrays["state.0"][0] = value
    write_weights(path, arrays, about)
    other = make("cpu", seed=5)
    before = [tensor.clone() for tensor in other.state()]
    with pytest.raises(CheckpointError, match="NaN or an infinity"):
        restore(tmp_path, manifest, other, None, None)
    assert all(torch.equal(one, two) for one, two in zip(before, other.state(), strict=True))
