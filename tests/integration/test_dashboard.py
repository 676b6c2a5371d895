"""The page about a job: what it shows, to whom, and that nobody who looks slows the job."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser

SCRIPT = """
import time, pathlib, numpy as np, byteps as bps
bps.init()
while True:
    if bps.rank() == 1:
        time.sleep(0.05)
    bps.push_pull(np.ones(50_000, np.float32), name="gradient")
    over = bps.push_pull(np.array([pathlib.Path({over!r}).exists()], np.float32), name="over")
    bps.step()
    if over[0] > 0:
        break
"""


@contextmanager
def job(folder: Path) -> Iterator[str]:
    """A job with a page; gives its address."""
    script, over = folder / "train.py", folder / "over"
    script.write_text(SCRIPT.format(over=str(over)))
    launcher = [sys.executable, "-m", "byteps.launcher", "--dashboard", "--workers", "2", "--servers", "1"]
    command = [*launcher, sys.executable, str(script)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r"http://[^:]+:(\d+)/\?token=(\S+)", line)
            assert found, line
            yield f"http://127.0.0.1:{found[1]}/?token={found[2]}"
        finally:
            over.touch()
            process.stderr.read()
            assert process.wait(timeout=30) == 0


def opened(url: str, timeout_s: float = 20.0) -> Any:
    """The page, as soon as the scheduler serves it."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return urllib.request.urlopen(url, timeout=10)
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_it_shows_the_job_to_whoever_has_the_token(tmp_path: Path) -> None:
    with job(tmp_path) as url:
        with opened(url) as page:
            text = page.read().decode()
            assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "http://" not in text and "https://" not in text  # nothing from elsewhere
        with opened(url.replace("/?", "/events?")) as events:
            seen = [json.loads(line[6:]) for line in _lines(events, 5)]
        for wrong in ("/?token=x", "/", "/events", "/events?token=", "/?token=" + "a" * 2_000):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                opened(url.partition("/?")[0] + wrong)
    last = seen[-1]
    assert {(each["role"], each["rank"]) for each in last["status"]["members"]} == {
        ("worker", 0),
        ("worker", 1),
        ("server", 0),
    }
    (server,) = (each for each in last["numbers"]["members"] if each["role"] == "server")
    waited = {s[1][0]: s[2] for s in server["samples"] if s[0] == "byteps_waited_for_seconds"}
    assert waited["1"] > 10 * waited.get("0", 0.0)
    assert str(tmp_path) not in json.dumps(seen)  # no path of the user's files


def _lines(events: Any, count: int) -> Iterator[bytes]:
    while count:
        line = events.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            count -= 1
            yield line


def test_a_reader_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    with job(tmp_path) as url:
        opened(url).close()
        host, port = url[len("http://") :].partition("/")[0].split(":")
        stuck = []
        for _ in range(8):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            sock.connect((host, int(port)))
            sock.sendall(f"GET /events?{url.partition('?')[2]} HTTP/1.1\r\n\r\n".encode())
            stuck.append(sock)
        with opened(url.replace("/?", "/events?")) as events:  # others are served meanwhile
            assert len(list(_lines(events, 2))) == 2
        for sock in stuck:
            sock.close()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt install chromium")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    pictures = Path(os.environ.get("PYTEST_PICTURES", tmp_path))
    with job(tmp_path) as url:
        opened(url).close()
        browser = Browser(tmp_path / "profile")
        try:
            browser.look(1000, 1000)
            browser.open(url)
            browser.wait_for("document.querySelectorAll('#members tr').length === 4")
            browser.wait_for("document.querySelectorAll('#strip div').length > 3")
            browser.wait_for("(document.querySelector('#waited div') || {}).textContent === 'rank 1'")
            rank = browser.evaluate("document.querySelector('#waited').textContent")
            assert rank.startswith("rank 1")
            share = int(rank.removeprefix("rank 1").split(" %")[0])
            assert share > 90
            steps = browser.evaluate("document.querySelector('#rate').textContent")
            assert "steps/s" in steps
            rows = browser.evaluate("[...document.querySelectorAll('#matrix tr')].map(r => r.textContent)")
            assert len(rows) == 3 and rows[1].startswith("worker 0")
            browser.screenshot(pictures / "page.png")
            light = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            browser.look(1000, 1000, dark=True)
            assert browser.evaluate("getComputedStyle(document.body).backgroundColor") != light
            browser.screenshot(pictures / "page-dark.png")
            browser.look(390, 844)
            # Nothing but tables is wider than a phone.
            assert browser.evaluate("document.documentElement.scrollWidth") <= 390
            browser.screenshot(pictures / "page-phone.png")
            assert browser.errors == []
        finally:
            browser.close()
