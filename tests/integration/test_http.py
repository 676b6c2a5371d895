"""The small server for those who look: what it answers, and what hostile readers can do to it."""

from __future__ import annotations

import random
import socket
import urllib.request
from collections.abc import Iterator

import pytest

from byteps.observe import http
from byteps.observe.http import Answer, HttpServer


@pytest.fixture
def port() -> Iterator[int]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(sock, lambda path: Answer(b"hello " + path.encode()) if path != "/no" else None)
    yield sock.getsockname()[1]
    server.close()
    server.close()


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while chunk := sock.recv(65_536):
                answer += chunk
        except ConnectionResetError:
            pass
        return answer


def test_it_answers(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/here", timeout=10) as answer:
        assert answer.read() == b"hello /here"
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /no HTTP/1.1\r\n\r\n", b"404"),
        (b"POST / HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / FTP/1\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"404"),
    ],
)
def test_what_it_refuses(port: int, request_: bytes, status: bytes) -> None:
    assert raw(port, request_).split(b" ")[1] == status


def test_noise_changes_nothing(port: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        raw(port, rng.randbytes(rng.randrange(200)) + rng.choice([b"", b"\r\n\r\n"]))
    raw(port, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
    test_it_answers(port)


def test_readers_that_say_nothing_have_an_end(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.2)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(http.MOST_CONNECTIONS)]
    assert all(sock.recv(1) == b"" for sock in idle)
    for sock in idle:
        sock.close()
    test_it_answers(port)
