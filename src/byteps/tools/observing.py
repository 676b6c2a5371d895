"""The connection of somebody who looks at a running job from outside, and what goes wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control.channel import Channel
from byteps.control.connection import credentials_to_look, open_socket, why
from byteps.control.handshake import ClientHandshake
from byteps.control.hello import job_number
from byteps.errors import BytePSError, ConfigError, JoinError
from byteps.scheduler.observers import CHANNEL, ROLE

__all__ = ["ANSWER_S", "address", "observe"]

T = TypeVar("T")

ANSWER_S = 10.0


def address(text: str | None, settings: Config) -> tuple[str, int]:
    """Where the scheduler is: as it was given, or as the environment says."""
    if text is None:
        if not settings.root_uri or not settings.root_port:
            raise ConfigError(
                "name the scheduler, as HOST:PORT, or set DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT"
            )
        return settings.root_uri, settings.root_port
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{text!r} is no address of a scheduler; expected HOST:PORT")
    return host.strip("[]"), int(port)


def observe(settings: Config, host: str, port: int, look: Callable[[Channel], Awaitable[T]]) -> T:
    """Connect, ``look``, and close. Raises an error of ``byteps.errors`` that says what to do."""
    where = joined(host, port)

    async def run() -> T:
        ours = credentials_to_look(settings)
        handshake = ClientHandshake(ours.job_id, ours.secret, CHANNEL, ROLE, sealing=ours.sealing)
        sock = await asyncio.wait_for(open_socket(host, port, handshake), ANSWER_S)
        job, scheduler = job_number(settings.job_id), f"the scheduler at {where}"
        channel = await Channel.over(sock, job, scheduler, keys=handshake.keys)
        try:
            return await look(channel)
        finally:
            channel.close()

    try:
        return asyncio.run(run())
    except asyncio.TimeoutError:
        raise JoinError(f"the scheduler at {where} did not answer within {ANSWER_S:g} s") from None
    except BytePSError:
        raise
    except OSError as error:
        raise JoinError(f"cannot reach the scheduler at {where}: {why(error)}") from None
