"""What the best settings depend on: the machine, the task, and the settings that the user has made."""

from __future__ import annotations

import dataclasses

from spreeze.adapt.remember import machine_key
from spreeze.config import AdaptationConfig, Config, LearningConfig
from spreeze.config.env_spec import CALLABLE_MARK
from spreeze.host.hardware import Machine

# What else than the task decides about the best settings, of what the user may set.
_MATTERS = (
    *("min_updates_per_step", "max_updates_per_step", "update_engine", "split", "actor_device", "critic_device"),
    *("is_lock_step", "n_step", "actor_delay", "layer_norm", "atoms", "normalise_observations"),
)


def task_key(asked: Config, planned: LearningConfig, machine: Machine) -> str:
    """Return what the best settings depend on: the machine, the task, and what the user has set of the rest."""
    learning, plain = asked.learning, LearningConfig()
    set_by_user = [
        f"{name} {getattr(learning, name)}" for name in _MATTERS if getattr(learning, name) != getattr(plain, name)
    ]
    if asked.environment.backend != "auto":
        set_by_user.append(asked.environment.backend)
    if planned.is_split:
        set_by_user.append("actor and critics apart")
    key = machine_key(machine, asked.env, asked.environment.env_kwargs, asked.algo, planned.device, learning.hidden)
    return " | ".join([key, *set_by_user])


def is_unconstrained(asked: Config) -> bool:
    """Return whether an adaptation may change everything: only then are its results worth remembering."""
    sampling, learning = asked.sampling, asked.learning
    chosen = (sampling.samplers, sampling.envs_per_sampler, learning.batch_size, learning.learner_threads)
    plain = AdaptationConfig()
    has_own_bounds = dataclasses.replace(asked.adaptation, fresh=False, adapt_after_s=plain.adapt_after_s) != plain
    if asked.cluster.cluster is not None:
        return False  # with samplers on other machines, fewer are needed here than without
    # Two callables may have the same name, so results for one are not remembered.
    return all(value == "auto" for value in chosen) and not has_own_bounds and not asked.env.endswith(CALLABLE_MARK)
