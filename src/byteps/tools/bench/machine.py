"""Facts about the machine and its software that a reader needs to compare two result files."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessorTime", "busy", "cpu_seconds", "machine_facts", "memory_status", "processor_time"]

_PROC_FACTS = {
    "tcp_rmem": "/proc/sys/net/ipv4/tcp_rmem",
    "tcp_wmem": "/proc/sys/net/ipv4/tcp_wmem",
    "tcp_congestion_control": "/proc/sys/net/ipv4/tcp_congestion_control",
    "loopback_mtu": "/sys/class/net/lo/mtu",
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
}


def _read(path: str) -> str | None:
    try:
        return " ".join(Path(path).read_text().split())
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in _read_lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return None


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine_facts() -> dict[str, object]:
    """Everything that may explain a different number elsewhere; a fact that cannot be read is null."""
    cores = len(os.sched_getaffinity(0))
    return {
        "cpu": _cpu_model(),
        "cores": cores,
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("byteps", "numpy", "torch")},
        **{name: _read(path) for name, path in _PROC_FACTS.items()},
    }


def busy() -> str | None:
    """A remark for people when others use this machine, or None."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load < 0.5 * cores:
        return None
    return f"this machine is busy (load average {load:.1f} on {cores} cores): expect a wide spread"


@dataclass(frozen=True)
class ProcessorTime:
    """Time of all processors since boot, and what of it a hypervisor gave to other machines."""

    total: int
    stolen: int

    def stolen_since(self, before: ProcessorTime) -> float:
        """
        >>> ProcessorTime(1200, 30).stolen_since(ProcessorTime(1000, 20))
        0.05
        """
        return (self.stolen - before.stolen) / max(1, self.total - before.total)


def processor_time(stat: str | None = None) -> ProcessorTime:
    """From the text of /proc/stat.

    >>> processor_time("cpu  10 1 20 100 5 0 4 60 7 0")
    ProcessorTime(total=200, stolen=60)
    """
    text = _read("/proc/stat") if stat is None else stat
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already
    times = [int(word) for word in (text or "cpu").split()[1:9]]
    return ProcessorTime(sum(times), times[7]) if len(times) == 8 else ProcessorTime(0, 0)


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used, in user code and in the kernel."""
    # Linux encodes a process in a clock number so: see clock_getcpuclockid(3). Python has no name for it.
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def memory_status(pid: int) -> dict[str, int]:
    """VmRSS and VmHWM (the most it ever was) of a process, in bytes."""
    found: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * 1024
    return found
