"""The configuration: one tree of frozen dataclasses.

Every leaf has a name of its own, so a flag (`--batch-size`), a keyword of `spreeze.train` (`batch_size`)
and a key of a config file all name the same field. "auto" means: choose it for this machine.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spreeze.config.fields import conform, flag, leaf_types, numeric, require_within
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
from spreeze.errors import ConfigError

# Fields that config.json files of earlier versions have; without them a run learns as it did by default.
RETIRED: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Config:
    """Train a policy on a Gymnasium environment."""

    env: str
    """Environment id (Pendulum-v1), or module:id to import the module that registers it first."""
    algo: Literal["sac", "td3", "ddpg"] = "sac"
    """Learning algorithm: soft actor-critic, twin delayed DDPG, or DDPG."""
    seed: int = 0
    """Seed of environments, networks and exploration. Free-running processes are not repeatable to the bit."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    watching: WatchingConfig = field(default_factory=WatchingConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) or not self.env:
            raise ConfigError(f"ENV must be the id of an environment, for example Pendulum-v1, not {self.env!r}")
        require_within(self, "seed", 0, 2**32 - 1)
        for name, value in (("samplers", self.sampling.samplers), ("batch_size", self.learning.batch_size)):
            low, high = (numeric(self.adaptation, f"{end}_{name}") for end in ("min", "max"))
            if value != "auto" and not (low or 0) <= value <= (high or math.inf):
                raise ConfigError(
                    f"{flag(name)} {value} is not within {flag(f'min_{name}')} and {flag(f'max_{name}')}: "
                    "leave the bounds out, they are for what the run may choose"
                )
        if self.learning.exchange == "lock-step" and self.sampling.transport == "queue":
            raise ConfigError("--exchange lock-step needs --transport shm: a queue cannot be read to a given row")

    @classmethod
    def from_flat(cls, fields: Mapping[str, Any]) -> Config:
        """Return the config that `flat` has written, in this version or an earlier one."""
        kept = {name: value for name, value in fields.items() if name not in RETIRED}
        return cls(env=kept.pop("env", "")).replace(**kept)

    def replace(self, **fields: Any) -> Config:
        """Return a copy with leaf fields changed, each by its own name: `config.replace(batch_size=256)`."""
        known = leaf_types(Config)
        unknown = sorted(set(fields) - set(known))
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
