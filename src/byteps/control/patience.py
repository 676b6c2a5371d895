"""How long TCP itself keeps trying: longer than we do. When a connection is given up, the judge is ours.

Left alone, the kernel ends a connection that nothing comes through after a number of tries that differs from
machine to machine (tcp_retries2), and pauses for twice as long after every try: a link that was away for 8 s
is used again up to 8 s after it is back. So every connection of a job gets two options:

- TCP_USER_TIMEOUT: time decides and not a number of tries, and it is so long that we have decided before. It
  also ends a connection whose reader does not read for so long, so it is longer than any operation may take;
  and since it holds for connections of dead processes too, it is not for ever.
- TCP_RTO_MAX_MS, an eighth of the heartbeat time-out: the longest pause between two tries. Linux has it since
  6.15; before, connections come back later, and a cut between a worker and a server is known later.
"""

from __future__ import annotations

import socket

from byteps.config import Config

__all__ = ["make_patient"]

LEAST_S = 900.0  # about what Linux does by default
TCP_RTO_MAX_MS = 44  # linux/tcp.h; the socket module has no name for it yet
LEAST_PAUSE_MS, MOST_PAUSE_MS = 1_000, 120_000  # what the kernel accepts
MOST_MS = 2**31 - 1
TRIES = 8  # at least, within the heartbeat time-out


def make_patient(sock: socket.socket, config: Config) -> socket.socket:
    """Set the options on a connection of the job, and return it."""
    silence_s, operation_s = config.heartbeat_timeout_s, config.op_timeout_s
    user_timeout_ms = int(min(max(LEAST_S, 4 * silence_s, 2 * operation_s) * 1000, MOST_MS))
    pause_ms = int(min(max(silence_s * 1000 / TRIES, LEAST_PAUSE_MS), MOST_PAUSE_MS))
    for option, value in ((socket.TCP_USER_TIMEOUT, user_timeout_ms), (TCP_RTO_MAX_MS, pause_ms)):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:
            pass  # an older kernel, or a socket of another kind
    return sock
