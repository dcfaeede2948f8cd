"""What to say at the end of a run that has made no environment step, or no update.

In: a run whose limit was reached. Out: one line with the likely reason. A run without a step has failed, whatever its
limit was; one without an update has at least shown that its environment works.
"""

from __future__ import annotations

from spreeze.runs.result import StopReason
from spreeze.supervision.launch import FIRST_SAMPLER_SLOT
from spreeze.supervision.run import Run

LIMITS: tuple[StopReason, ...] = ("max_seconds", "max_env_steps", "max_updates")
NO_STEP = "no environment step was made"
STARTING_S = 5.0  # a sampler that is silent for longer is not importing any more, but waits for its environment


def why_no_step(run: Run) -> str | None:
    """Return why there was no environment step; None if there was, or if somebody has ended the run before."""
    if run.error is not None or run.stop_reason not in LIMITS or run.ended_at_s is None or _has_stepped(run):
        return None
    env, within = run.request.env.name, f"{run.ended_at_s:.1f} s"
    hint = "`spreeze doctor` with the environment says what takes so long"
    if run.environment is None:
        return f"{NO_STEP}: {env} was not made and examined within {within}; {hint}"
    if run.plan.config.serial:
        return f"{NO_STEP}: the first constructors, resets and steps of {env} take more than {within}; {hint}"
    if not run.plan.config.sampling.samplers:
        return f"{NO_STEP}: no other machine has made one within {within}; what came of each is told above"
    silence_s = run.workers.channels.control.silence_s(FIRST_SAMPLER_SLOT)
    if silence_s < STARTING_S:
        return f"{NO_STEP}: the run ended after {within}, while it was starting; raise --max-seconds"
    return f"{NO_STEP}: a constructor, reset or step of {env} has not returned for {silence_s:.0f} s; {hint}"


def why_no_update(run: Run) -> str | None:
    """Return why a run with environment steps has made no update; None if it has, or if somebody has ended it."""
    if run.error is not None or run.stop_reason not in LIMITS or run.has_updates or not _has_stepped(run):
        return None
    if run.workers.channels.weights.open_version()[0]:
        return None  # a learner that was restarted from nothing: what it published before is still there
    rows, warmup = int(run.metrics.learner["rows_stored"][0]), run.plan.config.sampling.warmup_steps
    if rows < warmup:
        reason = f"it ended after {rows:,} of the {warmup:,} environment steps of its warm-up: run longer"
        return f"the run made no update, there is no policy: {reason}, or lower --warmup-steps"
    return "the run made no update, there is no policy: it ended while its learner was starting; run longer"


def _has_stepped(run: Run) -> bool:
    return bool(run.metrics.samplers["env_steps"].any() or run.metrics.learner["rows_stored"][0])
