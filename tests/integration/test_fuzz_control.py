"""The control plane against bytes that are nearly right, seeded: no traceback, no crash, and nothing is left.

Every target is the real one, with real sockets. An exception that nobody expects ends a task, and asyncio
tells its loop of it: that is what fails these tests, besides what each one looks at.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fuzz_bytes import changed, frame, message, unknown, value

from byteps import _core
from byteps.config import load
from byteps.control import address, door, meeting
from byteps.control.channel import Channel
from byteps.control.connection import Acceptor, Credentials, open_socket
from byteps.control.handshake import AcceptorHandshake, ClientHandshake
from byteps.control.hello import Challenge, Hello, Proof, Reject, Welcome, job_number
from byteps.control.messages import Ask, Barrier, Declare, Leave, Lost, Message, Register, TensorSpec
from byteps.control.scheduler_channel import SchedulerChannel, connect, registration
from byteps.errors import HandshakeError, ProtocolError
from byteps.launcher import frames
from byteps.launcher.spec import ProcessSpec
from byteps.observe.limited import Limited
from byteps.observe.logging import logger
from byteps.scheduler import observers
from byteps.scheduler.events import End
from byteps.scheduler.service import Scheduler

LIMIT_S = 60.0
JOB = job_number("job")
SECRET = b"secret"


class Errors(logging.Handler):
    """What was logged as an error: a fuzzer may cause refusals, never that."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def descriptors() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """To its end, in time; nothing unexpected happened on the way, and nothing is left behind."""
    unexpected: list[str] = []
    errors, before = Errors(), descriptors()

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unexpected.append(repr(context)))
        await asyncio.wait_for(scenario, LIMIT_S)
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()  # a task that failed says so when it is collected

    for each in (logger, logging.getLogger("asyncio")):
        each.addHandler(errors)
    try:
        asyncio.run(watched())
    finally:
        for each in (logger, logging.getLogger("asyncio")):
            each.removeHandler(errors)
    assert not unexpected and not errors.said, (unexpected, errors.said)
    assert descriptors() <= before


def shut(sock: socket.socket) -> None:
    """Say that no more comes; the other end may have hung up already."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


async def said(port: int, data: bytes) -> bytes:
    """Send bytes, close our side, and hear all that comes back."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        heard = b""
        try:
            await loop.sock_sendall(sock, data)
            shut(sock)
            while piece := await asyncio.wait_for(loop.sock_recv(sock, 65_536), LIMIT_S):
                heard += piece
        except ConnectionError:
            pass  # the other end had seen enough
        return heard


# ---- the handshake


def hello(rng: random.Random, secured: bool) -> bytes:
    opening = ClientHandshake("job", SECRET if secured else b"", "data", "worker", rng.randrange(3)).opening
    match rng.randrange(4):
        case 0:
            return changed(rng, opening)
        case 1:
            fields = msgspec.msgpack.decode(opening[64:])
            fields |= unknown(rng) or {rng.choice(list(fields)): value(rng)}
            return frame(_core.FRAME_HELLO, JOB, msgspec.msgpack.encode(fields)[:4_096])
        case 2:
            proof = msgspec.msgpack.encode(Proof(b"x" * 32))
            return opening + changed(rng, frame(_core.FRAME_PROOF, JOB, proof))
    return rng.randbytes(rng.choice((0, 10, 64, 300)))


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["open", "secret"])
def test_handshakes_of_strangers(seed: int, secret: bytes) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        arrived = []
        listener = address.listen("127.0.0.1", range(1), "X")
        port = listener.getsockname()[1]

        def welcome(sock: socket.socket, hello: Hello, epoch: int, keys: object) -> None:
            arrived.append(hello)
            sock.close()

        acceptor = Acceptor(
            listener,
            Credentials("job", secret),
            lambda hello, epoch: "" if hello.channel == "data" else "no",
            welcome,
        )
        accepting = asyncio.ensure_future(acceptor.run())
        for _ in range(40):
            await asyncio.gather(*(said(port, hello(rng, bool(secret))) for _ in range(8)))
            assert not (secret and arrived)  # nobody could prove anything
        with await open_socket("127.0.0.1", port, ClientHandshake("job", secret, "data", "worker")) as member:
            # A member still gets in: welcome() hangs up on it when it has noted it.
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(member, 1), LIMIT_S) == b""
        assert arrived[-1].channel == "data"
        accepting.cancel()
        await asyncio.wait({accepting})

    run(scenario())


def test_answers_of_acceptors_that_lie(seed: int) -> None:
    rng = random.Random(seed)
    payloads = [Challenge(b"n" * 32), Welcome(b"m" * 32), Reject("\x1b[2J no"), Proof(b"x" * 32)]
    kinds = [_core.FRAME_CHALLENGE, _core.FRAME_WELCOME, _core.FRAME_REJECT, _core.FRAME_CONTROL]

    def answer() -> bytes:
        parts = []
        for _ in range(rng.randrange(4)):
            body = msgspec.msgpack.encode(rng.choice(payloads) if rng.random() < 0.6 else value(rng))
            parts.append(changed(rng, frame(rng.choice(kinds), JOB, changed(rng, body)[:4_000])))
        return b"".join(parts)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with address.listen("127.0.0.1", range(1), "X") as listener:
            listener.setblocking(False)

            async def lie() -> None:
                sock, _ = await loop.sock_accept(listener)
                with sock:
                    try:
                        await loop.sock_sendall(sock, answer())
                        shut(sock)
                        while await loop.sock_recv(sock, 65_536):
                            pass
                    except ConnectionError:
                        pass

            for _ in range(150):
                lying = asyncio.ensure_future(lie())
                handshake = ClientHandshake("job", rng.choice((b"", SECRET)), "data", "worker")
                try:
                    (await open_socket("127.0.0.1", listener.getsockname()[1], handshake)).close()
                    assert not handshake._secret  # without one, anybody is believed
                except HandshakeError as error:
                    assert str(error).isprintable()
                except OSError:
                    pass
                await lying

    run(scenario())


# ---- messages


GOOD: list[Message] = [
    Register("worker", 0, 0, 1, None, 2, 0, "h", "::1", 0, 0, 5, {"BYTEPS_PARTITION_BYTES": "64"}),
    Declare(1, [TensorSpec("x", 0, 0, [4, 4]), TensorSpec("y", 0, 3, [1 << 40])]),
    Barrier(5),
    Leave(reason="bye"),
    Lost("worker", 1, "h", "why"),
    Ask(3),
]


def stream(rng: random.Random) -> bytes:
    """A few control frames, nearly right."""
    parts = []
    for _ in range(rng.randrange(1, 6)):
        body = message(rng, rng.choice(GOOD) if rng.random() < 0.7 else None)
        whole = frame(_core.FRAME_CONTROL, JOB, changed(rng, body) if rng.random() < 0.3 else body)
        parts.append(changed(rng, whole) if rng.random() < 0.2 else whole)
    return b"".join(parts)


async def pair() -> tuple[socket.socket, socket.socket]:
    with address.listen("127.0.0.1", range(1), "X") as listener:
        peer = socket.create_connection(listener.getsockname(), LIMIT_S)
        sock, _ = listener.accept()
    for each in (sock, peer):
        each.setblocking(False)
    return sock, peer


def test_control_frames(seed: int) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        for _ in range(300):
            sock, peer = await pair()
            channel = await Channel.over(sock, JOB, "the peer")
            try:
                with peer:
                    await asyncio.get_running_loop().sock_sendall(peer, stream(rng))
                while True:
                    await asyncio.wait_for(channel.receive(), LIMIT_S)
            except ProtocolError as error:
                assert str(error).isprintable() and len(str(error)) < 1_000
            except ConnectionError:
                pass
            channel.close()

    run(scenario())


def test_observers_that_make_no_sense(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(observers, "PER_S", 1e6)
    state = Scheduler(load({"DMLC_PS_ROOT_URI": "::1"}), socket.socket())._state

    async def scenario() -> None:
        for _ in range(300):
            sock, peer = await pair()
            data = b"".join(
                stream(rng) if rng.random() < 0.3 else frame(_core.FRAME_CONTROL, JOB, message(rng, Ask(1)))
                for _ in range(3)
            )
            with peer:
                await asyncio.get_running_loop().sock_sendall(peer, data)
            await observers.answer(
                sock, JOB, lambda question, peer: observers.status(0, state, "text", {}), Limited()
            )

    run(scenario())


# ---- the whole scheduler


async def misbehave(rng: random.Random, link: SchedulerChannel) -> None:
    """A member that registered, and now says anything at all."""
    transport = link._transport
    for _ in range(rng.randrange(1, 8)):
        transport.write(stream(rng))
        if rng.random() < 0.5:
            await asyncio.sleep(0)


async def come_and_go(rng: random.Random, port: int) -> None:
    """Connections of every other kind, and members that do not register."""
    roles = {"status": "observer", "rival": "scheduler", "beat": "worker", "control": "server"}
    for _ in range(rng.randrange(4)):
        channel = rng.choice(list(roles))
        handshake = ClientHandshake("job", b"", channel, roles[channel], instance=rng.randrange(9))
        try:
            with await open_socket("127.0.0.1", port, handshake) as sock:
                await asyncio.get_running_loop().sock_sendall(sock, stream(rng))
        except (HandshakeError, OSError):
            pass  # the job is over already


@pytest.mark.parametrize("servers", [0, 1])
def test_members_that_say_anything_end_a_job_but_never_the_scheduler_by_an_exception(
    seed: int, servers: int
) -> None:
    """Every run ends as a job does: somebody is lost, or all have left, or it is stopped."""
    rng = random.Random(seed)

    async def one_job(number: int) -> None:
        listener = address.listen("127.0.0.1", range(1), "X")
        env = {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(listener.getsockname()[1]),
            "DMLC_NUM_WORKER": "1" if servers == 0 else "2",
            "BYTEPS_LOCAL_SIZE": "2" if servers == 0 else "1",
            "DMLC_NUM_SERVER": str(servers),
            "BYTEPS_JOB_ID": "job",
            "BYTEPS_PARTITION_BYTES": "64",
        }
        config = load({**env, "DMLC_ROLE": "scheduler"})
        scheduler = Scheduler(config, listener)
        running = asyncio.ensure_future(scheduler.run())
        links = []
        for rank in range(2):
            own = {"BYTEPS_LOCAL_RANK": str(rank)} if servers == 0 else {"DMLC_WORKER_ID": str(rank)}
            worker = load({**env, **own, "DMLC_ROLE": "worker"})
            links.append(await connect(worker, "worker", rng.getrandbits(62)))
            links[-1].send(registration(worker, "worker", "127.0.0.1"))
        if servers:
            links.append(await connect(config, "server", rng.getrandbits(62)))
            links[-1].send(registration(config, "server", "127.0.0.1", port=1, shards=2))
        outside = come_and_go(rng, config.root_port)
        await asyncio.gather(outside, *(misbehave(rng, link) for link in links))
        for link in links:
            link.shut(LIMIT_S)
        if scheduler._readers:
            await asyncio.wait(scheduler._readers, timeout=1.0)
        if not running.done():  # some jobs just go on, or never begin
            scheduler._stop(signal.SIGTERM)
        end = await asyncio.wait_for(running, LIMIT_S)
        for link in links:
            link.close()
        assert isinstance(end, End) and end.text.isprintable(), (number, end)

    async def scenario() -> None:
        for number in range(25):
            await one_job(number)

    run(scenario())


# ---- ranks of one machine


def test_the_meeting_of_a_machine(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    size, epoch = 3, 5
    good = [door.Arrival(1, epoch, 77, (1, 2)), door.Arrival(2, 9, 77, (1, 2)), door.Table(3)]

    def intrude(path: Path) -> list[socket.socket]:
        """Some come before the ranks do; a few bring descriptors, a few stay and are silent."""
        held = []
        for _ in range(rng.randrange(12)):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(str(path))
            body = msgspec.msgpack.encode(rng.choice(good) if rng.random() < 0.7 else value(rng))
            packet = changed(rng, body)
            # A good Arrival with a descriptor is a rank: without one it is nobody, whatever it says.
            fds = array.array("i", [0] * (0 if b"arrival" in packet else rng.randrange(3)))
            if packet and rng.random() < 0.8:
                sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else [])
            held.append(sock)
        return held

    async def scenario() -> None:
        for number in range(40):
            path = tmp_path / f"{number}.sock"
            held = meeting.Meeting(path)
            intruders = intrude(path)
            arenas = [_core.Arena(1 << 16) for _ in range(size)]
            ranks = [held.hold(size, epoch, arenas[0])]
            ranks += [meeting.attend(path, rank, size, epoch, arenas[rank]) for rank in range(1, size)]
            for met in await asyncio.gather(*ranks):
                assert met.readable
                for fd in (met.board_fd, *met.arena_fds):
                    if fd >= 0:
                        os.close(fd)
            for sock in intruders:
                sock.close()

    run(scenario())


# ---- launcher and agents


def test_frames_of_launchers_and_agents(seed: int) -> None:
    rng = random.Random(seed)
    spec = ProcessSpec("worker 0", "worker", ("true",), {"A": "b"}, frozenset({"C"}))
    good = {
        frames.ToAgent: [
            frames.Open("/", 0),
            frames.Start({0: spec}, {}),
            frames.Signal(2, [0]),
            frames.Ping(),
        ],
        frames.FromAgent: [
            frames.Hello("1", "h", 1, 2),
            frames.Refused("no"),
            frames.Output(0, True, b"x"),
            frames.Ended(0, 1),
            frames.NotStarted(0, 127, "x"),
        ],
    }
    for kind, messages in good.items():
        for _ in range(600):
            reader = frames.Frames(kind, marked=kind is frames.FromAgent and rng.random() < 0.5)
            data = frames.MARK if rng.random() < 0.8 else b"Welcome!"
            for _ in range(rng.randrange(1, 4)):
                if rng.random() < 0.5:
                    data += changed(rng, frames.encode(rng.choice(messages)))
                    continue
                fields = msgspec.msgpack.decode(msgspec.msgpack.encode(rng.choice(messages)))
                fields[rng.choice(list(fields))] = value(rng)
                body = msgspec.msgpack.encode(fields | unknown(rng))
                data += len(body).to_bytes(4, "big") + body
            try:
                while data:
                    cut = rng.randrange(1, len(data) + 1)
                    for found in reader.feed(data[:cut]):
                        assert isinstance(found, kind)
                    data = data[cut:]
            except frames.FrameError as error:
                assert str(error).isprintable()


def test_the_acceptor_side_alone_never_raises(seed: int) -> None:
    """Without sockets, so many more of them."""
    rng = random.Random(seed)
    for _ in range(3_000):
        secured = rng.random() < 0.5
        end = AcceptorHandshake("job", SECRET if secured else b"", lambda hello, epoch: "")
        data = hello(rng, secured)
        while end.wanted and len(data) >= end.wanted:
            piece, data = data[: end.wanted], data[end.wanted :]
            end.receive(piece)
        assert end.reason.isprintable() or "\\" in end.reason
