"""Learning algorithms: pure functions on tensors, without processes, files or clocks.

A new algorithm is a file here and a line in ALGORITHMS.
"""

from spreeze.algorithms.sac import Sac

ALGORITHMS = {"sac": Sac}
