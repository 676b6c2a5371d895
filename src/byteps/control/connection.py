"""Open and accept connections: TCP, the handshake, and then the bare socket for whoever uses it next.

The handshake reads exactly the bytes it wants, because a data or beat socket goes on to native code and a
byte read too many would be lost. Every returned socket is connected, non-blocking and has TCP_NODELAY.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from byteps import _core
from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control.address import same_host, text_of
from byteps.control.channel import wire_log
from byteps.control.handshake import TIMEOUT_S, AcceptorHandshake, ClientHandshake, State, no_probe
from byteps.control.hello import Hello, Memory, job_name
from byteps.control.reception import Reception
from byteps.control.sealing import OFF, Sealing, able, sealing_of, told
from byteps.control.shortage import explained, is_shortage
from byteps.errors import HandshakeError
from byteps.observe.limited import Limited
from byteps.observe.text import clean

ACCEPT_AGAIN_S = 0.1  # when there was no descriptor or no memory for a connection
ATTEMPT_S = 10.0  # one attempt to connect: a host that drops packets must not eat the whole time-out


def why(error: OSError) -> str:
    """An error of a socket in the system's words; asyncio's own repeat the address and hide the cause."""
    return os.strerror(error.errno) if error.errno and not isinstance(error, socket.gaierror) else str(error)


@dataclass(frozen=True)
class Credentials:
    """What makes a peer one of ours."""

    job_id: str
    secret: bytes  # empty: none
    sealing: Sealing = OFF


async def open_socket(host: str, port: int, handshake: ClientHandshake) -> socket.socket:
    """One attempt: connect, do the handshake, return the socket; ``handshake.keys`` are for what follows.

    OSError may go away with time; HandshakeError will not.
    """
    try:
        sock = await asyncio.wait_for(_connect(host, port), ATTEMPT_S)
    except asyncio.TimeoutError:
        raise ConnectionError(f"no answer within {ATTEMPT_S:.0f} s") from None
    try:
        handshake.near = same_host(sock)
        await asyncio.wait_for(_converse(sock, handshake, handshake.opening), TIMEOUT_S)
    except asyncio.TimeoutError:
        sock.close()
        raise ConnectionError(f"connected, but no answer to the handshake within {TIMEOUT_S:.0f} s") from None
    except BaseException:
        sock.close()
        raise
    if handshake.state is State.FAILED:
        sock.close()
        raise HandshakeError(f"handshake with {joined(host, port)} failed: {handshake.reason}")
    wire_log.info("connected to %s, %s", joined(host, port), protection(handshake))
    return sock


def protection(handshake: ClientHandshake | AcceptorHandshake) -> str:
    """How what follows a handshake is protected, in words."""
    return told(handshake.keys.cipher if handshake.keys else "", handshake.forward)


async def resolve(host: str, port: int) -> list[Any]:
    """Addresses to try. A name goes to a daemon thread: a slow name server must not hold up our exit."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Any]] = loop.create_future()

    def answer(addresses: list[Any], error: OSError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def ask() -> None:
        try:
            result: tuple[list[Any], OSError | None]
            result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), None
        except OSError as error:
            result = [], error
        try:
            loop.call_soon_threadsafe(answer, *result)
        except RuntimeError:
            pass  # the loop has ended: nobody asks any more

    threading.Thread(target=ask, name="byteps-resolve", daemon=True).start()
    return await found


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    failure = OSError(f"no address for {host}")
    for family, kind, protocol, _, address in await resolve(host, port):
        sock = socket.socket(family, kind, protocol)
        try:
            _prepare(sock)
            await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _converse(
    sock: socket.socket, handshake: ClientHandshake | AcceptorHandshake, opening: bytes
) -> None:
    loop = asyncio.get_running_loop()
    if opening:
        await loop.sock_sendall(sock, opening)
    while handshake.state not in (State.ACCEPTED, State.FAILED):
        data = b""
        while len(data) < handshake.wanted:
            piece = await loop.sock_recv(sock, handshake.wanted - len(data))
            if not piece:
                raise ConnectionError("the other end closed the connection during the handshake")
            data += piece
        answer = handshake.receive(data)
        if answer:
            await loop.sock_sendall(sock, answer)


def credentials_of(config: Config) -> Credentials:
    """The job id, the secret and the encryption in force; ConfigError when that cannot be had."""
    return Credentials(job_name(config.job_id), config.job_secret or b"", sealing_of(config))


def credentials_to_look(config: Config) -> Credentials:
    """For one that looks at a job from outside: it encrypts if the job does."""
    return Credentials(job_name(config.job_id), config.job_secret or b"", able())


class Acceptor:
    """Accepts connections on a listening socket for ever; hands on those whose handshake succeeds.

    ``admit(hello, epoch)`` says why a peer that is one of ours may not come in all the same, or nothing.
    ``welcome(sock, hello, epoch, keys)`` gets the socket, and the keys if it is encrypted. A stranger costs
    a line in the log at most, and nothing else. ``probe`` is that of the handshake, for connections whose
    ends may read each other's memory.
    ``lines`` are those that the user of this object, too, logs about strangers.
    """

    def __init__(
        self,
        listener: socket.socket,
        credentials: Credentials,
        admit: Callable[[Hello, int], str],
        welcome: Callable[[socket.socket, Hello, int, _core.SessionKeys | None], None],
        probe: Callable[[Memory], Memory] = no_probe,
        lines: Limited | None = None,
    ) -> None:
        self._lines = lines or Limited()
        self._listener = listener
        self._credentials = credentials
        self._admit = admit
        self._welcome = welcome
        self._probe = probe
        self._reception: Reception[Any] = Reception(
            listener,
            who=lambda _, address: address,
            receive=self._shake_hands,
            sent_away=self._closed,
            not_accepted=self._not_accepted,
        )

    async def run(self) -> None:
        """Until cancelled; then closes the listener and every connection still in its handshake."""
        try:
            await self._reception.run()
        finally:
            self._listener.close()
            self._reception.close()
            self._lines.settle()

    async def _not_accepted(self, error: OSError) -> None:
        """Out of descriptors or memory: trying again at once would spin. Or the peer is already gone."""
        text = f"cannot accept a connection: {explained(error)}"
        self._lines.warning("new connections", str(error.errno), text)
        if is_shortage(error):
            self._reception.send_oldest_away("there are no more file descriptors")
        if is_shortage(error) or error.errno in (errno.ENOBUFS, errno.ENOMEM):
            await asyncio.sleep(ACCEPT_AGAIN_S)

    def _closed(self, address: Any, reason: str) -> None:
        text = f"closed the connection from {text_of(address)}: {reason}"
        self._lines.warning(_host(address), reason, text)

    async def _shake_hands(self, sock: socket.socket, address: Any) -> None:
        ours = self._credentials
        handshake = AcceptorHandshake(ours.job_id, ours.secret, self._admit, self._probe, ours.sealing)
        began = time.monotonic()
        try:
            _prepare(sock)
            handshake.near = same_host(sock)
            await asyncio.wait_for(_converse(sock, handshake, b""), TIMEOUT_S)
            reason = handshake.reason
        except asyncio.TimeoutError:
            reason = (
                f"the handshake was not done after {time.monotonic() - began:.0f} s ({handshake.state.value})"
            )
        except OSError as error:
            reason = f"{why(error)} ({handshake.state.value})"
        except Exception as error:  # a mistake of ours must not make it the stranger's job to end us
            reason = f"{type(error).__name__}: {clean(str(error), 300)}"
            self._lines.log(logging.ERROR, _host(address), reason, f"the handshake itself failed: {reason}")
        except BaseException:
            sock.close()
            raise
        if handshake.state is State.ACCEPTED and handshake.peer is not None and not reason:
            peer = handshake.peer
            what = f"{peer.channel} connection of a {peer.role} from {text_of(address)}"
            wire_log.info("%s, %s", what, protection(handshake))
            self._welcome(sock, peer, handshake.epoch, handshake.keys)
            return
        sock.close()
        text = f"refused the connection from {text_of(address)}: {reason}"
        self._lines.warning(_host(address), reason, text)


def _host(address: Any) -> str:
    """Without the port, which is another one each time."""
    return str(address[0]) if isinstance(address, tuple) else text_of(address)
