"""`spreeze tune`: measures what it says, marks what a run adapts to, and refuses before it measures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from spreeze.adapt.objective import Sample
from spreeze.commands.bench.grid import Cell, Grid, default_batch_sizes, default_samplers, lines
from spreeze.config import Config
from spreeze.config.run_settings import RunSettings

if TYPE_CHECKING:
    from conftest import Spreeze


def cell(samplers: int, batch_size: int, hz: float) -> Cell:
    samples = [Sample(hz * scale, hz, hz, 0.0, 0.0, 0.0) for scale in (0.9, 1.0, 1.1)]
    return Cell.of(RunSettings(samplers, 16, batch_size, 1), samples)


def test_a_cell_is_the_median_of_its_samples() -> None:
    figures = cell(2, 64, 100.0)
    assert figures.sampling_hz == 100.0
    assert figures.objective == pytest.approx(100.0)


def test_the_table_has_every_cell_and_the_adapted_choice() -> None:
    cells = (cell(1, 64, 50.0), cell(1, 128, 100.0), cell(2, 64, 25.0), cell(2, 128, 80.0))
    adapted = cell(2, 128, 80.0)
    said = "\n".join(lines(Grid("Env-v0", "cpu", 2, 45.0, cells, adapted, 0.8)))
    for words in ("batch 64", "batch 128", "50%", "100%", "25%", "80%", "80.0% of the best"):
        assert words in said


@pytest.mark.parametrize("cores", [1, 2, 6, 16, 64])
def test_the_default_grid_goes_from_one_sampler_to_more_than_there_are_cores(cores: int) -> None:
    numbers = default_samplers(cores, chosen=max(1, cores - 2))
    assert numbers[0] == 1
    assert numbers[-1] >= cores
    assert list(numbers) == sorted(set(numbers))


def test_the_default_batch_sizes_are_the_powers_of_two_within_the_bounds() -> None:
    config = Config("Pendulum-v1").replace(device="cpu", max_batch_size=512)
    assert default_batch_sizes(config) == (64, 128, 256, 512)


def test_command_measures_prints_writes_and_draws(spreeze: Spreeze) -> None:
    words = ("--samplers", 1, 2, "--batch-sizes", 64, "--samples", 1, "--adapt-seconds", 6, "--device", "cpu")
    finished = spreeze("tune", "Pendulum-v1", *words, "--json", "grid.json", "--picture", "grid.png")
    assert finished.returncode == 0, finished.stderr
    assert "of the best objective" in finished.stdout
    figures = json.loads((spreeze.folder / "grid.json").read_text())
    measured = {(point["settings"]["samplers"], point["settings"]["batch_size"]) for point in figures["cells"]}
    assert measured == {(1, 64), (2, 64)}
    assert all(point["update_hz"] > 0 and point["sampling_hz"] > 0 for point in figures["cells"])
    assert 0 < figures["share_of_best"] <= 1
    assert (spreeze.folder / "grid.png").read_bytes().startswith(b"\x89PNG")
    assert not (spreeze.folder / "cache" / "spreeze").exists()  # it measures, and changes nothing for later runs


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--picture", "x.foo"), "--picture x.foo must end in .png"),
        (("--picture", "nowhere/x.png"), "--picture nowhere/x.png cannot be written"),
        (("--json", "nowhere/x.json"), "--json nowhere/x.json cannot be written"),
        (("--samplers", 300), "--samplers 300 is above the maximum of"),
        (("--samplers", 0), "must be above 0"),
        (("--adapt-seconds", 0), "must be above 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(
    spreeze: Spreeze, words: tuple[object, ...], said: str
) -> None:
    finished = spreeze("tune", "Pendulum-v1", *words)
    assert finished.returncode == 2
    (line,) = finished.stderr.strip().splitlines()
    assert said in line
    assert not list(spreeze.folder.glob("x.*"))
