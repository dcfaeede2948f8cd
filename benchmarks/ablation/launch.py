"""Runs `spreeze` on fewer cores, or from another start than the defaults: what its flags cannot say.

    python benchmarks/ablation/launch.py FOLDER CORES START train Pendulum-v1 ...

FOLDER: where it may remember what it finds, so that the user's own runs do not start from that. CORES: the run may
use as many, 0 for all. START: what is put in the place of the static defaults, such as samplers=4,batch_size=512.
Flags would pin these; a run that adapts is to be free to leave them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from starts import start_from

if __name__ == "__main__":
    os.environ["XDG_CACHE_HOME"], cores, start = sys.argv[1:4]
    if int(cores):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    if start:
        start_from(start)
    sys.argv = ["spreeze", *sys.argv[4:]]
    del sys.path[:2]  # these folders are none of the run's
    from spreeze.commands.cli import main

    main()
