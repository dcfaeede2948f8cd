"""TensorBoard's event files: records of numbers by name, as `tensorboard` reads them.

The format has been the same since 2015, and scalars need no library. tensorboardX imports torch if it is installed
(1.1 s and 197 MB), which the supervisor must not load; tensorboard's own writer imports in 0.15 s, but would add a
web server, gRPC and 57 MB to every installation.

A record: its length (8 bytes), a checksum of that, an `Event` in protobuf's wire format, a checksum of that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from spreeze.host.own_files import make_own_folder, open_own, remove_own

FILE_VERSION = b"brain.Event:2"


class EventFile:
    """An event file, unbuffered: there is about one record per second.

    A record that cannot be written whole raises OSError; what was written of it is cut off before the next one.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.fdopen(open_own(path, _run_of(path), flags), "ab", buffering=0)
        self._byte_count = self._file.tell()
        try:
            # Of Event: wall_time (1), file_version (3).
            self._append(_double(1, time.time()) + _bytes(3, FILE_VERSION))
        except OSError:
            self._file.close()
            raise

    @property
    def is_deleted(self) -> bool:
        """Whether the file was deleted."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    @classmethod
    def in_folder(cls, folder: Path) -> EventFile:
        """Create a new file in a folder, with a name that TensorBoard looks for."""
        make_own_folder(folder, folder.parent)
        path = folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        is_new = not os.path.lexists(path)
        try:
            return cls(path)
        except OSError:
            if is_new:
                with contextlib.suppress(OSError):
                    remove_own(path, _run_of(path))  # empty: the next try uses another name
            raise

    def write(self, scalars: Mapping[str, float], step: int, at: float) -> None:
        """Write numbers by name, as of a step and a time since the epoch."""
        # Of Summary: value (1). Of Event: wall_time (1), step (2), summary (5).
        summary = b"".join(_bytes(1, _scalar(name, value)) for name, value in scalars.items())
        self._append(_double(1, at) + b"\x10" + _varint(step) + _bytes(5, summary))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        record = length + _checksum(length) + event + _checksum(event)
        if os.fstat(self._file.fileno()).st_size > self._byte_count:
            self._file.truncate(self._byte_count)
        if self._file.write(record) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._byte_count += len(record)


def _run_of(path: Path) -> Path:
    return path.parent.parent


def _scalar(name: str, value: float) -> bytes:
    """Return a Summary.Value: tag (1), simple_value (2)."""
    try:
        number = struct.pack("<f", value)
    except OverflowError:  # beyond 3.4e38
        number = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _bytes(1, name.encode()) + b"\x15" + number


# --- protobuf's wire format: a key (field number and kind), then the value ---------------------------------------


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


# --- CRC-32C, masked as in TensorFlow's records ------------------------------------------------------------------


def _table() -> tuple[int, ...]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(crc)
    return tuple(table)


_TABLE = _table()


def _checksum(data: bytes) -> bytes:
    # Byte by byte, in Python: 0.1 ms for a record of all figures.
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    # Masked, because the checksum of data that holds its own checksum would be a constant.
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
