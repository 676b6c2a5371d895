"""Whether two processes of one machine can read each other's memory: tried, never reasoned about.

Containers, users, Yama and seccomp all have a say in it. Each end tells the other where a random word of its
own lies and looks for the other's; only when both have found theirs do payloads go by address.
"""

from __future__ import annotations

import os

from byteps import _core
from byteps.control.hello import NO_MEMORY, Memory

__all__ = ["own_memory", "readable", "return_probe"]


def own_memory() -> Memory:
    """Where this process's word lies."""
    address, value = _core.memory_nonce()
    return Memory(os.getpid(), address, value)


def readable(theirs: Memory) -> bool:
    """Whether this process finds their word."""
    return theirs.pid > 0 and _core.can_read(theirs.pid, theirs.address, theirs.value)


def return_probe(theirs: Memory) -> Memory:
    """For the acceptor: our word for one whose word we have found, nothing for the others."""
    return own_memory() if readable(theirs) else NO_MEMORY
