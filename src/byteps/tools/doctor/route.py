"""The way from here to the scheduler: name, route, interface. Probes first, then what they mean."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path

from byteps.config import Config
from byteps.control.address import interface_address, is_loopback
from byteps.control.connection import why
from byteps.errors import ConfigError
from byteps.tools.doctor.findings import Finding, fail, ok, warn

__all__ = ["Interface", "Way", "judge", "look"]

SLOW_RESOLVE_S = 1.0
_NETWORKS = Path("/sys/class/net")
_SLOW_MBIT = 1_000


@dataclass(frozen=True)
class Interface:
    """A network interface, as far as the system tells."""

    name: str
    speed_mbit: int | None = None
    mtu: int | None = None


@dataclass(frozen=True)
class Way:
    """What was found on the way to an address."""

    host: str
    port: int
    address: str = ""
    resolve_s: float = 0.0
    resolve_error: str = ""
    own_address: str = ""  # ours, as the kernel would choose it
    interface: Interface | None = None
    interface_error: str = ""  # of DMLC_INTERFACE


def look(config: Config, host: str, port: int) -> Way:
    """Resolve the name and ask for the route; nothing is sent to the scheduler."""
    began = time.perf_counter()
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return Way(host, port, resolve_error=error.strerror or str(error))
    resolve_s = time.perf_counter() - began
    own, interface_error = _own_address(config, family, address)
    return Way(
        host=host,
        port=port,
        address=str(address[0]),
        resolve_s=resolve_s,
        own_address=own,
        interface=_interface_of(own, config.interface),
        interface_error=interface_error,
    )


def _own_address(config: Config, family: int, address: tuple[object, ...]) -> tuple[str, str]:
    try:
        if config.interface:
            return interface_address(config.interface), ""
    except ConfigError as error:
        return "", str(error)
    try:
        with socket.socket(
            family, socket.SOCK_DGRAM
        ) as probe:  # connecting sends nothing: it asks for the route
            probe.connect(address)
            return str(probe.getsockname()[0]), ""
    except OSError as error:
        return "", f"there is no route to {address[0]}: {why(error)}"


def _interface_of(address: str, wanted: str) -> Interface | None:
    for _, name in socket.if_nameindex():
        try:
            if name == wanted or interface_address(name) == address:
                return Interface(name, _number(name, "speed"), _number(name, "mtu"))
        except ConfigError:
            continue
    return None


def _number(interface: str, what: str) -> int | None:
    try:
        value = int((_NETWORKS / interface / what).read_text())
    except (OSError, ValueError):  # a virtual or switched-off interface has no speed
        return None
    return value if value > 0 else None


def judge(way: Way) -> list[Finding]:
    """What it means; stops at the first thing without which the rest makes no sense."""
    if way.resolve_error:
        return [
            fail(
                "name of scheduler",
                f"{way.host} has no address: {way.resolve_error}",
                "check DMLC_PS_ROOT_URI for typing errors; add the name to /etc/hosts or the name server, "
                "or use the address itself",
            )
        ]
    found = [_resolved(way)]
    if way.interface_error:
        remedy = "set DMLC_INTERFACE to one of them, or unset it; `ip addr` and `ip route` show what there is"
        found.append(fail("route", way.interface_error, remedy))
    else:
        found.append(_route(way))
    return found


def _resolved(way: Way) -> Finding:
    check = "name of scheduler"
    if way.resolve_s > SLOW_RESOLVE_S:
        return warn(
            check,
            f"{way.host} is {way.address}, but that took {way.resolve_s:.1f} s",
            "a name server is slow or down: check /etc/resolv.conf, or use the address itself",
        )
    return ok(check, f"{way.host} is {way.address}")


def _route(way: Way) -> Finding:
    check = "route"
    if way.interface is None:
        return ok(check, f"from {way.own_address}")
    card = way.interface
    text = f"from {way.own_address} by {card.name}"
    if card.mtu:
        text += f", MTU {card.mtu}"
    if is_loopback(way.own_address):
        return ok(check, f"{text}: this machine itself")
    if card.speed_mbit is None:
        return ok(check, f"{text}, speed not known")
    text += f", {card.speed_mbit / 1000:g} Gbit/s"
    if card.speed_mbit < _SLOW_MBIT:
        return warn(
            check,
            f"{text}: slow",
            "choose a faster interface with DMLC_INTERFACE; `ip -br addr` lists them",
        )
    return ok(check, text)
