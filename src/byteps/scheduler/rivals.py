"""Two schedulers for one address: the one that finds the port taken tells the one that has it.

Only members of both would notice otherwise, and perhaps too late (``two_jobs``). The connection has the
handshake of a member: whoever has another job id or secret has other members, too, and nothing to tell.
"""

from __future__ import annotations

import asyncio
import os
import socket

from byteps import _core
from byteps.config import Config
from byteps.control import origin
from byteps.control.channel import Channel
from byteps.control.connection import credentials_of, open_socket
from byteps.control.handshake import TIMEOUT_S, ClientHandshake
from byteps.control.hello import Hello, job_number
from byteps.control.messages import Rival
from byteps.errors import BytePSError, ProtocolError
from byteps.scheduler.two_jobs import SENTENCE

__all__ = ["CHANNEL", "announce", "hear", "refusal"]

CHANNEL = "rival"
ROLE = "scheduler"
MAX_BYTES = 32 << 10  # of the one message that it may send
ANNOUNCE_S = 3.0  # the other one may be busy with its own start


def refusal(hello: Hello) -> str:
    """Why this one may not speak, or nothing."""
    return "" if hello.role == ROLE else f"a {CHANNEL!r} connection is for role {ROLE!r}, not {hello.role!r}"


async def hear(sock: socket.socket, job: int, keys: _core.SessionKeys | None) -> Rival | None:
    """What a second scheduler says; None if it makes no sense or takes too long."""
    channel = await Channel.over(sock, job, "a second scheduler", MAX_BYTES, keys)
    try:
        said = await asyncio.wait_for(channel.receive(), TIMEOUT_S)
        return said if isinstance(said, Rival) else None
    except (OSError, ProtocolError, asyncio.TimeoutError):
        return None
    finally:
        channel.close()


def announce(config: Config) -> str:
    """Tell whoever has our port; the sentence to begin our own error with, if it is the scheduler of a job
    that cannot be told from ours.
    """
    try:
        asyncio.run(asyncio.wait_for(_announce(config), ANNOUNCE_S))
    except (OSError, BytePSError, asyncio.TimeoutError):
        return ""  # some other program, or a job with an id or a secret of its own
    return f"{SENTENCE}: "


async def _announce(config: Config) -> None:
    credentials = credentials_of(config)
    handshake = ClientHandshake(
        credentials.job_id, credentials.secret, CHANNEL, ROLE, sealing=credentials.sealing
    )
    sock = await open_socket(config.root_uri, config.root_port, handshake)
    channel = await Channel.over(
        sock, job_number(config.job_id), "the scheduler that has our port", keys=handshake.keys
    )
    channel.send(Rival(socket.gethostname(), os.getpid(), origin.own(config, ROLE)))
    channel.shut(ANNOUNCE_S)
    try:
        await channel.receive()
    except (OSError, ProtocolError):
        pass  # it has heard us, and closed
    finally:
        channel.close()
