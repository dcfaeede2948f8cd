"""Transitions over several steps: the sum of the rewards, and the value of the observation after the last step.

Watkins' n-step return, as in Hessel et al. 2018 (arXiv 1710.02298): R = sum_i gamma^i r_i for i < n, then
gamma^n times the value of the observation after n steps. At the end of an episode, transitions are shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.transitions import RowLayout, Rows
from spreeze.environments.stepped import ALL, Which


class MultiStep:
    """The last steps of several environments, which step together or each at its own pace."""

    def __init__(self, layout: RowLayout, envs: int, steps: int, gamma: float) -> None:
        self._layout, self._steps, self._gamma = layout, steps, gamma
        self._of_first_step = layout.of_first_step
        self._window = np.zeros((steps, envs, layout.width), np.float32)  # a ring of each one's last steps
        self._ages = np.zeros(envs, np.int64)  # steps since each episode began, at most `steps`
        self._at = np.zeros(envs, np.int64)  # where each one's last step is
        # The window as one list of steps: indices into that are faster than pairs of indices.
        self._flat = self._window.reshape(-1, layout.width)
        self._rewards = self._flat[:, layout.reward]
        self._envs, self._count = np.arange(envs), envs
        self._back = np.arange(steps)[:, None]
        self._discounts = (gamma ** np.arange(steps)).astype(np.float32)

    def add(self, rows: Rows, ended: NDArray[np.bool_], stepped: Which = ALL) -> Rows:
        """Take one step of each of some environments; return the transitions that it completes.

        rows: of those that have stepped, in this order. ended: of all environments, whose episodes it ended.
        """
        at = self._at[stepped] + 1
        at[at == self._steps] = 0
        self._at[stepped] = at
        self._flat[at * self._count + self._envs[stepped]] = rows
        self._ages[stepped] += 1
        # An age of all steps is one that was reached right now.
        complete = [self._transitions(self._steps, self._ages == self._steps)]
        if ended.any():
            # Where an episode ends, its shorter transitions end too.
            for length in range(min(self._steps - 1, int(self._ages.max())), 0, -1):
                complete.append(self._transitions(length, ended & (self._ages >= length)))
            self._ages[ended] = 0
        np.minimum(self._ages, self._steps - 1, out=self._ages)  # the oldest step is done
        return complete[0] if len(complete) == 1 else np.concatenate(complete)

    def flush(self) -> Rows:
        """Return the steps that are held back as transitions that end here, and forget them."""
        lengths = range(int(self._ages.max()), 0, -1)
        complete = [self._transitions(length, self._ages >= length) for length in lengths]
        self._ages[:] = 0
        return np.concatenate([np.empty((0, self._layout.width), np.float32), *complete])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what is held back."""
        return {"window": self._window.copy(), "ages": self._ages.copy(), "at": self._at.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold back what another one did."""
        self._window[:], self._ages[:], self._at[:] = state["window"], state["ages"], state["at"]

    def _transitions(self, length: int, envs: NDArray[np.bool_]) -> Rows:
        """Return the last `length` steps of some environments as one transition each."""
        which = envs.nonzero()[0]
        at = self._at[which]
        rows: Rows = self._flat.take(at * self._count + which, axis=0)  # ends with the last step
        if length == 1 or not len(rows):
            return rows
        # (length, which), the newest first.
        slots = (at - self._back[:length]) % self._steps * self._count + which
        layout, first = self._layout, self._flat.take(slots[-1], axis=0)
        for words in self._of_first_step:
            rows[:, words] = first[:, words]
        rows[:, layout.reward] = self._discounts[:length] @ self._rewards[slots[::-1]]
        rows[:, layout.discount] = self._gamma**length
        return rows
