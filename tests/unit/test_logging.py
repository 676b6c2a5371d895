"""The log: form of a line, levels, and that the program's own logging is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The logger is global, so every case runs in its own process.
PRELUDE = """
import logging, sys
from byteps.config import load
from byteps.observe import logging as log
"""


def run(program: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout, done.stderr


def test_a_line_is_time_level_role_rank_message() -> None:
    _, err = run("log.setup(load({}), 'worker', 3).warning('hello %s', 'you')")
    date, time, rest = err.rstrip("\n").split(" ", 2)
    assert (len(date), len(time)) == (len("2024-01-31"), len("12:00:00.000"))
    assert rest == "WARNING worker 3: hello you"


def test_the_time_can_be_hidden_and_the_rank_can_come_later() -> None:
    _, err = run(
        "log.setup(load({'BYTEPS_LOG_HIDE_TIME': '1', 'DMLC_ROLE': 'server'})).error('a')\n"
        "log.set_identity('server', 0)\n"
        "log.logger.error('b')"
    )
    assert err == "ERROR server: a\nERROR server 0: b\n"


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("TRACE", "TRACE DEBUG INFO WARNING ERROR FATAL"),
        ("DEBUG", "DEBUG INFO WARNING ERROR FATAL"),
        ("INFO", "INFO WARNING ERROR FATAL"),
        ("WARNING", "WARNING ERROR FATAL"),
        ("ERROR", "ERROR FATAL"),
        ("FATAL", "FATAL"),
    ],
)
def test_levels_with_the_numbers_of_the_native_core(level: str, shown: str) -> None:
    _, err = run(
        f"log.setup(load({{'BYTEPS_LOG_HIDE_TIME': '1', 'BYTEPS_LOG_LEVEL': '{level}'}}))\n"
        "for number in (5, 10, 20, 30, 40, 50): log.log_native(number, '100% text')"
    )
    assert err == "".join(f"{name}: 100% text\n" for name in shown.split())


def test_a_living_line_is_for_terminals_and_goes_when_another_comes() -> None:
    program = "log.setup(load({'BYTEPS_LOG_HIDE_TIME': '1'})); shown = log.living('waiting (1 s)'); "
    _, err = run(program + "log.logger.warning('x'); print(shown, file=sys.stderr)")
    assert err == "WARNING: x\nFalse\n"
    terminal = "sys.stderr.isatty = lambda: True\n" + program
    _, err = run(terminal + "log.living('waiting (2 s)'); log.logger.warning('x'); log.living('')")
    moves = "\rwaiting (1 s)\x1b[K\rwaiting (2 s)\x1b[K\r\x1b[KWARNING: x\n"
    assert err == moves.replace("\r", "\n")  # subprocess reads it so


def test_warnings_of_the_configuration_are_said_once() -> None:
    _, err = run(
        "config = load({'BYTEPS_LOG_HIDE_TIME': '1', 'BYTEPS_TYPO': '1'})\n"
        "log.setup(config, 'worker'); log.setup(config, 'worker', 0)"
    )
    assert err.count("BYTEPS_TYPO") == 1 and len(err.splitlines()) == 1


def test_the_programs_own_logging_is_left_alone() -> None:
    out, err = run(
        "logging.basicConfig(stream=sys.stdout, format='%(levelname)s my %(message)s', level=logging.INFO)\n"
        "before = (logging.root.level, list(logging.root.handlers), logging.getLevelName(50))\n"
        "log.setup(load({'BYTEPS_LOG_HIDE_TIME': '1'})).warning('ours')\n"
        "logging.info('theirs')\n"
        "assert before == (logging.root.level, list(logging.root.handlers), logging.getLevelName(50))"
    )
    assert (out, err) == ("INFO my theirs\n", "WARNING: ours\n")


def test_a_handler_that_is_there_already_is_kept_and_none_is_added() -> None:
    out, err = run(
        "mine = logging.StreamHandler(sys.stdout)\n"
        "logger = logging.getLogger('byteps'); logger.addHandler(mine); logger.setLevel(logging.ERROR)\n"
        "log.setup(load({})).warning('a'); logger.error('b')\n"
        "assert logger.handlers == [mine] and logger.propagate"
    )
    assert (out, err) == ("b\n", "")


def test_an_exception_is_shown_with_its_traceback() -> None:
    _, err = run(
        "logger = log.setup(load({'BYTEPS_LOG_HIDE_TIME': '1'}))\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logger.exception('sum failed')"
    )
    assert err.startswith("ERROR: sum failed\nTraceback") and err.endswith(
        "ZeroDivisionError: division by zero\n"
    )
