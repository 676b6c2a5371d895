"""``bps lab``: run a job on several hosts that this machine plays, with network links of a chosen speed.

examples:
  bps lab --workers 2 --servers 2 --rate 1gbit python train.py
  bps lab --workers 4 --beside 4 --servers 2 --rate 200mbit python train.py     mixed mode
  bps lab --workers 2 --servers 1 --rate 100mbit --delay 5ms python train.py    far apart
  bps lab --servers 2 --rate 1gbit --link s0=250mbit --told python train.py     unequal links
  bps lab --workers 2 --servers 1 python -c 'import socket; print(socket.gethostname())'

Every worker machine (--nproc ranks each), every server and the scheduler gets a network of its own. A link
carries the rate in both directions at once; that of the scheduler has no limit. Hosts are w0, w1, ... with
workers and s0, s1, ... with servers only. At the end a table shows
what went over every link. It needs root, for the network namespaces, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

from byteps.errors import BytePSError
from byteps.launcher.reap import die_with
from byteps.tools.arguments import positive
from byteps.tools.lab.layout import Layout
from byteps.tools.lab.network import Lab
from byteps.tools.lab.plan import Host, Traffic, Wire

__all__ = ["add_parser", "link", "milliseconds", "rate", "run"]

_RATES = {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "lab",
        help="run a job on hosts that this machine plays, with links of a chosen speed",
        description=__doc__.replace("``", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--workers", type=positive, default=2, metavar="W", help="worker machines (%(default)s)")
    add("--nproc", type=positive, default=1, metavar="N", help="ranks on each (%(default)s)")
    add("--servers", type=count, default=1, metavar="M", help="machines with a server only (%(default)s)")
    add("--beside", type=count, default=0, metavar="B", help="worker machines with a server (%(default)s)")
    add(
        "--rate", type=rate, default="1gbit", help="of every link, such as 200mbit; 0: no limit (%(default)s)"
    )
    add("--link", type=link, action="append", default=[], metavar="HOST=RATE", help="of one host's link")
    add("--told", action="store_true", help="every host knows its rate (BYTEPS_LINK_SPEED)")
    add("--delay", type=milliseconds, default="0ms", help="more on every link, such as 5ms (%(default)s)")
    add("--mtu", type=positive, default=Wire.mtu, help="of the links; 9000 in many clouds (%(default)s)")
    add("--queue", type=milliseconds, metavar="MS", help="how much a full link lets wait, such as 40ms")
    add("--hostname", default="", metavar="NAME", help="of all hosts, as clones have it")
    add("--ipv6", action="store_true", help="hosts have addresses of IPv6 only")
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what each rank runs")
    parser.set_defaults(run=run)


def count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def rate(text: str) -> float:
    """Mbit/s.

    >>> rate("200mbit"), rate("1gbit"), rate("0")
    (200.0, 1000.0, 0.0)
    """
    for unit, factor in _RATES.items():
        if text.lower().endswith(unit):
            return float(text[: -len(unit)]) * factor
    if float(text) == 0:
        return 0.0
    raise argparse.ArgumentTypeError(f"{text!r}: expected a number with kbit, mbit or gbit, or 0")


def link(text: str) -> tuple[str, float]:
    """
    >>> link("s0=50mbit")
    ('s0', 50.0)
    """
    host, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a host and its rate, such as s0=50mbit")
    return host, rate(value)


def milliseconds(text: str) -> float:
    """A time in milliseconds.

    >>> milliseconds("5ms"), milliseconds("0")
    (5.0, 0.0)
    """
    return float(text.removesuffix("ms"))


def run(args: argparse.Namespace) -> int:
    """Build, run, show the traffic, take down."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    layout = Layout(args.workers, args.beside, args.servers)
    links = dict(args.link)
    problem = _problem(layout, command, links)
    if problem:
        print(f"bps lab: error: {problem}", file=sys.stderr)
        return 2
    wire = Wire(args.mtu, args.queue, args.delay, args.hostname, args.ipv6)
    try:
        hosts = [replace(host, rate_mbit=links.get(host.name, host.rate_mbit)) for host in layout.hosts]
        with Lab(hosts, args.rate, wire) as lab:
            begun = time.monotonic()
            code = _job(lab, layout, args.nproc, command, _speeds(hosts, args.rate) if args.told else {})
            print(_table(lab.traffic(), time.monotonic() - begun), file=sys.stderr)
            return code
    except BytePSError as error:
        print(f"bps lab: error: {error}", file=sys.stderr)
        return 2


def _speeds(hosts: list[Host], rate_mbit: float) -> dict[str, str]:
    """What BYTEPS_LINK_SPEED is on every host whose link has a limit."""
    rates = {host.name: rate_mbit if host.rate_mbit is None else host.rate_mbit for host in hosts}
    return {name: f"{mbit:g}M" for name, mbit in rates.items() if mbit}


def _problem(layout: Layout, command: list[str], links: Mapping[str, float]) -> str:
    unknown = sorted(links.keys() - {host.name for host in layout.hosts})
    if unknown:
        known = ", ".join(host.name for host in layout.hosts)
        return f"--link {unknown[0]}: there is no such host; there are {known}"
    if not command:
        return "nothing to run; try: bps lab --workers 2 --servers 1 python train.py"
    if layout.beside > layout.workers:
        return f"--beside {layout.beside}: there are {layout.workers} worker machines to have a server"
    if not layout.beside + layout.extra:
        return "--servers 0 --beside 0: machines need servers between them; use --servers 1"
    return ""


def _job(lab: Lab, layout: Layout, nproc: int, command: list[str], speeds: Mapping[str, str]) -> int:
    """The launcher in a process of its own: it takes over all children it has, and ours hold the networks."""
    request = {
        "layout": [layout.workers, layout.beside, layout.extra],
        "nproc": nproc,
        "command": command,
        "speeds": speeds,
        "hosts": {host.name: [lab.address(host.name), lab.inside(host.name)] for host in lab.hosts},
    }
    reader, writer = os.pipe()
    parent = os.getpid()
    process = subprocess.Popen(
        [sys.executable, "-m", "byteps.tools.lab.job", str(reader)],
        pass_fds=[reader],
        preexec_fn=lambda: die_with(parent),
    )
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        json.dump(request, pipe)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    # Ctrl-C reaches the launcher by itself; we stay to show the traffic and take the networks down.
    handlers: dict[int, Any] = {
        signal.SIGINT: signal.SIG_IGN,
        signal.SIGTERM: pass_on,
        signal.SIGHUP: pass_on,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        code = process.wait()
        return code if code >= 0 else 128 - code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _table(traffic: Mapping[str, Traffic], seconds: float) -> str:
    lines = [f"bps lab: on the links in {seconds:.1f} s:"]
    for host, moved in traffic.items():
        lines.append(
            f"  {host:10s} sent {moved.sent / 1e6:10.2f} MB   received {moved.received / 1e6:10.2f} MB"
        )
    return "\n".join(lines)
