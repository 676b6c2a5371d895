"""Where this process listens, which address it tells the others, and who is on the same machine."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Any

from byteps.config.endpoint import joined
from byteps.control import ports as ports_in_use
from byteps.control.listening import listening
from byteps.control.shortage import is_shortage
from byteps.errors import ConfigError

_SIOCGIFADDR = 0x8915


def text_of(address: Any) -> str:
    """A socket address as people write it: ``10.0.0.1:9000``, ``[::1]:9000``.

    >>> text_of(("::1", 9000, 0, 0))
    '[::1]:9000'
    """
    if not isinstance(address, tuple):
        return str(address) or "a local socket"
    return joined(address[0], address[1])


def peer_of(sock: socket.socket) -> tuple[str, int]:
    """Address and port of the other end; one that is already gone has none."""
    try:
        address = sock.getpeername()
    except OSError:
        return "an address that has gone", 0
    return (address[0], address[1]) if isinstance(address, tuple) else ("a local socket", 0)


def own_address(node_host: str, interface: str, towards_scheduler: str) -> str:
    """The address to tell the others: as told, else the interface's, else the one towards the scheduler."""
    return node_host or (interface_address(interface) if interface else towards_scheduler)


def interface_address(interface: str) -> str:
    """The IPv4 address of a network interface, or else its global IPv6 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            pass
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        digits, _, _, scope, _, name = line.split()
        if name == interface and scope == "00":
            return str(ipaddress.IPv6Address(int(digits, 16)))
    known = ", ".join(name for _, name in socket.if_nameindex())
    raise ConfigError(
        f"DMLC_INTERFACE={interface!r} has no address on this machine; expected one of: {known}"
    )


def bind_host(advertised: str, interface: str) -> str:
    """Where to listen: on loopback or one interface only if that is what was asked for, else everywhere.

    The advertised address itself may not exist on this machine (a container behind a translated address).
    """
    if interface:
        return interface_address(interface)
    try:
        _, _, _, _, address = socket.getaddrinfo(advertised, 0, type=socket.SOCK_STREAM)[0]
    except OSError:
        return "0.0.0.0"
    host = str(address[0])
    if is_loopback(host):
        return host
    return "::" if ":" in host else "0.0.0.0"


def listen(host: str, ports: range, variable: str) -> socket.socket:
    """A listening socket on the first free port; port 0 is any. ``variable`` is what to change if none is."""
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigError(f"cannot listen on {host!r}: {error.strerror}; check the address") from None
    _, _, _, _, address = found[0]
    for port in ports:
        try:
            return listening(str(address[0]), port)
        except OSError as error:
            if is_shortage(error):  # no port would do
                raise
            failure = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    tried = joined(host, str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}")
    if failure is not None and failure.errno == errno.EADDRNOTAVAIL:
        raise failure
    reason = failure.strerror if failure else "no port given"
    taken = failure is not None and failure.errno == errno.EADDRINUSE
    user = ports_in_use.told(ports[-1]) if taken else ""
    raise ConfigError(
        f"cannot listen on {tried}: {reason}{user}; "
        f"end the program that uses it{'' if user else ' (ss -ltnp shows which)'}, "
        f"or choose another port with {variable}"
    )


def is_loopback(host: str) -> bool:
    """True for 127.0.0.0/8, ::1 and their mapped forms.

    >>> is_loopback("127.0.1.1"), is_loopback("10.0.0.1")
    (True, False)
    """
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def same_host(sock: socket.socket) -> bool:
    """Whether both ends of a connection are on this machine: the kernel then uses one address for both."""
    peer = sock.getpeername()
    if not isinstance(peer, tuple):
        return True  # a Unix socket
    return is_loopback(peer[0]) or peer[0] == sock.getsockname()[0]


def wants_checksum(setting: str, sock: socket.socket, *, sealed: bool) -> bool:
    """BYTEPS_CHECKSUM for one connection: auto checks payloads between hosts, where no cipher does."""
    return setting == "on" or (setting == "auto" and not sealed and not same_host(sock))
