"""The port of the page: a socket that listens, on the port that was asked for or on the first free one."""

from __future__ import annotations

import socket

from spreeze.channels.listener import BACKLOG
from spreeze.errors import ConfigError, UsageError

FIRST_PORT, PORTS_TO_TRY = 8420, 20


def bind(host: str, port: int, flag: str = "--port") -> socket.socket:
    """Return a listening socket; port 0 takes the first free one from FIRST_PORT on."""
    tried = range(FIRST_PORT, FIRST_PORT + PORTS_TO_TRY) if port == 0 else (port,)
    try:
        family, _, _, _, _ = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise ConfigError(
            f"{host!r} is not an address of this machine: 127.0.0.1 is, and 0.0.0.0 lets others in"
        ) from None
    problem = ""
    for candidate in (*tried, 0) if port == 0 else tried:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(BACKLOG)
            return listener
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            listener.close()
    raise UsageError(f"{flag} {port} of {host} cannot be used ({problem}): take another one, or leave it out")
