"""What was asked for: the config tree and its fields, automatic choices, and settings that may change in a run."""

from spreeze.config.config import Config
from spreeze.config.groups import (
    AdaptationConfig,
    Auto,
    Backend,
    CheckpointConfig,
    EnvironmentConfig,
    EvaluationConfig,
    LearnerRole,
    LearningConfig,
    LimitsConfig,
    OutputConfig,
    SamplingConfig,
    WatchingConfig,
)

__all__ = [
    "AdaptationConfig",
    "Auto",
    "Backend",
    "CheckpointConfig",
    "Config",
    "EnvironmentConfig",
    "EvaluationConfig",
    "LearnerRole",
    "LearningConfig",
    "LimitsConfig",
    "OutputConfig",
    "SamplingConfig",
    "WatchingConfig",
]
