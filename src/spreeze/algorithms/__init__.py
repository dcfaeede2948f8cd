"""Learning algorithms: mathematics on tensors, without processes, files or clocks.

A new algorithm is a file here and a line in ALGORITHMS. Importing one does not import torch. What an algorithm from
elsewhere is written with is imported from here; docs/algorithms/your-own.md shows how.
"""

from spreeze.algorithms.actor_critic import ActorCritic
from spreeze.algorithms.algorithm import Algorithm, Terms
from spreeze.algorithms.batch import Batch
from spreeze.algorithms.kernels.operations import Adam
from spreeze.algorithms.networks import FlatParameters, Tensors
from spreeze.algorithms.spec import AlgorithmSpec, Figure, Recipe

__all__ = [
    "ALGORITHMS",
    "ActorCritic",
    "Adam",
    "Algorithm",
    "AlgorithmSpec",
    "Batch",
    "Figure",
    "FlatParameters",
    "Recipe",
    "Tensors",
    "Terms",
]

ALGORITHMS: dict[str, str] = {
    "sac": "spreeze.algorithms.sac:Sac",
    "td3": "spreeze.algorithms.td3:Td3",
    "ddpg": "spreeze.algorithms.ddpg:Ddpg",
    "dqn": "spreeze.algorithms.dqn:Dqn",
}
"""By name, the module and the class of each. `--algo MODULE:CLASS` takes one from elsewhere."""
