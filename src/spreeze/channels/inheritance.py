"""Lets a child of `subprocess` inherit what `multiprocessing` only gives to children that it starts itself."""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.reduction
from dataclasses import dataclass
from typing import Any


class _Inheritance:
    """Stands where `multiprocessing` expects the child it is starting; notes which descriptors that needs."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def duplicate_for_child(self, fd: int) -> int:
        self._descriptors.append(fd)
        return fd

    def DupFd(self, fd: int) -> _InheritedFd:  # noqa: N802 (the name that multiprocessing calls)
        return _InheritedFd(fd)


@dataclass(frozen=True)
class _InheritedFd:
    """A descriptor that has the same number in the child."""

    fd: int

    def detach(self) -> int:
        return self.fd


def pickle_for_child(shared: Any, descriptors: list[int]) -> bytes:
    """Pickle a `multiprocessing` object for a child of `subprocess`, which `multiprocessing` does not know."""
    multiprocessing.context.set_spawning_popen(_Inheritance(descriptors))  # type: ignore[arg-type]
    try:
        return bytes(multiprocessing.reduction.ForkingPickler.dumps(shared))
    finally:
        multiprocessing.context.set_spawning_popen(None)
