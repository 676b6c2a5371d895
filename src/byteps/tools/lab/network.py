"""Builds a lab and takes it down: namespaces that exist as long as the processes that hold them.

A namespace is held by a process that waits for the end of a pipe, and so ends with the lab's own process,
however that ends; without it the kernel removes the namespace and every link in it. A lab needs no names in
the file system, touches nothing of the machine's network, and cannot be left behind.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from byteps.errors import BytePSError, ConfigError
from byteps.tools.lab import plan
from byteps.tools.lab.plan import Host, Losses, Traffic, Wire

__all__ = ["Lab", "why_not"]

COMMAND_TIMEOUT_S = 30.0
_PROGRAMS = {
    "iproute2": ("ip", "tc", "bridge"),
    "util-linux": ("unshare", "nsenter", "setpriv"),
    "hostname": ("hostname",),
}
_READY = b"ready\n"


def why_not() -> str:
    """Why no lab can be built here, and what to do about it; empty when it can."""
    missing = [package for package, programs in _PROGRAMS.items() if not all(map(shutil.which, programs))]
    if missing:
        return f"a lab needs the programs of {' and '.join(missing)}: apt install {' '.join(missing)}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return (
            f"a lab makes network namespaces, which this process may not ({tried.stderr.strip()}); run it as "
            "root, in a container with --cap-add SYS_ADMIN --cap-add NET_ADMIN"
        )
    return ""


class Lab:
    """Hosts with links of ``rate_mbit`` each way (0: no limit) into one switch. A context manager."""

    def __init__(self, hosts: Sequence[Host | str], rate_mbit: float = 1000, wire: Wire = plan.USUAL) -> None:
        self.hosts = [Host(host) if isinstance(host, str) else host for host in hosts]
        plan.check(self.hosts, rate_mbit)
        self.rate_mbit = rate_mbit
        self.wire = wire
        self._index = {host.name: index for index, host in enumerate(self.hosts)}
        self._holders: list[subprocess.Popen[bytes]] = []  # of the switch, then of the hosts
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Lab:
        if reason := why_not():
            raise ConfigError(reason)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the lab; its network goes with them."""
        for process in (*self._processes, *self._holders):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in (*self._processes, *self._holders):
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        self._processes, self._holders = [], []

    def address(self, host: str) -> str:
        return plan.address_of(self._index[host], self.wire.ipv6)

    def inside(self, host: str) -> list[str]:
        """What to write before a command so that it runs on ``host``: it keeps its pid and dies with us."""
        target = f"--target={self._holders[1 + self._index[host]].pid}"
        return ["setpriv", "--pdeathsig=KILL", "nsenter", "--net", "--uts", target, "--"]

    def start(
        self, host: str, argv: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """A process on ``host``, ended with the lab; ``options`` are those of Popen."""
        process = subprocess.Popen([*self.inside(host), *argv], env=env, **options)
        self._processes.append(process)
        return process

    def traffic(self) -> dict[str, Traffic]:
        """Bytes on every link since the lab was built."""
        listed = json.loads(self._on_switch(["ip", "-json", "-stats", "link", "show", "type", "veth"]))
        found = {}
        for link in listed:
            if link["ifname"].startswith("p"):  # seen from the switch: what it received, the host has sent
                stats, host = link["stats64"], self.hosts[int(link["ifname"][1:])]
                found[host.name] = Traffic(stats["rx"]["bytes"], stats["tx"]["bytes"])
        return found

    def losses(self) -> Losses:
        """What was lost or thought lost since the lab was built."""
        snmp = [Path(f"/proc/{holder.pid}/net/snmp").read_text() for holder in self._holders[1:]]
        qdiscs = json.loads(self._on_switch(["tc", "-json", "-stats", "qdisc", "show"]))
        return Losses(sum(map(plan.resent_segments, snmp)), plan.dropped_frames(qdiscs))

    # Outages: nothing is closed and nobody is told; frames do not arrive any more

    def unplug(self, *hosts: str) -> None:
        """The switch passes nothing on from or to these hosts."""
        self._on_switch(["bridge", "-batch", "-"], [plan.port_state(self._index[host], 0) for host in hosts])

    def plug(self, *hosts: str) -> None:
        """The end of ``unplug``."""
        self._on_switch(["bridge", "-batch", "-"], [plan.port_state(self._index[host], 3) for host in hosts])

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing from ``sender`` arrives at ``receiver`` any more; the other way is open. Needs iptables."""
        self._filter("-I", sender, receiver)

    def heal(self, sender: str, receiver: str) -> None:
        """The end of ``cut``."""
        self._filter("-D", sender, receiver)

    def _filter(self, change: str, sender: str, receiver: str) -> None:
        rule = ["-w", change, "INPUT", "-s", self.address(sender), "-j", "DROP"]
        _run([*self.inside(receiver), "iptables", *rule])

    # Building

    def _build(self) -> None:
        for name in ("switch", *(self.wire.one_name or host.name for host in self.hosts)):
            self._holders.append(_hold(name))
        pids = [holder.pid for holder in self._holders[1:]]
        self._on_switch(["ip", "-batch", "-"], plan.switch_links(pids, self.wire.mtu, self.wire.delay_ms > 0))
        if self.wire.delay_ms > 0:
            ends = [f"{end}{index}" for index in range(len(pids)) for end in "hq"]
            relay = [sys.executable, "-m", "byteps.tools.lab.relay", str(self.wire.delay_ms), *ends]
            self._processes.append(_started([*self._switch(), *relay], "the relay"))
        rates = [self.rate_mbit if host.rate_mbit is None else host.rate_mbit for host in self.hosts]
        queue_ms = self.wire.queue_ms
        ports = [
            line for index, rate in enumerate(rates) for line in plan.shaping(f"p{index}", rate, queue_ms)
        ]
        self._on_switch(["tc", "-batch", "-"], ports)
        for index, (host, rate) in enumerate(zip(self.hosts, rates, strict=True)):
            inside = self.inside(host.name)
            _run([*inside, "ip", "-batch", "-"], plan.host_links(index, self.wire.ipv6))
            _run([*inside, "tc", "-batch", "-"], plan.shaping("eth0", rate, plan.HOST_QUEUE_MS))

    def _switch(self) -> list[str]:
        return ["nsenter", "--net", f"--target={self._holders[0].pid}", "--"]

    def _on_switch(self, argv: Sequence[str], lines: Sequence[str] = ()) -> str:
        return _run([*self._switch(), *argv], lines)


def _hold(name: str) -> subprocess.Popen[bytes]:
    """A process in a network of its own with this host name. It ends with us, also when we are killed: it
    reads a pipe whose other end only we hold, and the kernel closes that.
    """
    script = f"hostname {name} && echo ready && exec cat > /dev/null"
    return _started(["unshare", "--net", "--uts", "--", "sh", "-c", script], f"the network of {name}")


def _started(argv: Sequence[str], what: str) -> subprocess.Popen[bytes]:
    """A process that says when it is ready and ends when its standard input does."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us, and we end them in order
    )
    assert process.stdout is not None
    if process.stdout.readline() != _READY:
        raise BytePSError(f"lab: {what} could not be made: {' '.join(argv)} ended with {process.wait()}")
    return process


def _run(argv: Sequence[str], lines: Sequence[str] = ()) -> str:
    text = "".join(line + "\n" for line in lines)
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BytePSError(f"lab: {' '.join(argv)} failed: {done.stderr.strip()}\n{text}")
    return done.stdout
