"""What every channel of weights promises: tests of the fixture `channel`, for the modules that have one."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze.channels.weights import WeightsChannel

GUARD_S = 60.0  # ends a test that would hang; nothing is asserted about time
VERSIONS = 500
ROOM_BYTES = 1 << 20

READ_ONE = """
import pickle, sys
channel = pickle.load(sys.stdin.buffer)
newest = channel.reader().newest()
bytes_of = {name: (t.shape, t.dtype.str, t.tobytes()) for name, t in newest.tensors.items()}
sys.stdout.buffer.write(pickle.dumps(bytes_of))
"""

# Publishes versions that can be told apart everywhere, until it has made so many or is killed.
WRITE_MANY = """
import pickle, sys
import numpy as np
channel, versions = pickle.load(sys.stdin.buffer)
writer = channel.writer()
for value in range(1, versions + 1):
    version = writer.publish({name: np.full((128, 128), value, np.float32) for name in "abc"}, {"said": str(value)})
    if value == 1:
        print("published", flush=True)
        sys.stdin.buffer.read(1)
writer.close()
"""

# Reads without pause until the last version is there.
READ_MANY = """
import json, pickle, sys
import numpy as np
channel, versions = pickle.load(sys.stdin.buffer)
reader, seen, faults = channel.reader(), [], []
while not seen or seen[-1] < versions:
    newest = reader.newest()
    if newest is None:
        continue
    values = {float(value) for tensor in newest.tensors.values() for value in np.unique(tensor)}
    if len(newest.tensors) != 3 or values != {float(newest.metadata["said"])} or newest.version not in values:
        faults.append(f"version {newest.version} holds {values} and {newest.metadata}")
    seen.append(newest.version)
    if len(seen) == 1:
        print("seen", flush=True)
print(json.dumps({"seen": seen, "faults": faults[:5]}), flush=True)
"""


class Inherited(Protocol):
    """What a process opens that has its descriptors."""

    @property
    def descriptors(self) -> tuple[int, ...]: ...


def publish(channel: WeightsChannel, values: range) -> list[int]:
    writer = channel.writer()
    return [writer.publish({"a": np.full(3, value, np.float32)}, {}) for value in values]


def start(program: str, channel: Inherited, *more: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=channel.descriptors,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((channel, *more) if more else channel))
    process.stdin.flush()
    return process


def line_of(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def test_another_process_gets_exactly_the_bytes_that_were_published(channel: WeightsChannel) -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, NDArray[np.float32]] = {
        "actor.0.weight": rng.standard_normal((17, 256)).astype(np.float32),
        "actor.0.bias": rng.standard_normal(256).astype(np.float32).T,
        "transposed": rng.standard_normal((5, 7)).astype(np.float32).T,
    }
    channel.writer().publish(tensors, {"env": "Pendulum-v1"})

    got = pickle.loads(start(READ_ONE, channel).communicate(timeout=GUARD_S)[0])

    assert got == {name: (t.shape, t.dtype.str, t.tobytes()) for name, t in tensors.items()}


def test_no_reader_ever_gets_half_a_version_nor_an_older_one(channel: WeightsChannel) -> None:
    readers = [start(READ_MANY, channel, VERSIONS) for _ in range(2)]
    writer = start(WRITE_MANY, channel, VERSIONS)
    try:
        assert {line_of(reader.stdout) for reader in readers} == {b"seen\n"}
        writer.communicate(b"!", GUARD_S)  # from here on all run at once
        reports = [json.loads(reader.communicate(timeout=GUARD_S)[0]) for reader in readers]
    finally:
        for process in (*readers, writer):
            process.kill()
            process.wait()
    for report in reports:
        assert report["faults"] == []
        assert report["seen"] == sorted(set(report["seen"]))
        assert report["seen"][-1] == VERSIONS


def test_a_learner_that_is_killed_leaves_a_whole_version_and_the_next_counts_on(channel: WeightsChannel) -> None:
    reader, last = channel.reader(), 0
    for _ in range(2):
        writer = start(WRITE_MANY, channel, 10**9)
        assert line_of(writer.stdout) == b"published\n"
        assert writer.stdin is not None
        writer.stdin.write(b"!")
        writer.stdin.flush()
        while (newest := reader.newest()) is None or newest.version < last + 20:
            assert writer.poll() is None
        writer.kill()
        writer.wait()
        late = channel.reader().newest()  # as a sampler does that is started now
        assert late is not None
        assert {float(value) for tensor in late.tensors.values() for value in np.unique(tensor)} == {
            float(late.metadata["said"])
        }
        (last,) = publish(channel, range(1))
        assert last == late.version + 1
