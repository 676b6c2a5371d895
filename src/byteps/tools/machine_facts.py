"""What this machine permits between its processes, tried and not assumed: for ``bps env``."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["a_child_can_read_us", "memory_between_ranks"]

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_READABLE, _REFUSED = 0, 3


def memory_between_ranks() -> str:
    """How tensors outside the arena come from one rank of a machine to another, in one line."""
    if a_child_can_read_us():
        return "ranks read each other's memory: large tensors are copied once"
    why = "the kernel forbids ranks to read each other's memory"
    if _YAMA.exists() and _YAMA.read_text().strip() != "0":
        why += f" (kernel.yama.ptrace_scope = {_YAMA.read_text().strip()}; 0 would permit it)"
    return f"{why}: tensors outside byteps.empty() go through the arena, and are copied twice"


def a_child_can_read_us() -> bool:
    """A child and not the parent tries: parents may read their children even where siblings may not."""
    from byteps import _core

    address, value = _core.memory_nonce()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        status = _REFUSED
        try:
            status = _READABLE if _core.can_read(parent, address, value) else _REFUSED
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _READABLE
