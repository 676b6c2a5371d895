"""Finds and ends descendants, also those that left their parent, their process group and their session.

A *subreaper* inherits the orphans among its descendants, as init would: so the tree below it stays complete,
and walking parents in /proc finds everything the job ever started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from byteps.control import procfs

__all__ = ["become_subreaper", "descendants", "die_with", "groups", "reap_orphans", "shell_code", "stopped"]
__all__ += ["sweep"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Bound at import: between fork and exec there should be no more than a system call.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def become_subreaper() -> None:
    """Inherit the orphans among all descendants from now on."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Called in a new process: let the kernel kill it when the thread that started it is gone."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(128 + signal.SIGKILL)


def shell_code(status: int) -> int:
    """An exit code as a shell counts it: 128+n for a process that was ended by signal n."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _processes() -> Iterator[tuple[int, int, str]]:
    """Every process of this machine that we can see, with its parent and its state."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = procfs.state_and_parent(int(folder.name))
        except (OSError, IndexError, ValueError):
            continue  # it has just ended
        yield int(folder.name), parent, state


def descendants(root: int) -> list[int]:
    """Children of ``root``, their children, and so on; a parent comes before its children."""
    children: dict[int, list[int]] = {}
    for process, parent, _ in _processes():
        children.setdefault(parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:  # grows while it is walked
        found += children.get(process, ())
    return found


def stopped(roots: Collection[int]) -> dict[int, int]:
    """Of these processes those that are stopped, or have a descendant that is: root -> who is stopped."""
    found = {process: (parent, state) for process, parent, state in _processes()}
    halted: dict[int, int] = {}
    for process, (_, state) in found.items():
        above = process
        while state == procfs.STOPPED and above in found:
            if above in roots:
                halted.setdefault(above, process)
            above = found[above][0]
    return halted


def groups(processes: Collection[int]) -> list[int]:
    """The process groups of these processes; those that have ended have none."""
    found = set()
    for process in processes:
        try:
            found.add(os.getpgid(process))
        except ProcessLookupError:
            continue
    return sorted(found)


def reap_orphans(known: Collection[int]) -> None:
    """Collect ended children that we did not start ourselves, so that a long job does not pile up zombies."""
    own = os.getpid()
    for process in [process for process, parent, _ in _processes() if parent == own and process not in known]:
        try:
            os.waitpid(process, os.WNOHANG)
        except ChildProcessError:
            continue


def _reap_all() -> bool:
    """Collect every ended child; True when children are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def sweep(grace_s: float, kill_s: float = 2.0) -> list[int]:
    """End every descendant; those that the kernel would not end within ``kill_s`` are returned.

    They get ``grace_s`` to end by themselves: helpers of a process that has ended remove its shared memory.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    killing = False
    deadline = time.monotonic() + grace_s
    while _reap_all():
        if time.monotonic() >= deadline:
            if killing:
                return descendants(os.getpid())
            killing, deadline = True, time.monotonic() + kill_s
        if killing:  # again after every end: one that is about to die can still have forked
            for process in descendants(os.getpid()):
                _kill(process)
        signal.sigtimedwait([signal.SIGCHLD], max(0.0, deadline - time.monotonic()))
    return []


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # it has just ended, or changed its user
        pass
