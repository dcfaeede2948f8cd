"""Learning algorithms: mathematics on tensors, without processes, files or clocks.

A new algorithm is a file here and a line in ALGORITHMS. Importing one does not import torch.
"""

ALGORITHMS: dict[str, str] = {
    "sac": "spreeze.algorithms.sac:Sac",
    "td3": "spreeze.algorithms.td3:Td3",
    "ddpg": "spreeze.algorithms.ddpg:Ddpg",
}
"""By name, the module and the class of each. `--algo MODULE:CLASS` takes one from elsewhere."""
