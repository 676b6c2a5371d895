"""Sockets below the control plane: addresses, handshakes that read not one byte too many, and last words."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from byteps import _core
from byteps.control import address
from byteps.control.channel import MAX_WAITING, Channel
from byteps.control.connection import Acceptor, Credentials, open_socket
from byteps.control.handshake import AcceptorHandshake, ClientHandshake
from byteps.control.hello import Hello, job_number
from byteps.control.messages import Barrier, Leave, Message, Shutdown, Waiting, encode
from byteps.errors import ConfigError, HandshakeError, ProtocolError

LIMIT_S = 30.0
JOB = job_number("job")


def control_frame(message: Message) -> bytes:
    return _core.encode_frame(_core.FRAME_CONTROL, JOB, 0, 0, encode(message))


# Addresses


def test_listen_takes_the_first_free_port_of_a_range() -> None:
    with address.listen("127.0.0.1", range(1), "X") as first:
        port = first.getsockname()[1]
        with address.listen("127.0.0.1", range(port, port + 50), "X") as second:
            assert port < second.getsockname()[1] < port + 50
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: Address already in use.*DMLC_PORT"):
            address.listen("127.0.0.1", range(port, port + 1), "DMLC_PORT")


def test_own_address_goes_from_the_most_to_the_least_explicit() -> None:
    assert address.own_address("node-7", "lo", "10.0.0.9") == "node-7"
    assert address.own_address("", "lo", "10.0.0.9") == "127.0.0.1"
    assert address.own_address("", "", "10.0.0.9") == "10.0.0.9"
    with pytest.raises(ConfigError, match=r"DMLC_INTERFACE='nope0'.*expected one of: .*lo"):
        address.own_address("", "nope0", "10.0.0.9")


@pytest.mark.parametrize(
    ("advertised", "interface", "host"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("10.1.2.3", "", "0.0.0.0"),
        ("fd00::1", "", "::"),
        ("10.1.2.3", "lo", "127.0.0.1"),
        ("no.such.host.invalid", "", "0.0.0.0"),
    ],
)
def test_bind_address_is_as_narrow_as_it_can_be(advertised: str, interface: str, host: str) -> None:
    assert address.bind_host(advertised, interface) == host


def test_one_host_needs_no_checksum() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert address.same_host(ours)
    with address.listen("127.0.0.1", range(1), "X") as listener:
        ours = socket.create_connection(listener.getsockname(), LIMIT_S)
        theirs, _ = listener.accept()
    with ours, theirs:
        settings = [address.wants_checksum(setting, ours) for setting in ("auto", "on", "off")]
    assert settings == [False, True, False]


def test_loopback_addresses() -> None:
    hosts = ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "0.0.0.0", "localhost"]
    assert [address.is_loopback(host) for host in hosts] == [True, True, True, True, False, False, False]


# Handshakes over sockets


@pytest.mark.parametrize("secret", [b"", b"secret"], ids=["open", "secret"])
def test_nothing_behind_the_handshake_is_read(secret: bytes) -> None:
    """Both ends put data right behind their last frame of the handshake; it stays in the socket."""

    async def scenario() -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[socket.socket] = loop.create_future()
        listener = address.listen("127.0.0.1", range(1), "X")
        host, port = listener.getsockname()

        def welcome(sock: socket.socket, hello: Hello, epoch: int) -> None:
            arrived.set_result(sock)

        acceptor = Acceptor(listener, Credentials("job", secret), lambda hello, epoch: "", welcome)
        accepting = asyncio.ensure_future(acceptor.run())
        client = ClientHandshake("job", secret, "data", "worker")
        if not secret:
            client.opening += b"from the client"  # in one packet with HELLO
        ours = await open_socket(host, port, client)
        theirs = await asyncio.wait_for(arrived, LIMIT_S)
        if secret:
            await loop.sock_sendall(ours, b"from the client")
        await loop.sock_sendall(theirs, b"from the acceptor")
        both = await loop.sock_recv(theirs, 100), await loop.sock_recv(ours, 100)
        accepting.cancel()
        for sock in (ours, theirs):
            assert sock.getblocking() is False
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            sock.close()
        return both

    assert asyncio.run(scenario()) == (b"from the client", b"from the acceptor")


def test_data_in_one_packet_with_welcome_stays_in_the_socket() -> None:
    async def scenario() -> bytes:
        loop = asyncio.get_running_loop()
        listener = address.listen("127.0.0.1", range(1), "X")
        listener.setblocking(False)
        calling = asyncio.ensure_future(
            open_socket(*listener.getsockname(), ClientHandshake("job", b"", "data", "worker"))
        )
        theirs, _ = await loop.sock_accept(listener)
        acceptor, answer = AcceptorHandshake("job", b"", lambda hello, epoch: ""), b""
        while acceptor.wanted:
            answer += acceptor.receive(await loop.sock_recv(theirs, acceptor.wanted))
        await loop.sock_sendall(theirs, answer + b"data")
        ours = await calling
        with listener, theirs, ours:
            return await loop.sock_recv(ours, 100)

    assert asyncio.run(scenario()) == b"data"


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 64, b""], ids=["http", "nothing"]
)
def test_something_else_that_listens_there_is_named(answer: bytes) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        listener = address.listen("127.0.0.1", range(1), "X")
        listener.setblocking(False)
        handshake = ClientHandshake("job", b"", "control", "worker")
        calling = asyncio.ensure_future(open_socket(*listener.getsockname(), handshake))
        theirs, _ = await loop.sock_accept(listener)
        with listener, theirs:
            while len(await loop.sock_recv(theirs, 4096)) == 4096:
                pass
            await loop.sock_sendall(theirs, answer)
            theirs.shutdown(socket.SHUT_WR)
            await calling

    # What is not ours is an error at once; one that only closes may be a scheduler that restarts.
    expected = (HandshakeError, "not a byteps handshake") if answer else (ConnectionError, "closed the conn")
    with pytest.raises(expected[0], match=expected[1]):
        asyncio.run(scenario())


# Channels


def channel_after(data: bytes, *, reset: bool = False) -> list[Message | str]:
    """What a channel gives out when a peer sends these bytes and closes."""

    async def scenario() -> list[Message | str]:
        with address.listen("127.0.0.1", range(1), "X") as listener:
            sock = socket.create_connection(listener.getsockname(), LIMIT_S)
            peer, _ = listener.accept()
        sock.setblocking(False)
        channel = await Channel.over(sock, JOB, "the peer")
        channel.send(Leave())  # unread at the peer: its close is a reset then
        sending = asyncio.get_running_loop().run_in_executor(None, peer.sendall, data)
        if not reset:
            await sending
            peer.shutdown(socket.SHUT_WR)
        else:
            await sending
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        given: list[Message | str] = []
        try:
            while True:
                given.append(await asyncio.wait_for(channel.receive(), LIMIT_S))
        except (ConnectionError, ProtocolError) as error:
            given.append(f"{type(error).__name__}: {error}")
        channel.close()
        peer.close()
        return given

    return asyncio.run(scenario())


@pytest.mark.parametrize("reset", [False, True])
def test_last_words_are_heard_before_the_end(reset: bool) -> None:
    words: list[Message] = [Waiting(f"{n}") for n in range(20)] + [Shutdown()]
    given = channel_after(b"".join(control_frame(word) for word in words), reset=reset)
    assert given[:-1] == words
    assert str(given[-1]).startswith("ConnectionError: its connection closed")


def test_more_messages_than_fit_wait_their_turn() -> None:
    words: list[Message] = [Barrier(n) for n in range(3 * MAX_WAITING)]
    assert channel_after(b"".join(control_frame(word) for word in words))[:-1] == words


GOOD = control_frame(Shutdown())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0" * 64, "ProtocolError: control frame from the peer"),
        (_core.encode_frame(_core.FRAME_BEAT, JOB, 0, 0, b""), "frame type 9 on a control connection"),
        (_core.encode_frame(_core.FRAME_CONTROL, JOB + 1, 0, 0, b""), "job"),
        (_core.encode_frame(_core.FRAME_CONTROL, JOB, 0, 0, b"\xc1"), "does not decode"),
        (GOOD[:-1] + b"x", "ProtocolError"),
        (GOOD[:-1], "closed in the middle of a message"),
        (GOOD[:10], "closed in the middle of a message"),
    ],
    ids=["zeros", "beat", "another job", "no message", "damaged", "cut payload", "cut header"],
)
def test_nonsense_ends_a_channel_after_what_made_sense(data: bytes, words: str) -> None:
    given = channel_after(control_frame(Waiting("good")) + data)
    assert given[0] == Waiting("good") and len(given) == 2
    assert words in str(given[1])
