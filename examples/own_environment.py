"""Train on an environment of your own, then drive it with the policy: python examples/own_environment.py."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import spreeze


class Thermostat(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Keep a room at a wanted temperature by heating it between 0 and 2 kW."""

    observation_space = gymnasium.spaces.Box(-50.0, 50.0, (2,))
    action_space = gymnasium.spaces.Box(0.0, 2.0, (1,))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin at a random temperature, with a random one wanted."""
        super().reset(seed=seed, options=options)
        self._room, self._wanted = self.np_random.uniform(5.0, 15.0), self.np_random.uniform(16.0, 22.0)
        self._minutes = 0
        return self._observe(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Heat for five minutes."""
        self._room += 2.0 * float(action[0]) - 0.1 * self._room  # heat in, heat lost to a winter's day of 0 degrees
        self._minutes += 5
        return self._observe(), -abs(self._room - self._wanted), False, self._minutes >= 300, {}

    def _observe(self) -> NDArray[np.float32]:
        return np.array([self._room, self._wanted], np.float32)


result = spreeze.train(Thermostat, target_return=-40.0, max_seconds=120)
policy = spreeze.load_policy(result.run_dir)
print(f"solved after {result.time_to_target_s} s" if result.time_to_target_s else "not solved yet")
for room in (10.0, 18.0, 20.0, 22.0):
    kilowatts = policy(np.array([room, 20.0]))[0]
    print(f"room at {room:4.1f} degrees, 20 wanted: heat with {kilowatts:.2f} kW")
