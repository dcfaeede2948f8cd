"""Anonymous shared memory, inherited by child processes through a file descriptor.

The kernel frees it when the last process that holds it has ended, for whatever reason, so nothing can leak; and it is
not taken from /dev/shm, which a container limits to 64 MB. A run in one process has private memory instead.
"""

from __future__ import annotations

import mmap
import os
import platform
import tempfile
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Segment(Protocol):
    """A piece of memory."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        ...

    def allocate(self, byte_count: int) -> None:
        """Give the segment its size."""
        ...

    def array(self, dtype: DTypeLike, shape: tuple[int, ...], offset_bytes: int = 0) -> NDArray[Any]:
        """Return a NumPy array that lives in the segment; it stays valid after `close`."""
        ...

    def close(self) -> None:
        """Let go of what the system has given for it."""
        ...


MakeSegment = Callable[[str, int], Segment]
"""From a name, and a size in bytes if it is known already: 0 if it is not."""


class SharedSegment:
    """A piece of memory that processes share. Pickles as a descriptor number, for a child that inherited it."""

    def __init__(self, name: str, byte_count: int = 0) -> None:
        self.fd = _anonymous_file(name)
        self.byte_count = 0
        self._mapping: mmap.mmap | None = None
        if byte_count:
            self.allocate(byte_count)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return (self.fd,)

    def allocate(self, byte_count: int) -> None:
        """Give the segment its size. Apart from creation, because children inherit it before sizes are known."""
        os.ftruncate(self.fd, byte_count)
        self.byte_count = byte_count

    def array(self, dtype: DTypeLike, shape: tuple[int, ...], offset_bytes: int = 0) -> NDArray[Any]:
        """Return a NumPy array that lives in the segment; it stays valid after `close`."""
        if self._mapping is None:
            self._mapping = mmap.mmap(self.fd, self.byte_count)
        return np.ndarray(shape, dtype, buffer=self._mapping, offset=offset_bytes)

    def close(self) -> None:
        """Close the descriptor. Arrays keep the memory mapped until they are garbage."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": self.fd, "byte_count": self.byte_count, "_mapping": None}


class PrivateSegment:
    """A piece of memory of this process alone, where a run has no other."""

    def __init__(self, _name: str, byte_count: int = 0) -> None:
        self._bytes = np.zeros(byte_count, np.uint8)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """There is no child."""
        return ()

    def allocate(self, byte_count: int) -> None:
        """Give the segment its size."""
        self._bytes = np.zeros(byte_count, np.uint8)

    def array(self, dtype: DTypeLike, shape: tuple[int, ...], offset_bytes: int = 0) -> NDArray[Any]:
        """Return a NumPy array that lives in the segment."""
        return np.ndarray(shape, dtype, buffer=self._bytes.data, offset=offset_bytes)

    def close(self) -> None:
        """Nothing to let go of."""


def _anonymous_file(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"spreeze-{name}", os.MFD_CLOEXEC)
    # Elsewhere than Linux: a file that has no name any more. Children inherit the descriptor, so nobody opens it.
    with tempfile.TemporaryFile(prefix=f"spreeze-{name}-") as file:
        return os.dup(file.fileno())


_fence = threading.Lock()


def _order_stores_by_lock() -> None:
    # ARM may reorder plain stores. Python offers no fence; two passes through a lock order what stands before
    # the first release against what stands after the second acquire.
    with _fence:
        pass
    with _fence:
        pass


def _stores_are_ordered() -> None:
    # x86-64 keeps stores in program order (total store order), and an aligned 8-byte store is never torn.
    pass


order_stores = _stores_are_ordered if platform.machine() in ("x86_64", "AMD64", "i686") else _order_stores_by_lock
