"""Which machine is which. Host names do not tell: clones and containers often have one and the same."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from byteps.control.messages import Machine

__all__ = ["kernel", "key", "own"]


class Located(Protocol):
    """A member, or what a process says about itself."""

    @property
    def host(self) -> str: ...
    @property
    def machine(self) -> Machine: ...


def own(address: str, speed: tuple[int, int] = (0, 0)) -> Machine:
    """The machine of this process; ``address`` is the one that it has towards the scheduler, ``speed`` that
    of its link, up and down.

    A machine that was cloned while it ran has the boot id of the other, and another address.
    """
    return Machine(kernel(), _network(), address, *speed)


def key(member: Located) -> str:
    """The same for two members of one machine: nothing between them crosses a link.

    Where kernels tell nothing, it is the host name.

    >>> from types import SimpleNamespace as Member
    >>> key(Member(host="a", machine=Machine())), key(Member(host="a", machine=Machine("k", "n", "10.0.0.1")))
    ('a', 'k n 10.0.0.1')
    """
    machine = member.machine
    return f"{machine.kernel} {machine.network} {machine.address}" if machine.kernel else member.host


def kernel() -> str:
    """A random number of this boot; nothing where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _network() -> str:
    try:
        return str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return ""
