"""The number that settings are judged by: what counts, and how much, where steps are scarce."""

from __future__ import annotations

import itertools

import pytest

from spreeze.adapt.objective import Sample, objective, useful_updates


def rates(sampling_hz: float, update_hz: float, batch_size: float = 64.0) -> Sample:
    return Sample(sampling_hz, update_hz, update_hz * batch_size, sampler_wait=0.0, idle_cores=0.0, other_cores=0.0)


@pytest.mark.parametrize(
    ("sampling_hz", "update_hz", "batch_size"),
    [
        (8.0, 1.0, 27.0),
        (2200.0, 220.0, 64.0),  # HalfCheetah on 2 cores
        (150_000.0, 3000.0, 8192.0),  # on a data-centre GPU
        (300.0, 300.0, 256.0),  # one update for each step: the last that count fully
    ],
)
def test_with_up_to_one_update_for_each_step_it_is_the_geometric_mean_of_the_three_rates(
    sampling_hz: float, update_hz: float, batch_size: float
) -> None:
    mean = (sampling_hz * update_hz * update_hz * batch_size) ** (1 / 3)
    assert objective(rates(sampling_hz, update_hz, batch_size)) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    ("update_hz", "useful_hz"),
    [(0.0, 0.0), (50.0, 50.0), (100.0, 100.0), (200.0, 150.0), (400.0, 175.0), (1e9, 200.0)],
)
def test_of_more_updates_than_steps_ever_fewer_count_and_at_most_two_for_each_step(
    update_hz: float, useful_hz: float
) -> None:
    assert useful_updates(100.0, update_hz) == pytest.approx(useful_hz, abs=1e-4)


def test_useful_updates_have_neither_a_step_nor_a_kink() -> None:
    around = [99.0 + 0.01 * i for i in range(201)]
    useful = [useful_updates(100.0, update_hz) for update_hz in around]
    slopes = [(after - before) / 0.01 for before, after in itertools.pairwise(useful)]
    assert all(0.9 < slope <= 1.0 + 1e-6 for slope in slopes)
    assert max(abs(after - before) for before, after in itertools.pairwise(slopes)) < 1e-3


@pytest.mark.parametrize(
    ("fewer_steps", "more_steps", "which"),
    [
        # Fast environments: an update is worth more than a step.
        (rates(2000.0, 200.0), rates(3000.0, 150.0), "fewer"),
        (rates(2000.0, 200.0), rates(4000.0, 190.0), "more"),
        # Environments that sleep for 20 ms beside a learner that could make hundreds of updates a second.
        (rates(48.0, 300.0), rates(96.0, 150.0), "more"),
        (rates(48.0, 300.0), rates(740.0, 100.0), "more"),
        (rates(48.0, 300.0), rates(48.1, 45.0), "fewer"),  # hardly more steps do not pay for most of the updates
        # One real robot: the steps are what they are, and updates count until there are enough of them.
        (rates(50.0, 20.0), rates(50.0, 40.0), "more"),
    ],
)
def test_what_is_scarce_counts(fewer_steps: Sample, more_steps: Sample, which: str) -> None:
    assert (objective(more_steps) > objective(fewer_steps)) is (which == "more")


def test_where_steps_are_scarce_twice_as_many_are_worth_almost_twice_as_much_and_updates_next_to_nothing() -> None:
    now = objective(rates(48.0, 1000.0))
    assert objective(rates(96.0, 1000.0)) / now > 1.9
    assert objective(rates(48.0, 2000.0)) / now < 1.03


def test_a_run_that_stands_still_has_an_objective() -> None:
    assert 0.0 < objective(rates(0.0, 0.0)) < objective(rates(1.0, 0.0)) < objective(rates(1.0, 1.0))
