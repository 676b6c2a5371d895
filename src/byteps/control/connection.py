"""Open and accept connections: TCP, the handshake, and then the bare socket for whoever uses it next.

The handshake reads exactly the bytes it wants, because a data or beat socket goes on to native code and a
byte read too many would be lost. Every returned socket is connected, non-blocking and has TCP_NODELAY.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from byteps.config import Config
from byteps.control.address import text_of
from byteps.control.channel import wire_log
from byteps.control.handshake import TIMEOUT_S, AcceptorHandshake, ClientHandshake, State, no_probe
from byteps.control.hello import Hello, Memory, job_name
from byteps.errors import HandshakeError
from byteps.observe.logging import logger

MAX_PENDING = 256  # handshakes in progress; one more closes the oldest
ATTEMPT_S = 10.0  # one attempt to connect: a host that drops packets must not eat the whole time-out


def why(error: OSError) -> str:
    """An error of a socket in the system's words; asyncio's own repeat the address and hide the cause."""
    return os.strerror(error.errno) if error.errno and not isinstance(error, socket.gaierror) else str(error)


@dataclass(frozen=True)
class Credentials:
    """What makes a peer one of ours."""

    job_id: str
    secret: bytes  # empty: none


async def open_socket(host: str, port: int, handshake: ClientHandshake) -> socket.socket:
    """One attempt: connect, do the handshake, return the socket.

    OSError may go away with time; HandshakeError will not.
    """
    try:
        sock = await asyncio.wait_for(_connect(host, port), ATTEMPT_S)
    except asyncio.TimeoutError:
        raise ConnectionError(f"no answer within {ATTEMPT_S:.0f} s") from None
    try:
        await asyncio.wait_for(_converse(sock, handshake, handshake.opening), TIMEOUT_S)
    except asyncio.TimeoutError:
        sock.close()
        raise ConnectionError(f"connected, but no answer to the handshake within {TIMEOUT_S:.0f} s") from None
    except BaseException:
        sock.close()
        raise
    if handshake.state is State.FAILED:
        sock.close()
        raise HandshakeError(f"handshake with {host}:{port} failed: {handshake.reason}")
    wire_log.info("connected to %s:%d", host, port)
    return sock


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
    """The job id and the secret in force."""
    return Credentials(job_name(config.job_id), config.job_secret or b"")


class Acceptor:
    """Accepts connections on a listening socket for ever; hands on those whose handshake succeeds.

    ``admit(hello, epoch)`` says why a peer that is one of ours may not come in all the same, or nothing.
    ``welcome(sock, hello, epoch)`` gets the socket. A stranger costs one log line, and nothing else.
    ``probe`` is that of the handshake, for connections whose ends may read each other's memory.
    """

    def __init__(
        self,
        listener: socket.socket,
        credentials: Credentials,
        admit: Callable[[Hello, int], str],
        welcome: Callable[[socket.socket, Hello, int], None],
        probe: Callable[[Memory], Memory] = no_probe,
    ) -> None:
        self._listener = listener
        self._credentials = credentials
        self._admit = admit
        self._welcome = welcome
        self._probe = probe
        self._pending: OrderedDict[asyncio.Task[None], str] = OrderedDict()

    async def run(self) -> None:
        """Until cancelled; then closes the listener and every connection still in its handshake."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        try:
            while True:
                try:
                    sock, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    # Out of descriptors, or the peer is already gone. Trying again at once would spin.
                    logger.warning("cannot accept a connection: %s", error)
                    await asyncio.sleep(0.1)
                    continue
                self._begin(sock, text_of(address))
        finally:
            self._listener.close()
            for task in self._pending:
                task.cancel()

    def _begin(self, sock: socket.socket, address: str) -> None:
        if len(self._pending) >= MAX_PENDING:
            oldest, its_address = self._pending.popitem(last=False)
            oldest.cancel()
            logger.warning(
                "closed the connection from %s: %d handshakes are in progress", its_address, MAX_PENDING
            )
        task = asyncio.ensure_future(self._shake_hands(sock, address))
        self._pending[task] = address
        task.add_done_callback(lambda done: self._pending.pop(done, None))

    async def _shake_hands(self, sock: socket.socket, address: str) -> None:
        job_id, secret = self._credentials.job_id, self._credentials.secret
        handshake = AcceptorHandshake(job_id, secret, self._admit, self._probe)
        began = time.monotonic()
        try:
            _prepare(sock)
            await asyncio.wait_for(_converse(sock, handshake, b""), TIMEOUT_S)
            reason = handshake.reason
        except asyncio.TimeoutError:
            reason = (
                f"the handshake was not done after {time.monotonic() - began:.0f} s ({handshake.state.value})"
            )
        except OSError as error:
            reason = f"{why(error)} ({handshake.state.value})"
        except BaseException:
            sock.close()
            raise
        if handshake.state is State.ACCEPTED and handshake.peer is not None and not reason:
            wire_log.info(
                "%s connection of a %s from %s", handshake.peer.channel, handshake.peer.role, address
            )
            self._welcome(sock, handshake.peer, handshake.epoch)
            return
        sock.close()
        logger.warning("refused the connection from %s: %s", address, reason)
