"""A long cable between two interfaces: frames come out of the other one after a while.

    python long_link.py ONE OTHER DELAY_MS

Run as a program in the network of a switch, because not every kernel can delay packets (netem). Frames keep the
sizes that sender and receiver agreed on without a wire, 64 KB at most: so one process forwards gigabits.
"""

from __future__ import annotations

import collections
import select
import socket
import sys
import time
from typing import Final

ETHERNET_ALL = 3
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23  # from linux/if_packet.h
FRAME_BYTES = 2**17
SOCKET_BYTES = 2**25
QUEUED_BYTES: Final = 2**25  # what is on its way at most, in each direction: above it frames are lost


class Direction:
    """One half of the cable."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay_s: float) -> None:
        self.source, self._sink, self._delay_s = source, sink, delay_s
        self._on_its_way: collections.deque[tuple[float, bytes]] = collections.deque()
        self._bytes = 0

    def take(self) -> None:
        """Take in what has arrived."""
        while True:
            try:
                frame = self.source.recv(FRAME_BYTES)
            except BlockingIOError:
                return
            except OSError:  # its interface is gone: so is the host that it led to
                sys.exit()
            if self._bytes + len(frame) <= QUEUED_BYTES:
                self._bytes += len(frame)
                self._on_its_way.append((time.monotonic() + self._delay_s, frame))

    def deliver(self) -> float:
        """Put out what is due; return the seconds until the next frame is."""
        now = time.monotonic()
        while self._on_its_way and self._on_its_way[0][0] <= now:
            _, frame = self._on_its_way.popleft()
            self._bytes -= len(frame)
            try:
                self._sink.send(frame)
            except OSError:  # its queue is full, or it is down: the frame is lost, as on a cable
                continue
        return self._on_its_way[0][0] - now if self._on_its_way else 3600.0


def end_of_cable(interface: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(
        SOL_PACKET, PACKET_VNET_HDR, 1
    )  # with the sizes of segments and missing checksums before each frame
    raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        raw.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
    raw.bind((interface, ETHERNET_ALL))
    raw.setblocking(False)
    return raw


def main() -> None:
    one, other, delay_s = end_of_cable(sys.argv[1]), end_of_cable(sys.argv[2]), float(sys.argv[3]) / 1000
    directions = (Direction(one, other, delay_s), Direction(other, one, delay_s))
    print("ready", flush=True)
    while True:
        wait_s = min(direction.deliver() for direction in directions)
        readable, _, _ = select.select([one, other], [], [], max(0.0, wait_s))
        for direction in directions:
            if direction.source in readable:
                direction.take()


if __name__ == "__main__":
    main()
