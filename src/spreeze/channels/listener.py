"""Listener: the socket that the dashboard listens on, and the token of its address.

The supervisor opens it, so that the address is known from the start of a run, and stays the same when the dashboard
is restarted.
Writers: one, the supervisor, before the dashboard is started. Readers: the dashboard.
Guaranteed: who connects before the dashboard is ready is served then.
When it is full: beyond BACKLOG connections that wait, the system lets clients try again.
"""

from __future__ import annotations

import os
import socket
from typing import Any

BACKLOG = 128


class ListenerChannel:
    """Room for one socket."""

    def __init__(self) -> None:
        self._fd, self.token = -1, ""

    def open(self, listener: socket.socket, token: str) -> None:
        """Keep a socket that listens. token: what the address ends with."""
        self._fd, self.token = listener.detach(), token

    @property
    def is_open(self) -> bool:
        """Whether there is a socket."""
        return self._fd >= 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child has to inherit."""
        return (self._fd,) if self.is_open else ()

    def socket(self) -> socket.socket:
        """Open the dashboard's end."""
        return socket.socket(fileno=os.dup(self._fd))

    def close(self) -> None:
        """Close the descriptor."""
        if self.is_open:
            os.close(self._fd)
            self._fd = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"_fd": self._fd, "token": self.token}
