"""The random numbers that everybody in this process shares: of Python, of NumPy and of PyTorch."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def own_random_numbers() -> Iterator[None]:
    """Draw within the block what others draw again after it."""
    torch = sys.modules.get("torch")  # never imported for this
    of_python, of_numpy = random.getstate(), np.random.get_state()
    of_torch = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if torch is not None:
            torch.set_rng_state(of_torch)
