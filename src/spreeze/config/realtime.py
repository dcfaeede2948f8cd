"""What a run on one real robot cannot have: --realtime means one environment that exists once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze.config.fields import flag
from spreeze.errors import ConfigError

# By name: the values that fit, and why others do not.
_FITTING: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "serial": ((False,), "a serial run keeps no clock"),
    "samplers": (("auto", 1), "there is one environment, in one sampler"),
    "envs_per_sampler": (("auto", 1), "there is one environment"),
    "backend": (("auto", "gymnasium"), "the environment is stepped by its own code"),
    "env_threads": (("auto", "no"), "the sampler steps its one environment itself"),
    "stagger_episodes": (("auto", "no"), "there is one environment"),
    "min_updates_per_step": (("auto", 0.0), "a step does not wait for the learner"),
    "video_every": ((0,), "a video needs an environment of its own"),
}


def refuse_several_environments(asked: Mapping[str, Any]) -> None:
    """Raise if something is asked for that needs another environment, or makes steps wait. asked: by name."""
    for name, (fitting, reason) in _FITTING.items():
        if asked[name] not in fitting:
            given = flag(name) if asked[name] is True else f"{flag(name)} {asked[name]}"
            raise ConfigError(f"{given} does not go with --realtime: {reason}; leave one of them out")
