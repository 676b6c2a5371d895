"""Two processes that watch each other, so that whichever of them is killed, the other ends the whole job.

    the user's shell ── front ── supervisor ── scheduler, servers, workers ── whatever they start
                          │           │
                          └── pipe ───┘

The front is the process that the user started. It passes signals on and returns the supervisor's exit code.
When the front is killed (SIGKILL cannot be caught), the pipe closes and the supervisor kills the job.
When the supervisor is killed, the front inherits all orphans and kills them.
When both are killed at once, the kernel still kills the direct children (see ``reap.die_with``).

The supervisor has a session of its own, so Ctrl-C reaches the front alone and is passed on exactly once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import cast

from byteps.control.shortage import explained, is_shortage
from byteps.errors import ConfigError
from byteps.launcher.reap import become_subreaper, shell_code, sweep

__all__ = ["PASSED_ON", "guarded", "heeded", "wrong_use"]

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SWEEP_S = 0.5


def heeded() -> list[signal.Signals]:
    """The signals to act on: those that were ignored when we were started (``nohup``) stay ignored."""
    wanted = (*PASSED_ON, signal.SIGTSTP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]


def guarded(body: Callable[[int], int]) -> int:
    """Run ``body`` in a supervisor process and return its exit code; all its descendants end with it.

    ``body`` gets a descriptor that becomes readable (end of file) when the front is gone. It is called with
    the signals of ``heeded()`` and SIGCHLD blocked, so that none is lost before its handlers stand.
    Only from a process with one thread, and only once: it forks.
    """
    watched = [*heeded(), signal.SIGCHLD]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by our parent, it would hide every exit code
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    become_subreaper()
    _flush()
    front_gone, front_alive = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(front_alive)
        _be_supervisor(body, front_gone)
    os.close(front_gone)
    code = _watch(supervisor, watched)
    sweep(_SWEEP_S)
    return code


def _be_supervisor(body: Callable[[int], int], front_gone: int) -> None:
    code = 1
    try:
        os.setsid()
        code = body(front_gone)
    except ConfigError as error:
        code = wrong_use(error)
    except BaseException as error:
        if is_shortage(error):
            print(f"bpslaunch: error: {explained(cast(OSError, error))}", file=sys.stderr)
        else:
            traceback.print_exc()
    finally:  # never back into the front's code, which is still on this process's stack
        _flush()
        os._exit(code)


def wrong_use(error: ConfigError) -> int:
    """Say what was wrong; the exit code for it."""
    for line in str(error).splitlines():
        print(f"bpslaunch: error: {line}", file=sys.stderr)
    return 2


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None when we were started with it closed
            stream.flush()


def _watch(supervisor: int, watched: list[signal.Signals]) -> int:
    """Pass signals on until the supervisor ends; returns its exit code."""
    while True:
        number = signal.sigwait(watched)
        if number == signal.SIGCHLD:
            code = _ended(supervisor)
            if code is not None:
                return code
        else:
            os.kill(supervisor, number)  # it is our child and not yet collected: the number is still its own
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)  # here until the shell says fg or bg
                os.kill(supervisor, signal.SIGCONT)


def _ended(supervisor: int) -> int | None:
    """Collect ended children; the exit code of the supervisor if it is among them."""
    try:
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return None
            if process == supervisor:
                return shell_code(status)
    except ChildProcessError:
        return None
