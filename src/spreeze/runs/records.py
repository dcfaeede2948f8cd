"""The records of a run's journals: measurements and evaluations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """The state of a run at one moment, with rates over the window before it. The fields of metrics.jsonl."""

    wall_s: float
    env_steps: int
    updates: int
    episodes: int
    sampling_hz: float
    update_hz: float
    update_frame_hz: float
    batch_size: int
    num_samplers: int
    updates_per_step: float
    """Updates for each environment step after the warm-up, since the start."""
    policy_lag_s: float | None
    """Mean age of the policies that samplers act with now."""
    replay_rows: int
    ring_wait_s: float
    """Seconds that samplers have waited for room in their channels, over all of them, since the start."""
    ratio_wait_s: float
    """Seconds that samplers have waited for the learner because of min_updates_per_step, likewise."""
    learner_wait_s: float
    """Seconds that the learner has waited for the warm-up, or because of max_updates_per_step."""
    ingest_s: float
    """Seconds that the learner's host has spent on taking transitions out of the channels, since the start."""
    publish_s: float
    """Seconds it has spent on publishing weights, likewise."""
    report_s: float
    """Seconds it has spent on reading losses, likewise."""
    actor_updates: int
    """Optimiser steps of the actor: those of the critics, unless both learn apart."""
    actor_lag_updates: int
    """Updates of the critics that are not yet in what the actor's side has of them; 0 where both learn together."""
    critic_lag_updates: int
    """Updates of the actor that are not yet in what the critics' side has of it, likewise."""
    exchange_s: float
    """Seconds that the critics' side has spent on exchanging parameters, since the start."""
    actor_exchange_s: float
    """Seconds that the actor's side has, likewise."""
    exchanged_bytes: int
    """Bytes that have crossed between the two sides."""
    train_return: float | None
    """Mean return of the training episodes that ended in the last window in which any did."""
    cpu_percent: float
    gpu_percent: float | None
    rss_bytes: int
    gpu_bytes: int | None
    rows_rejected: int
    critic_loss: float | None
    actor_loss: float | None
    temperature_loss: float | None
    temperature: float | None
    q_mean: float | None
    entropy: float | None
    ring_fill: float | None
    """How full the channels of the samplers are, 0 to 1, their mean; None where nobody can tell (a queue)."""
    cpu_cores: tuple[float, ...]
    """How busy each core was that the run may use, whoever used it, in percent."""
    cpu_by_role: dict[str, float]
    """Cores that the processes of each role used."""


@dataclass(frozen=True)
class Evaluation:
    """The score of one version of the policy. The fields of evaluations.jsonl."""

    wall_s: float
    env_steps: int
    updates: int
    version: int
    mean_return: float
    std_return: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
