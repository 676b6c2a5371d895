"""What a lab consists of: addresses, and the commands that build its links. Pure.

    namespace of host i                     namespace of the switch
    eth0 (tbf: what the host may send) ──── p<i> (tbf: what the host may receive) ── bridge br0

Both ends of a link are limited on their way out, so a link is full-duplex and each direction has the whole
rate. Nothing of it is in the machine's own network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byteps.errors import ConfigError

__all__ = ["USUAL", "Host", "Losses", "Traffic", "Wire", "address_of", "dropped_frames", "host_links"]
__all__ += ["port_state", "queue_bytes", "resent_segments", "shaping", "switch_links"]

NETWORK = "10.77"
IPV6_MORE_BYTES = 20  # of its header than of that of IPv4
NETWORK_6 = "fd77::"
MAX_HOSTS = 250
MIN_MBIT, MAX_MBIT = 1, 10_000
IP_TCP_BYTES, ETHERNET_BYTES = 52, 14  # of headers: IPv4, TCP with time stamps; what a token bucket counts
# What a switch port holds if nothing is said: enough that TCP keeps a link busy, not more than a link has.
QUEUE_S = 0.01
MIN_QUEUE_BYTES = 512 * 1024
HOST_QUEUE_MS = 200.0  # TCP itself keeps it short
# A bucket must hold what the kernel passes down at once, and what a timer tick's worth of rate is.
MIN_BURST_BYTES = 64 * 1024
TICK_S = 0.001


@dataclass(frozen=True)
class Host:
    """One machine of the lab. ``rate_mbit`` is that of its link, if not the lab's; 0 is no limit."""

    name: str
    rate_mbit: float | None = None


@dataclass(frozen=True)
class Wire:
    """What all links of a lab have in common, beside their rate.

    ``mtu`` is that of ordinary Ethernet; clouds often have 9000 inside one zone. ``queue_ms`` is how long a
    frame waits at the most before a full link, None what a usual port has. With ``delay_ms`` every frame
    takes that much longer from a host to the switch and from there to a host, so a round trip between two
    hosts takes four times as much. ``one_name`` is the host name of all machines, as clones may have it.
    """

    mtu: int = 1500
    queue_ms: float | None = None
    delay_ms: float = 0
    one_name: str = ""
    ipv6: bool = False  # hosts have addresses of IPv6 only

    @property
    def efficiency(self) -> float:
        """The part of what a link carries that TCP hands to its users, at the most.

        >>> round(Wire(mtu=1500).efficiency, 3), round(Wire(mtu=9000).efficiency, 3)
        (0.956, 0.993)
        """
        headers = IP_TCP_BYTES + (IPV6_MORE_BYTES if self.ipv6 else 0)
        return (self.mtu - headers) / (self.mtu + ETHERNET_BYTES)


USUAL = Wire()


@dataclass(frozen=True)
class Traffic:
    """Bytes on the link of a host, with all headers: what it sent and what it received."""

    sent: int
    received: int

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(self.sent - before.sent, self.received - before.received)


@dataclass(frozen=True)
class Losses:
    """Of all links: segments that TCP sent again, and frames that found the queue of a switch port full."""

    resent: int
    dropped: int

    def __sub__(self, before: Losses) -> Losses:
        return Losses(self.resent - before.resent, self.dropped - before.dropped)


def address_of(index: int, ipv6: bool = False) -> str:
    """The address of host ``index``.

    >>> address_of(0), address_of(249), address_of(249, ipv6=True)
    ('10.77.0.1', '10.77.0.250', 'fd77::fa')
    """
    return f"{NETWORK_6}{index + 1:x}" if ipv6 else f"{NETWORK}.0.{index + 1}"


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


def host_links(index: int, ipv6: bool = False) -> list[str]:
    """Lines for ``ip -batch`` inside a host."""
    address = f"{address_of(index, ipv6)}/{'64' if ipv6 else '16'}"
    at_once = " nodad" if ipv6 else ""  # nobody else can have it
    return ["link set lo up", f"addr add {address} dev eth0{at_once}", "link set eth0 up"]


def port_state(index: int, state: int) -> str:
    """A line for ``bridge -batch``: 0 blocks the port of a host, 3 lets it forward.

    >>> port_state(2, 0)
    'link set dev p2 state 0'
    """
    return f"link set dev p{index} state {state}"


def queue_bytes(rate_mbit: float, queue_ms: float | None = None) -> int:
    """How much may wait for a link.

    >>> queue_bytes(200, 40)
    1000000
    """
    if queue_ms is None:
        return max(MIN_QUEUE_BYTES, int(rate_mbit * 1e6 / 8 * QUEUE_S))
    return max(MIN_BURST_BYTES, int(rate_mbit * 1e3 / 8 * queue_ms))


def shaping(device: str, rate_mbit: float, queue_ms: float | None = None) -> list[str]:
    """Lines for ``tc -batch``: what leaves through ``device`` is limited. None where there is no limit.

    What a host has to send waits in the host, which loses none: ``queue_ms`` is for ports of the switch.

    >>> shaping("eth0", 100)
    ['qdisc add dev eth0 root tbf rate 100000000bit burst 65536 limit 524288']
    """
    if not rate_mbit:
        return []
    burst = max(MIN_BURST_BYTES, int(rate_mbit * 1e6 / 8 * TICK_S))
    rate = f"rate {int(rate_mbit * 1e6)}bit burst {burst} limit {queue_bytes(rate_mbit, queue_ms)}"
    return [f"qdisc add dev {device} root tbf {rate}"]


def resent_segments(snmp: str) -> int:
    """From the text of /proc/net/snmp.

    >>> resent_segments("Tcp: OutSegs RetransSegs InErrs\\nTcp: 9 4 0\\n")
    4
    """
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def dropped_frames(qdiscs: Sequence[Mapping[str, Any]]) -> int:
    """From what ``tc -json -stats qdisc`` lists: those that limit links.

    >>> dropped_frames([{"kind": "noqueue", "drops": 1}, {"kind": "tbf", "drops": 3}])
    3
    """
    return sum(each["drops"] for each in qdiscs if each["kind"] == "tbf")
