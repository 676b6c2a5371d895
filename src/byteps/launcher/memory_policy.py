"""Asks the kernel to take a process's memory from one NUMA node: set_mempolicy(2), which libc lacks."""

from __future__ import annotations

import ctypes
import platform
import sys

__all__ = ["prefer"]

_MPOL_PREFERRED = 1
_NUMBERS = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 270}
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)

# Bound at import: between fork and exec there should be no more than a system call.
_number = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
_syscall = ctypes.CDLL(None, use_errno=True).syscall if _number is not None else None


def prefer(node: int) -> bool:
    """Let this process, and what it becomes by exec, allocate on ``node`` while there is room; True if done.

    Preferred and not bound: when the node is full the kernel takes another one, rather than kill the process.
    A kernel without NUMA, or a container that forbids the call, leaves things as they are.
    """
    if _syscall is None:
        return False
    words = node // _WORD_BITS + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // _WORD_BITS] = 1 << (node % _WORD_BITS)
    # The kernel reads one bit less than it is told.
    done: int = _syscall(_number, _MPOL_PREFERRED, mask, ctypes.c_ulong(words * _WORD_BITS + 1))
    return done == 0
