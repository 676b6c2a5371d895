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
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control.address import text_of
from byteps.control.channel import wire_log
from byteps.control.handshake import TIMEOUT_S, AcceptorHandshake, ClientHandshake, State, no_probe
from byteps.control.hello import Hello, Memory, job_name
from byteps.control.shortage import explained, is_shortage
from byteps.errors import HandshakeError
from byteps.observe.limited import Limited
from byteps.observe.text import clean

MAX_PENDING = 256  # handshakes in progress; one more closes the oldest
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
        raise HandshakeError(f"handshake with {joined(host, port)} failed: {handshake.reason}")
    wire_log.info("connected to %s", joined(host, port))
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
    ``welcome(sock, hello, epoch)`` gets the socket. A stranger costs a line in the log at most, and nothing
    else. ``probe`` is that of the handshake, for connections whose ends may read each other's memory.
    ``lines`` are those that the user of this object, too, logs about strangers.
    """

    def __init__(
        self,
        listener: socket.socket,
        credentials: Credentials,
        admit: Callable[[Hello, int], str],
        welcome: Callable[[socket.socket, Hello, int], None],
        probe: Callable[[Memory], Memory] = no_probe,
        lines: Limited | None = None,
    ) -> None:
        self._lines = lines or Limited()
        self._listener = listener
        self._credentials = credentials
        self._admit = admit
        self._welcome = welcome
        self._probe = probe
        self._pending: OrderedDict[asyncio.Task[None], Any] = OrderedDict()  # and the peer's address

    async def run(self) -> None:
        """Until cancelled; then closes the listener and every connection still in its handshake."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        try:
            while True:
                try:
                    sock, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    await self._not_accepted(error)
                    continue
                self._begin(sock, address)
        finally:
            self._listener.close()
            for task in self._pending:
                task.cancel()
            self._lines.settle()

    async def _not_accepted(self, error: OSError) -> None:
        """Out of descriptors or memory: trying again at once would spin. Or the peer is already gone."""
        text = f"cannot accept a connection: {explained(error)}"
        self._lines.warning("new connections", str(error.errno), text)
        if is_shortage(error):
            self._close_oldest("there are no more file descriptors")
        if is_shortage(error) or error.errno in (errno.ENOBUFS, errno.ENOMEM):
            await asyncio.sleep(ACCEPT_AGAIN_S)

    def _close_oldest(self, reason: str) -> None:
        """Those who hold a handshake open for long are strangers, or hang."""
        if self._pending:
            task, address = self._pending.popitem(last=False)
            task.cancel()
            text = f"closed the connection from {text_of(address)}: {reason}"
            self._lines.warning(_host(address), reason, text)

    def _begin(self, sock: socket.socket, address: Any) -> None:
        if len(self._pending) >= MAX_PENDING:
            self._close_oldest(f"{MAX_PENDING} handshakes are in progress")
        task = asyncio.ensure_future(self._shake_hands(sock, address))
        self._pending[task] = address
        task.add_done_callback(lambda done: self._pending.pop(done, None))

    async def _shake_hands(self, sock: socket.socket, address: Any) -> None:
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
        except Exception as error:  # a mistake of ours must not make it the stranger's job to end us
            reason = f"{type(error).__name__}: {clean(str(error), 300)}"
            self._lines.log(logging.ERROR, _host(address), reason, f"the handshake itself failed: {reason}")
        except BaseException:
            sock.close()
            raise
        if handshake.state is State.ACCEPTED and handshake.peer is not None and not reason:
            peer = handshake.peer
            wire_log.info("%s connection of a %s from %s", peer.channel, peer.role, text_of(address))
            self._welcome(sock, peer, handshake.epoch)
            return
        sock.close()
        text = f"refused the connection from {text_of(address)}: {reason}"
        self._lines.warning(_host(address), reason, text)


def _host(address: Any) -> str:
    """Without the port, which is another one each time."""
    return str(address[0]) if isinstance(address, tuple) else text_of(address)
