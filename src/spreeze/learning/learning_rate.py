"""The learning rate for a batch size."""

from __future__ import annotations

import math

from spreeze.config import LearningConfig


def learning_rate_for(learning: LearningConfig, batch_size: int) -> float:
    """Follow the square root of the batch upwards, as the noise of a gradient does; downwards nothing is gained."""
    return learning.learning_rate * max(1.0, math.sqrt(batch_size / int(learning.learning_rate_batch)))
