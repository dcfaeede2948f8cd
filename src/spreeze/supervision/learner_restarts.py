"""Whether a learner that has failed is started again.

In: how it failed, and from which checkpoint it could be restarted. Out: yes or no.
"""

from __future__ import annotations

from spreeze.errors import LearnerFailed, SpreezeError

MAX_RESTARTS = 3  # from the same checkpoint: what fails so often fails for a reason
MAX_ROLLBACKS = 1  # after divergence: rows and noise are others the second time, but not much else is


class LearnerRestarts:
    """Counts failures since the newest checkpoint: who gets from one to the next may fail again."""

    def __init__(self) -> None:
        self._checkpoint = -1
        self._failures = self._divergences = 0

    def may_start_again(self, failure: LearnerFailed, checkpoint: int, has_updates: bool) -> bool:
        """Decide. checkpoint: the number of the newest, 0 for none. has_updates: whether there was ever one."""
        if checkpoint != self._checkpoint:
            self._checkpoint, self._failures, self._divergences = checkpoint, 0, 0
        if failure.error == FloatingPointError.__name__:
            self._divergences += 1
            return checkpoint > 0 and self._divergences <= MAX_ROLLBACKS
        self._failures += 1
        if failure.error in _ON_PURPOSE:
            return False
        # What raises before it has done anything would raise again; what was killed may have been killed by chance.
        if failure.error and not checkpoint and not has_updates:
            return False
        return self._failures <= MAX_RESTARTS


def _names(kind: type[SpreezeError]) -> set[str]:
    return {kind.__name__}.union(*(_names(sub) for sub in kind.__subclasses__()))


# Raised because going on makes no sense, such as an environment that gives nothing but NaN. A checkpoint that is
# damaged is not among them: there may be another.
_ON_PURPOSE = _names(SpreezeError) - {"CheckpointError"}
