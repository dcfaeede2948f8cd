"""The configuration: one tree of frozen dataclasses.

Every leaf has a name of its own, so a flag (`--batch-size`), a keyword of `spreeze.train` (`batch_size`)
and a key of a config file all name the same field. "auto" means: choose it for this machine.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze.config.fields import conform, flag, leaf_types, require_within
from spreeze.config.groups import (
    AdaptationConfig,
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
from spreeze.config.own_settings import (
    AUTO,
    FIRST_GUESS,
    OwnSettings,
    complete,
    find_algorithm,
    is_built_in,
    own_types,
    refuse_setting_of_another,
    without_those_of_others,
)
from spreeze.config.realtime import refuse_several_environments
from spreeze.config.retired import RETIRED, modernise
from spreeze.config.sections import Hardware, Learning, MostUsed, Output, Stopping, Task
from spreeze.errors import ConfigError


@dataclass(frozen=True)
class Config:
    """Train a policy on a Gymnasium environment."""

    env: str
    """Environment id, for example Pendulum-v1. module:id imports the module first."""
    algo: MostUsed[str] = AUTO
    """Algorithm. auto: the one for the environment's actions. Or MODULE:CLASS for one of your own."""
    seed: MostUsed[int] = 0
    """Seed of environments, networks and exploration. Two runs with the same seed still differ, because processes run
    in parallel, unless they are serial."""
    serial: Hardware[bool] = False
    """Train in this process alone, samplers, learner and evaluator in turns: slower, but the same bytes for the same
    seed, and a debugger stops anywhere."""
    environment: Task[EnvironmentConfig] = field(default_factory=EnvironmentConfig)
    limits: Stopping[LimitsConfig] = field(default_factory=LimitsConfig)
    sampling: Hardware[SamplingConfig] = field(default_factory=SamplingConfig)
    cluster: Hardware[ClusterConfig] = field(default_factory=ClusterConfig)
    learning: Learning[LearningConfig] = field(default_factory=LearningConfig)
    adaptation: Hardware[AdaptationConfig] = field(default_factory=AdaptationConfig)
    evaluation: Output[EvaluationConfig] = field(default_factory=EvaluationConfig)
    checkpoints: Output[CheckpointConfig] = field(default_factory=CheckpointConfig)
    output: Output[OutputConfig] = field(default_factory=OutputConfig)
    watching: Output[WatchingConfig] = field(default_factory=WatchingConfig)
    own: OwnSettings = field(default_factory=OwnSettings)
    """The algorithm's own settings. Those of an algorithm from elsewhere are checked when it is imported."""

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) or not self.env:
            raise ConfigError(f"ENV must be the id of an environment, for example Pendulum-v1, not {self.env!r}")
        require_within(self, "seed", 0, 2**32 - 1)
        if self.serial and self.watching.keep_dashboard:
            raise ConfigError(
                "--serial starts no dashboard: leave out --keep-dashboard, and use `spreeze dashboard RUN`"
            )
        if is_built_in(self.algo):
            object.__setattr__(self, "own", complete(find_algorithm(self.algo), self.own))
        if self.sampling.samplers == 0 and self.cluster.cluster is None:
            raise ConfigError("--samplers 0 needs --cluster: without samplers on other machines nothing is learned")
        if self.serial and self.cluster.cluster is not None:
            raise ConfigError("--serial trains in one process: leave out --cluster")
        if self.sampling.realtime is not None:
            refuse_several_environments(self.flat())
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
        env, algo = kept.pop("env", ""), conform("algo", kept.pop("algo", "sac"), str)
        own = {name: kept.pop(name) for name in sorted(kept.keys() - leaf_types(Config).keys())}
        config = cls(env).replace(**kept)
        if is_built_in(algo):
            return config.replace(algo=algo, **without_those_of_others(own, algo))
        return dataclasses.replace(config, algo=algo, own=OwnSettings(own))  # to look at a run needs no import of it

    def replace(self, **fields: Any) -> Config:
        """Return a copy with leaf fields changed, each by its own name: `config.replace(batch_size=256)`."""
        known = leaf_types(Config)
        algo: str = conform("algo", fields.get("algo", self.algo), str)
        own = OwnSettings(self.own if algo == self.algo else {})
        others = sorted(set(fields) - set(known) - set(RETIRED))
        if others or own != self.own:
            algorithm = find_algorithm(algo)
            own = complete(algorithm, own | {name: fields[name] for name in others if name in own_types(algorithm)})
            known = {**known, **own_types(algorithm)}
        for name in others:
            if name not in known:
                refuse_setting_of_another(name, algo)
        unknown = sorted(set(fields) - set(known))
        if unknown and unknown[0] in RETIRED:
            raise ConfigError(f"'{unknown[0]}' is no longer a setting: {RETIRED[unknown[0]]}")
        if unknown:
            near = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`spreeze train --help` lists them all"
            raise ConfigError(f"there is no setting '{unknown[0]}': {hint}")
        checked = {name: conform(name, value, known[name]) for name, value in fields.items()}
        top: dict[str, Any] = {"own": own}
        for place in dataclasses.fields(self):
            current = getattr(self, place.name)
            if dataclasses.is_dataclass(current) and not isinstance(current, type):
                changed = {f.name: checked[f.name] for f in dataclasses.fields(current) if f.name in checked}
                top[place.name] = dataclasses.replace(current, **changed)
            elif place.name in checked:
                top[place.name] = checked[place.name]
        return dataclasses.replace(self, **top)

    @property
    def chooses_algorithm(self) -> bool:
        """Whether the algorithm is the one for the environment's actions."""
        return self.algo == AUTO

    def with_first_guess(self) -> Config:
        """Return a copy with an algorithm and all its settings, before the environment's actions are known."""
        return self.with_algorithm(FIRST_GUESS) if self.chooses_algorithm else self.with_all_own_settings()

    def with_algorithm(self, algo: str) -> Config:
        """Return a copy with this algorithm for --algo auto. Raises if a setting was given that it does not have."""
        of_guess, own = complete(find_algorithm(self.algo), {}), dict(self.own)
        if find_algorithm(algo) is not find_algorithm(self.algo):
            for name in (name for name, value in self.own.items() if value != of_guess[name]):
                refuse_setting_of_another(name, algo)
            own = {}
        return dataclasses.replace(self, algo=algo, own=complete(find_algorithm(algo), own))

    def with_all_own_settings(self) -> Config:
        """Return a copy with each of the algorithm's own settings, those that were not given at their defaults."""
        return dataclasses.replace(self, own=complete(find_algorithm(self.algo), self.own))

    def flat(self) -> dict[str, Any]:
        """All leaf fields by name, as they are written to config.json."""
        leaves: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            leaves.update(value if isinstance(value, dict) else {name: value})
        return leaves
