from __future__ import annotations

from typing import Any

import pytest

from spreeze.config import Config
from spreeze.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"serial": True}, "--serial does not go with --realtime"),
        ({"samplers": 2}, "--samplers 2 does not go with --realtime"),
        ({"envs_per_sampler": 4}, "--envs-per-sampler 4 does not go"),
        ({"backend": "mujoco"}, "--backend mujoco does not go"),
        ({"env_threads": "yes"}, "--env-threads yes does not go"),
        ({"min_updates_per_step": 0.5}, "--min-updates-per-step 0.5 does not go"),
        ({"video_every": 3}, "--video-every 3 does not go"),
        ({"realtime": 0}, "--realtime must be above 0"),
    ],
)
def test_what_needs_more_than_one_environment_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Config("Pendulum-v1").replace(**{"realtime": 50, **fields})
    assert str(raised.value).startswith(says)


def test_what_fits_one_environment_is_taken() -> None:
    fields = {"samplers": 1, "envs_per_sampler": 1, "min_updates_per_step": 0, "backend": "gymnasium"}
    assert Config("Pendulum-v1").replace(realtime=50, **fields).sampling.realtime == 50.0
