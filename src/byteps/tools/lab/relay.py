"""Latency for the links of a lab: a process that passes frames on after a while. Run by ``network.py``.

    python -m byteps.tools.lab.relay DELAY_MS h0 q0 h1 q1 ...

Everything that comes in at h0 leaves at q0 after the delay, and the other way round. The kernel could do it
with netem, which not every machine has. Frames keep their virtio headers, so large ones stay large and their
checksums need not be computed.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field

__all__ = ["main"]

# From linux/if_packet.h and linux/if_ether.h; the socket module has no names for them.
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ETH_P_ALL = 3
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 32 << 20
MAX_FRAME_BYTES = 70_000


@dataclass(order=True)
class _Waiting:
    due: float
    number: int  # frames that are due together leave in the order in which they came
    to: socket.socket = field(compare=False)
    frame: bytes = field(compare=False)


def _port(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
        port.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    port.bind((name, ETH_P_ALL))
    port.setblocking(False)
    return port


def main(argv: list[str]) -> int:
    """Pass frames on until standard input ends."""
    delay_s, names = float(argv[0]) / 1e3, argv[1:]
    waiting: list[_Waiting] = []
    number = 0
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        for one, other in zip(names[::2], names[1::2], strict=True):
            ports = _port(one), _port(other)
            selector.register(ports[0], selectors.EVENT_READ, ports)
            selector.register(ports[1], selectors.EVENT_READ, ports[::-1])
        print("ready", flush=True)
        while True:
            timeout = None if not waiting else max(0.0, waiting[0].due - time.monotonic())
            for key, _ in selector.select(timeout):
                if key.fd == 0:
                    return 0
                here, there = key.data
                due = time.monotonic() + delay_s
                try:
                    while True:
                        number += 1
                        heapq.heappush(waiting, _Waiting(due, number, there, here.recv(MAX_FRAME_BYTES)))
                except BlockingIOError:
                    pass
            now = time.monotonic()
            while waiting and waiting[0].due <= now:
                frame = heapq.heappop(waiting)
                try:
                    frame.to.send(frame.frame)
                except OSError:  # a full queue or a link that is down drops it, as a wire would
                    continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
