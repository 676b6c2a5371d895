"""A headless Chromium, driven over a pipe by its own protocol: no library and no port is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = shutil.which("chromium")


class Browser:
    """One page. ``call`` sends a command and returns its result."""

    def __init__(self, profile: Path, deadline_s: float = 60.0) -> None:
        assert CHROMIUM is not None
        self._end = time.monotonic() + deadline_s
        self._numbers = itertools.count(1)
        self._left = b""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._out, self._in = ours_out, ours_in

        def place() -> None:  # the browser reads commands from 3 and writes answers to 4
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            [CHROMIUM, *options, "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self.call("Target.getTargets", session="")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", session="", targetId=page, flatten=True)[
            "sessionId"
        ]
        self.call("Page.enable")
        self.errors: list[str] = []
        self.call("Runtime.enable")

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            left_s = self._end - time.monotonic()
            assert left_s > 0 and select.select([self._in], [], [], left_s)[0], "the browser does not answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has ended"
            self._left += chunk
        line, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression, as soon as it is true."""
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < self._end, expression
            time.sleep(0.05)
        return value

    def look(self, width: int, height: int, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self.call("Browser.close", session="")
        self._process.wait(timeout=20)
        os.close(self._out)
        os.close(self._in)
