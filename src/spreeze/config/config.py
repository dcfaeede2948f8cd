"""The configuration: one tree of frozen dataclasses.

Every leaf has a name of its own, so a flag (`--batch-size`), a keyword of `spreeze.train` (`batch_size`)
and a key of a config file all name the same field. "auto" means: choose it for this machine.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spreeze.config.fields import conform, flag, leaf_types, require_within
from spreeze.config.groups import (
    AdaptationConfig,
    CheckpointConfig,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    LimitsConfig,
    OutputConfig,
    SamplingConfig,
    WatchingConfig,
)
from spreeze.config.retired import RETIRED, modernise
from spreeze.config.sections import Hardware, Learning, MostUsed, Output, Stopping, Task
from spreeze.errors import ConfigError


@dataclass(frozen=True)
class Config:
    """Train a policy on a Gymnasium environment."""

    env: str
    """Environment id, for example Pendulum-v1. module:id imports the module first."""
    algo: MostUsed[Literal["sac", "td3", "ddpg"]] = "sac"
    """Algorithm: soft actor-critic, twin delayed DDPG, or DDPG."""
    seed: MostUsed[int] = 0
    """Seed of environments, networks and exploration. Two runs with the same seed still differ, because processes run
    in parallel."""
    environment: Task[EnvironmentConfig] = field(default_factory=EnvironmentConfig)
    limits: Stopping[LimitsConfig] = field(default_factory=LimitsConfig)
    sampling: Hardware[SamplingConfig] = field(default_factory=SamplingConfig)
    learning: Learning[LearningConfig] = field(default_factory=LearningConfig)
    adaptation: Hardware[AdaptationConfig] = field(default_factory=AdaptationConfig)
    evaluation: Output[EvaluationConfig] = field(default_factory=EvaluationConfig)
    checkpoints: Output[CheckpointConfig] = field(default_factory=CheckpointConfig)
    output: Output[OutputConfig] = field(default_factory=OutputConfig)
    watching: Output[WatchingConfig] = field(default_factory=WatchingConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) or not self.env:
            raise ConfigError(f"ENV must be the id of an environment, for example Pendulum-v1, not {self.env!r}")
        require_within(self, "seed", 0, 2**32 - 1)
        maxima = (self.adaptation.max_samplers, self.adaptation.max_batch_size)
        settings = (("samplers", self.sampling.samplers), ("batch_size", self.learning.batch_size))
        for (name, value), most in zip(settings, maxima, strict=True):
            if value != "auto" and most != "auto" and value > most:
                raise ConfigError(
                    f"{flag(name)} {value} is above {flag(f'max_{name}')} {most}: leave the maximum out, "
                    "it is for what the run may choose"
                )

    @classmethod
    def from_flat(cls, fields: Mapping[str, Any]) -> Config:
        """Return the config that `flat` has written, in this version or an earlier one."""
        kept = modernise(fields)
        return cls(env=kept.pop("env", "")).replace(**kept)

    def replace(self, **fields: Any) -> Config:
        """Return a copy with leaf fields changed, each by its own name: `config.replace(batch_size=256)`."""
        known = leaf_types(Config)
        unknown = sorted(set(fields) - set(known))
        if unknown and unknown[0] in RETIRED:
            raise ConfigError(f"'{unknown[0]}' is no longer a setting: {RETIRED[unknown[0]]}")
        if unknown:
            near = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`spreeze train --help` lists them all"
            raise ConfigError(f"there is no setting '{unknown[0]}': {hint}")
        checked = {name: conform(name, value, known[name]) for name, value in fields.items()}
        top: dict[str, Any] = {}
        for own in dataclasses.fields(self):
            current = getattr(self, own.name)
            if dataclasses.is_dataclass(current) and not isinstance(current, type):
                changed = {f.name: checked[f.name] for f in dataclasses.fields(current) if f.name in checked}
                top[own.name] = dataclasses.replace(current, **changed)
            elif own.name in checked:
                top[own.name] = checked[own.name]
        return dataclasses.replace(self, **top)

    def flat(self) -> dict[str, Any]:
        """All leaf fields by name, as they are written to config.json."""
        leaves: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            leaves.update(value if isinstance(value, dict) else {name: value})
        return leaves
