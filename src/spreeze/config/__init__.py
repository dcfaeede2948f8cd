"""What was asked for: the config tree and its fields, automatic choices, and settings that may change in a run."""

from spreeze.algorithms.spec import ActionKind, Auto, LearnerRole, ObservationKind, PolicyKind
from spreeze.config.config import Config
from spreeze.config.groups import (
    SHOWN,
    AdaptationConfig,
    Backend,
    CheckpointConfig,
    ClusterConfig,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    LimitsConfig,
    OutputConfig,
    SamplingConfig,
    WatchingConfig,
)

__all__ = [
    "SHOWN",
    "ActionKind",
    "AdaptationConfig",
    "Auto",
    "Backend",
    "CheckpointConfig",
    "ClusterConfig",
    "Config",
    "EnvironmentConfig",
    "EvaluationConfig",
    "LearnerRole",
    "LearningConfig",
    "LimitsConfig",
    "ObservationKind",
    "OutputConfig",
    "PolicyKind",
    "SamplingConfig",
    "WatchingConfig",
]
