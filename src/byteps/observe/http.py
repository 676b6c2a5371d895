"""A small server for those who look: GET of a few paths, in a thread of its own, bounded in everything.

Not for the internet and not for uploads. A reader gets one answer per connection. What it can cost is small:
so many connections, so long, so many bytes of a request; one that is slow holds nobody else up.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Answer", "HttpServer", "Pages"]

MOST_CONNECTIONS = 32
REQUEST_BYTES = 8 << 10
REQUEST_S = 5.0  # for the head of a request to come
ANSWER_S = 10.0  # for the reader to read
PART_S = 1.0  # between two parts of an answer that goes on
# Nothing from elsewhere, and nothing but our own scripts, which are part of the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class Answer(NamedTuple):
    """What a path returns. With ``more``, a part follows every second until it is None or the reader goes."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: str = "200 OK"
    more: Callable[[], bytes | None] | None = None


Pages = Callable[[str], Answer | None]  # by path with its query; None: there is no such page


class HttpServer:
    """Serves ``pages`` on a listening socket until ``close()``; ``pages`` is called in its thread."""

    def __init__(self, sock: socket.socket, pages: Pages, name: str = "byteps-http") -> None:
        self._pages = pages
        self._sock = sock
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; connections are cut. Fine to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        start = asyncio.start_server(self._serve, sock=self._sock, limit=REQUEST_BYTES)
        server = self._loop.run_until_complete(start)
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST_CONNECTIONS:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S)
                answer = self._answer(head)
                length = f"Content-Length: {len(answer.body)}\r\n" if answer.more is None else ""
                headers = (
                    f"HTTP/1.1 {answer.status}\r\nContent-Type: {answer.kind}\r\n{length}"
                    "Connection: close\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                    "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
                    f"Content-Security-Policy: {POLICY}\r\n\r\n"
                )
                part: bytes | None = headers.encode() + answer.body
                while part is not None:
                    writer.write(part)
                    await asyncio.wait_for(writer.drain(), ANSWER_S)
                    if answer.more is None:
                        break
                    await asyncio.sleep(PART_S)
                    part = answer.more()
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it has gone, or is no reader of ours
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> Answer:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return Answer(b"not a request\n", status="400 Bad Request")
        if words[0] != b"GET":
            return Answer(b"only GET\n", status="405 Method Not Allowed")
        try:
            found = self._pages(words[1].decode("ascii"))
        except UnicodeDecodeError:
            found = None
        except Exception as error:  # ours: the reader gets no details, and the server goes on
            return Answer(f"{type(error).__name__}\n".encode(), status="500 Internal Server Error")
        return found or Answer(b"no such page\n", status="404 Not Found")
