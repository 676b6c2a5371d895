"""Lists of hosts as people write them, in an option or a file. Pure.

node1:4,node2:4          four ranks on each; with -n N, hosts without a number have N
bob@node1:4:2222         another user, and ssh on another port
[fd00::1]:4              an IPv6 address
node1 slots=4 port=2222  a line of a host file, as mpirun has them; # begins a comment
node1 speed=10G          how fast its link is (BYTEPS_LINK_SPEED there)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from byteps.config import endpoint
from byteps.config.parsers import rates
from byteps.errors import ConfigError

__all__ = ["Host", "merged", "parse_file", "parse_list"]

_HOST = re.compile(r"(?:(?P<user>[^@\s:]+)@)?(?P<name>\[[^\]]*\]|[^\s:@\[\]]+)(?P<numbers>(?::\d+)*)")
_EXPECTED = "expected [user@]host[:ranks[:ssh port]], an IPv6 address in brackets: [fd00::1]:4"


@dataclass(frozen=True)
class Host:
    """One host of a job, and how to reach it."""

    name: str
    slots: int | None = None  # ranks, or servers; None: not said
    user: str = ""
    port: int = 0  # of its sshd; 0: as ssh knows it
    speed: str = ""  # of its link, as BYTEPS_LINK_SPEED has it; empty: not said

    @property
    def key(self) -> str:
        """What makes it another connection, as people write it."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        user, port = f"{self.user}@" if self.user else "", f":{self.port}" if self.port else ""
        return f"{user}{name}{port}"


def parse_list(text: str, option: str, *, number_is_port: bool = False) -> list[Host]:
    """Hosts between commas.

    >>> parse_list("a:4,bob@b:2:2222", "-H")[1]
    Host(name='b', slots=2, user='bob', port=2222)
    """
    found = [_parse(word, option, number_is_port) for word in text.split(",") if word.strip()]
    if not found:
        raise ConfigError(f"{option} {text!r}: no host; expected for example node1:4,node2:4")
    return found


def parse_file(text: str, option: str, *, number_is_port: bool = False) -> list[Host]:
    """Hosts of a file, one in every line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{option}, line {number}"
        host = _parse(words[0], where, number_is_port)
        for word in words[1:]:
            name, _, value = word.partition("=")
            if name not in ("slots", "port", "user", "max_slots", "max-slots", "speed") or not value:
                raise ConfigError(
                    f"{where}: {word!r} is not known; expected slots=N, port=N, user=NAME or speed=10G"
                )
            if name == "speed":
                host = replace(host, speed=_speed(value, where))
            elif name == "user":
                host = replace(host, user=value)
            elif name == "port":
                host = replace(host, port=_number(value, where))
            elif name == "slots":
                host = replace(host, slots=_number(value, where))
        found.append(host)
    if not found:
        raise ConfigError(
            f"{option}: the file has no host; expected a line for each, for example node1 slots=4"
        )
    return found


def merged(hosts: Iterable[Host], default: int) -> list[tuple[Host, int]]:
    """Every host once, with its number; one that is named twice has the sum."""
    found: dict[str, tuple[Host, int]] = {}
    for host in hosts:
        slots = default if host.slots is None else host.slots
        if slots < 1:
            raise ConfigError(f"host {host.name}: {slots} is no number of processes; expected at least 1")
        known = found.get(host.key)
        speed = host.speed or (known[0].speed if known else "")
        found[host.key] = (replace(host, speed=speed), slots + (known[1] if known else 0))
    return list(found.values())


def _parse(word: str, option: str, number_is_port: bool) -> Host:
    match = _HOST.fullmatch(word.strip())
    numbers = [int(digits) for digits in match["numbers"].split(":") if digits] if match else []
    # A name that begins with a dash would be an option of ssh.
    if (
        match is None
        or len(numbers) > 2
        or match["name"].startswith("-")
        or (match["user"] or "").startswith("-")
    ):
        raise ConfigError(f"{option}: {word!r} is not a host; {_EXPECTED}")
    try:
        name, user = endpoint.host(match["name"]), match["user"] or ""
    except ValueError:
        raise ConfigError(f"{option}: {word!r} is not a host; {_EXPECTED}") from None
    if number_is_port and len(numbers) == 1:
        return Host(name, None, user, numbers[0])
    return Host(name, numbers[0] if numbers else None, user, numbers[1] if len(numbers) == 2 else 0)


def _speed(text: str, where: str) -> str:
    try:
        rates.parse(text)
    except ValueError:
        raise ConfigError(f"{where}: speed={text}; expected {rates.valid}") from None
    return text


def _number(text: str, where: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{where}: {text!r} is not a number")
    return int(text)
