"""What a lab consists of: addresses, and the commands that build its links. Pure.

    namespace of host i                     namespace of the switch
    eth0 (tbf: what the host may send) ──── p<i> (tbf: what the host may receive) ── bridge br0

Both ends of a link are limited on their way out, so a link is full-duplex and each direction has the whole
rate. Nothing of it is in the machine's own network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byteps.errors import ConfigError

__all__ = ["Host", "Traffic", "address_of", "host_links", "queue_bytes", "shaping", "switch_links"]

NETWORK = "10.77"
MAX_HOSTS = 250
MTU = 9000  # as clouds have inside one zone; with 1500, headers would take 5 % instead of 1 %
MIN_MBIT, MAX_MBIT = 1, 10_000
# A switch port holds this much: long enough that TCP keeps a link busy, short enough to stay a link.
QUEUE_S = 0.01
MIN_QUEUE_BYTES = 512 * 1024
# A bucket must hold what the kernel passes down at once, and what a timer tick's worth of rate is.
MIN_BURST_BYTES = 64 * 1024
TICK_S = 0.001


@dataclass(frozen=True)
class Host:
    """One machine of the lab. ``rate_mbit`` is that of its link, if not the lab's; 0 is no limit."""

    name: str
    rate_mbit: float | None = None


@dataclass(frozen=True)
class Traffic:
    """Bytes on the link of a host, with all headers: what it sent and what it received."""

    sent: int
    received: int

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(self.sent - before.sent, self.received - before.received)


def address_of(index: int) -> str:
    """The address of host ``index``.

    >>> address_of(0), address_of(249)
    ('10.77.0.1', '10.77.0.250')
    """
    return f"{NETWORK}.0.{index + 1}"


def check(hosts: Sequence[Host], rate_mbit: float) -> None:
    """ConfigError for what cannot be built."""
    names = [host.name for host in hosts]
    if not 1 <= len(hosts) <= MAX_HOSTS or len(set(names)) != len(names):
        raise ConfigError(f"a lab has 1 to {MAX_HOSTS} hosts with different names, not {names!r}")
    for host in hosts:
        rate = rate_mbit if host.rate_mbit is None else host.rate_mbit
        if rate and not MIN_MBIT <= rate <= MAX_MBIT:
            raise ConfigError(
                f"host {host.name}: a link of {rate:g} Mbit/s; expected {MIN_MBIT} to {MAX_MBIT}, or 0 for "
                "no limit"
            )


def switch_links(pids: Sequence[int], mtu: int, delayed: bool) -> list[str]:
    """Lines for ``ip -batch`` inside the switch: the bridge, and a link into the namespace of each process.

    A delayed link is in two parts, h<i> to the host and q<i> to the bridge, and a relay between them.
    """
    lines = ["link set lo up", "link add br0 type bridge", f"link set br0 mtu {mtu} up"]
    for index, pid in enumerate(pids):
        port, host_end = f"p{index}", f"h{index}" if delayed else f"p{index}"
        lines.append(f"link add {host_end} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}")
        if delayed:
            lines.append(f"link add {port} mtu {mtu} type veth peer name q{index} mtu {mtu}")
            lines += [f"link set h{index} up", f"link set q{index} up"]
        lines.append(f"link set {port} master br0 up")
    return lines


def host_links(index: int) -> list[str]:
    """Lines for ``ip -batch`` inside a host."""
    return ["link set lo up", f"addr add {address_of(index)}/16 dev eth0", "link set eth0 up"]


def queue_bytes(rate_mbit: float) -> int:
    """How much may wait for a link."""
    return max(MIN_QUEUE_BYTES, int(rate_mbit * 1e6 / 8 * QUEUE_S))


def shaping(device: str, rate_mbit: float) -> list[str]:
    """Lines for ``tc -batch``: what leaves through ``device`` is limited. None where there is no limit.

    >>> shaping("eth0", 100)
    ['qdisc add dev eth0 root tbf rate 100000000bit burst 65536 limit 524288']
    """
    if not rate_mbit:
        return []
    burst = max(MIN_BURST_BYTES, int(rate_mbit * 1e6 / 8 * TICK_S))
    rate = f"rate {int(rate_mbit * 1e6)}bit burst {burst} limit {queue_bytes(rate_mbit)}"
    return [f"qdisc add dev {device} root tbf {rate}"]
