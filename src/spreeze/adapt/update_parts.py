"""What the parts of an update take, as `spreeze bench split` measures them, and what two devices gain from that."""

from __future__ import annotations

from typing import NamedTuple

PAYS = 1.1  # a predicted gain below this is not worth a second replay and copies that lag


class UpdateParts(NamedTuple):
    """Times in microseconds at one batch size, each measured alone."""

    batch_size: int
    whole_us: float
    """An update on the critics' device."""
    critic_us: float
    actor_us: float
    exchange_us: float
    """One exchange, both ways, as either side spends it."""
    exchange_bytes: int
    """What crosses in one exchange, both ways."""
    exchange_updates: int
    """Updates from one exchange to the next."""

    @property
    def predicted_gain(self) -> float:
        """The whole divided by the slower side, which has its share of the exchange to do too."""
        return self.whole_us / (max(self.critic_us, self.actor_us) + self.exchange_us / self.exchange_updates)

    @property
    def pays(self) -> bool:
        """Whether two devices are worth it."""
        return self.predicted_gain >= PAYS

    def __str__(self) -> str:
        slower = "critics" if self.critic_us >= self.actor_us else "actor"
        share = self.exchange_us / self.exchange_updates / max(self.critic_us, self.actor_us)
        return (
            f"batch {self.batch_size}: two devices {'would pay' if self.pays else 'would not pay'}: "
            f"{self.predicted_gain:.2f} times the updates, predicted; "
            f"the {slower} would be the slower side, the exchange takes {share:.1%} of its time"
        )
