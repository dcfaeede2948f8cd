"""Learning algorithms: pure functions on tensors, without processes, files or clocks.

A new algorithm is a file here and a line in ALGORITHMS.
"""

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.ddpg import Ddpg
from spreeze.algorithms.sac import Sac
from spreeze.algorithms.td3 import Td3

ALGORITHMS: dict[str, type[ActorCritic]] = {"sac": Sac, "td3": Td3, "ddpg": Ddpg}
