"""Settings and changes of a run in words, as the adaptation tells them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from spreeze.adapt.objective import Sample
from spreeze.config.run_settings import RunSettings


def describe(settings: RunSettings) -> str:
    """Return settings in words."""
    words = [
        f"{counted(settings.samplers, 'sampler')} x {counted(settings.envs_per_sampler, 'environment')}",
        f"batch {settings.batch_size}",
        counted(settings.learner_threads, "learner thread"),
    ]
    return ", ".join([*words, *(["cores kept apart"] if settings.pinned else [])])


def counted(number: int, what: str) -> str:
    """Return the number with its noun."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def describe_change(old: RunSettings, new: RunSettings) -> str:
    """Return what differs between two settings."""
    names = {
        "samplers": "samplers",
        "envs_per_sampler": "environments per sampler",
        "batch_size": "batch size",
        "learner_threads": "learner threads",
        "pinned": "cores kept apart",
    }
    changes = [
        f"{name} {getattr(old, key)} -> {getattr(new, key)}"
        for key, name in names.items()
        if getattr(old, key) != getattr(new, key)
    ]
    return ", ".join(changes)


def describe_rates(before: Sequence[Sample], after: Sequence[Sample]) -> str:
    """Return the rates before and after a change."""

    def pair(name: str) -> str:
        old, new = (statistics.median(getattr(sample, name) for sample in samples) for samples in (before, after))
        return f"{old:,.0f} -> {new:,.0f}"

    return f"env steps/s {pair('sampling_hz')}, updates/s {pair('update_hz')}"
