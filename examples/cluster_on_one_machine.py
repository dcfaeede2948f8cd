"""Train on a cluster of two nodes, both on this machine: what `ray start` does on two machines.

    python examples/cluster_on_one_machine.py Pendulum-v1 --target-return -200

The first node is the head, where `spreeze train` runs with its learner. The second one has CPUs for samplers. All
arguments are those of `spreeze train`. Needs the extra "ray".
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile

STORE_BYTES = 256 * 2**20  # for blocks of rows under way and a few versions of the weights


def main() -> int:
    """Start both nodes, train, and end them whatever happens."""
    # So that Ctrl-C and SIGTERM, which the training answers with its last checkpoint, also end the nodes.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        # Read when Ray is imported. Paths of sockets have at most 107 bytes.
        os.environ |= {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        # Nodes listen at an address that others reach, and who is let in can run code: only who has this token is.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=STORE_BYTES)
            cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
            command = (sys.executable, "-m", "spreeze", "train", *sys.argv[1:], "--cluster", cluster.address)
            return run(command)
        finally:
            cluster.shutdown()


def run(command: tuple[str, ...]) -> int:
    """Run a command to its end; Ctrl-C reaches it too, and is waited for."""
    process = subprocess.Popen(command)
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
