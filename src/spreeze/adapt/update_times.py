"""How long an update and its critic and actor steps take, and what two devices would gain from that.

In: measurements of `spreeze bench split`. Out: whether to split the learner.
"""

from __future__ import annotations

from typing import NamedTuple

PAYS = 1.1  # a smaller predicted gain is not worth a second replay and parameters that lag


class UpdateTimes(NamedTuple):
    """Times in microseconds at one batch size, each measured alone."""

    batch_size: int
    whole_us: float
    """An update on the critics' device."""
    critic_us: float
    actor_us: float
    exchange_us: float
    """The time that each learner role spends on one exchange, both ways."""
    exchange_bytes: int
    """Bytes of one exchange, both ways."""
    exchange_updates: int
    """Updates from one exchange to the next."""

    @property
    def predicted_gain(self) -> float:
        """The time of a whole update divided by that of the slower role, its share of the exchange included."""
        return self.whole_us / (max(self.critic_us, self.actor_us) + self.exchange_us / self.exchange_updates)

    @property
    def pays(self) -> bool:
        """Whether two devices are worth a second replay."""
        return self.predicted_gain >= PAYS

    def __str__(self) -> str:
        slower = "critics" if self.critic_us >= self.actor_us else "actor"
        share = self.exchange_us / self.exchange_updates / max(self.critic_us, self.actor_us)
        return (
            f"batch {self.batch_size}: two devices {'would pay' if self.pays else 'would not pay'}: "
            f"{self.predicted_gain:.2f} times the updates, predicted; "
            f"the {slower} would be the slower role, the exchange takes {share:.1%} of its time"
        )
