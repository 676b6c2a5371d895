"""What a process says of where it comes from."""

from __future__ import annotations

import os
import time

import pytest

from byteps import config
from byteps.control import origin


def test_a_process_never_says_that_it_is_older_than_it_is() -> None:
    """Started just after a job was complete, it would look as if it had been on its way to it."""
    for _ in range(10):  # the kernel counts ticks of 10 ms: one try would often be lucky
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            age = origin.own(config.load({}), "server").age_s
            os.write(write, f"{time.clock_gettime(time.CLOCK_BOOTTIME) - age}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        started = float(os.read(read, 100))
        os.close(read)
        os.close(write)
        assert before <= started


def test_it_says_how_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    ages = []
    for later in (0.0, 5.0):
        monkeypatch.setattr(time, "clock_gettime", lambda _, later=later: now + later)
        ages.append(origin.own(config.load({}), "server").age_s)
    assert ages[0] >= 0
    assert ages[1] - ages[0] == pytest.approx(5.0)
