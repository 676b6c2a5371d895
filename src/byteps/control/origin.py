"""What this process can say of where it comes from: by this the scheduler tells two jobs apart."""

from __future__ import annotations

import os
import pwd
import secrets
import sys
import time
from pathlib import Path

from byteps.config import Config
from byteps.control.messages import Origin

__all__ = ["incarnation", "own", "program_of"]

_incarnation = secrets.randbits(62)


def _be_another() -> None:
    """In a forked child, which is another process with a copy of our memory."""
    global _incarnation
    _incarnation = secrets.randbits(62)


os.register_at_fork(after_in_child=_be_another)


def incarnation() -> int:
    """A random number that only this process has."""
    return _incarnation


def own(config: Config, role: str) -> Origin:
    """Of this process, as it is now."""
    return Origin(
        incarnation=_incarnation,
        launch=config.launch_id,
        program=program_of(sys.argv) if role == "worker" else "",
        folder=_folder(),
        user=_user(),
        age_s=_age_s(),
    )


def program_of(argv: list[str]) -> str:
    """The script's file name, or the package's for ``python -m package``; nothing at a prompt.

    Without its folders, which differ from machine to machine in one job.

    >>> program_of(["/home/me/train.py", "--lr", "1"]), program_of(["/x/app/__main__.py"]), program_of(["-c"])
    ('train.py', 'app', '')
    """
    path = Path(argv[0] if argv else "")
    name = path.parent.name if path.name == "__main__.py" else path.name
    return "" if name == "-c" else name[:200]


def _folder() -> str:
    try:
        return str(Path.cwd())[:1_000]
    except OSError:  # it was removed
        return ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container often has no name for it
        return f"uid {os.getuid()}"


def _age_s() -> float:
    """How long ago the kernel started this process, at least; 0 where it does not tell.

    The kernel tells it in whole ticks, rounded down: by up to a tick this process would look older than a job
    that was complete just before it was started, and the scheduler would take the two for a mixture.
    """
    try:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = (int(words[19]) + 1) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
    except (OSError, ValueError, IndexError):
        return 0.0
