"""Hosts and ports as people write them: the one parser, and the one way to print them. Pure.

An IPv6 address has colons of its own, so before a port it stands in brackets, and many write them always.
"""

from __future__ import annotations

import re

__all__ = ["HOST", "host", "host_and_port", "joined"]

HOST = "a host name or an address, such as node1, 10.0.0.1, fd00::1 or [fd00::1], without a port"
_NAME = re.compile(r"[^\s\x00-\x1f\x7f\[\]/:@]+")
MAX_PORT = 65_535


def host(text: str) -> str:
    """The host that a text names, without brackets; ValueError for anything else.

    >>> host("[::1]"), host("::1"), host("node1")
    ('::1', '::1', 'node1')
    """
    bracketed = text.startswith("[") and text.endswith("]")
    bare = text[1:-1] if bracketed else text
    if not (_is_ipv6(bare) if bracketed or ":" in bare else _NAME.fullmatch(bare)):
        raise ValueError(text)
    return bare


def host_and_port(text: str) -> tuple[str, int]:
    """``node1:9000`` or ``[::1]:9000``; ValueError for anything else. Here brackets cannot be left out.

    >>> host_and_port("[::1]:9000")
    ('::1', 9000)
    """
    name, _, digits = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", digits) or not 0 < int(digits) <= MAX_PORT:
        raise ValueError(text)
    if ":" in name and not name.startswith("["):
        raise ValueError(text)
    return host(name), int(digits)


def joined(name: str, port: int | str) -> str:
    """Host and port as ``host_and_port`` reads them.

    >>> joined("10.0.0.1", 9000), joined("::1", 9000)
    ('10.0.0.1:9000', '[::1]:9000')
    """
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _is_ipv6(text: str) -> bool:
    import ipaddress  # most processes never see such an address

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
