"""Sockets below the control plane: addresses, handshakes that read not one byte too many, and last words."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest

from byteps import _core
from byteps.control import address
from byteps.control.channel import MAX_WAITING, Channel
from byteps.control.connection import Acceptor, Credentials, open_socket
from byteps.control.handshake import AcceptorHandshake, ClientHandshake
from byteps.control.hello import Hello, job_number
from byteps.control.messages import Barrier, Leave, Message, Retire, Shutdown, Waiting, encode
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
        settings = [address.wants_checksum(setting, ours, sealed=False) for setting in ("auto", "on", "off")]
    assert settings == [False, True, False]


@pytest.mark.parametrize(
    ("setting", "plain", "sealed"), [("auto", True, False), ("on", True, True), ("off", False, False)]
)
def test_between_hosts_a_cipher_checks_better(
    setting: str, plain: bool, sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "same_host", lambda sock: False)
    with socket.socket() as ours:
        assert address.wants_checksum(setting, ours, sealed=False) is plain
        assert address.wants_checksum(setting, ours, sealed=True) is sealed


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

        def welcome(sock: socket.socket, hello: Hello, epoch: int, keys: object) -> None:
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
            with contextlib.suppress(OSError):  # what it has read so far may have been enough to hang up
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


# What a peer can make us hold


async def connected(**bounds: int) -> tuple[Channel, socket.socket]:
    """A channel, and the bare socket of a peer that may do anything; its buffers are small."""
    with address.listen("127.0.0.1", range(1), "X") as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        peer.connect(listener.getsockname())
        sock, _ = listener.accept()
    for each in (sock, peer):
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    return await Channel.over(sock, JOB, "the peer", **bounds), peer


async def press(peer: socket.socket, data: bytes, most: int) -> int:
    """Send ``data`` again and again until the other end takes no more; how many bytes it took."""
    loop, sent = asyncio.get_running_loop(), 0
    while sent < most:
        try:
            await asyncio.wait_for(loop.sock_sendall(peer, data), 1.0)
            sent += len(data)
        except asyncio.TimeoutError:
            break
    return sent


@pytest.mark.parametrize("numbers", [1, 100_000])
def test_a_peer_that_nobody_listens_to_cannot_make_us_hold_much(numbers: int) -> None:
    async def scenario() -> tuple[int, int]:
        channel, peer = await connected()
        took = await press(peer, control_frame(Retire([1 << 31] * numbers)), 64 << 20)
        held = sum(bytes_ for _, bytes_ in channel._arrived) + len(channel._buffer)
        channel.close()
        peer.close()
        return took, held

    took, held = asyncio.run(scenario())
    assert held < 2 << 20 and took < 8 << 20


def test_a_long_message_is_refused_by_its_header_before_its_sender_is_known() -> None:
    async def scenario() -> tuple[str, int]:
        channel, peer = await connected(max_bytes=1_000)
        frame = control_frame(Waiting("x" * 2_000))
        await asyncio.get_running_loop().sock_sendall(peer, frame[: _core.HEADER_BYTES])
        with pytest.raises(ProtocolError) as raised:
            await asyncio.wait_for(channel.receive(), LIMIT_S)
        peer.close()
        return str(raised.value), len(channel._buffer)

    words, held = asyncio.run(scenario())
    assert "at most 1000 are allowed now" in words and held <= _core.HEADER_BYTES


def test_a_peer_that_does_not_read_gets_no_room_and_then_is_cut_off() -> None:
    async def scenario() -> tuple[bool, str]:
        channel, peer = await connected()
        await asyncio.wait_for(channel.room(), LIMIT_S)  # at first there is
        for _ in range(1_000):
            channel.send(Waiting("x" * 4_000))
        full = False
        try:
            await asyncio.wait_for(channel.room(), 0.2)
        except asyncio.TimeoutError:
            full = True
        for _ in range(12_000):
            channel.send(Waiting("x" * 4_000))
        with pytest.raises(ConnectionError) as raised:
            await asyncio.wait_for(channel.receive(), LIMIT_S)
        await asyncio.wait_for(channel.room(), LIMIT_S)  # nobody waits for one that has gone
        peer.close()
        return full, str(raised.value)

    assert asyncio.run(scenario()) == (True, "it does not read its messages")


def test_messages_that_wait_do_not_keep_another_peer_waiting() -> None:
    """What a scheduler does: a task for every peer, each handling one message after the other."""

    async def scenario() -> list[str]:
        order: list[str] = []
        both = [await connected() for _ in range(2)]
        for _, peer in both:
            await asyncio.get_running_loop().sock_sendall(peer, b"".join([control_frame(Barrier(1))] * 100))
        for channel, _ in both:  # all have arrived when the first can be received, or soon after
            assert await asyncio.wait_for(channel.receive(), LIMIT_S) == Barrier(1)

        async def handle(name: str, channel: Channel) -> None:
            for _ in range(99):
                await channel.receive()
                order.append(name)

        await asyncio.gather(*(handle(name, each[0]) for name, each in zip("ab", both, strict=True)))
        for channel, peer in both:
            channel.close()
            peer.close()
        return order

    order = asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))
    assert max(abs(order[:n].count("a") - order[:n].count("b")) for n in range(198)) <= 2
