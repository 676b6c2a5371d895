"""The one way to make a TCP socket that others connect to; light, because every launch needs it."""

from __future__ import annotations

import socket

__all__ = ["BACKLOG", "bound", "listening"]

BACKLOG = 1_024


def bound(host: str, port: int) -> socket.socket:
    """A socket at this address, which does not listen yet; port 0 is any, host "" is all addresses of IPv4.

    Its address may be used again: sockets of an earlier job that wait for their end do not count, and two
    sockets can have one port as long as neither listens. OSError when another program has it.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def listening(host: str, port: int, backlog: int = BACKLOG) -> socket.socket:
    """The same, and it listens: only then is it certain that nobody else listens there."""
    sock = bound(host, port)
    try:
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
