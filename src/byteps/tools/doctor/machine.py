"""What the facts about one machine mean for a job: pure, facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from byteps.config import Config
from byteps.tools.doctor.facts import Machine
from byteps.tools.doctor.findings import Finding, fail, ok, warn

__all__ = ["judge", "judge_settings"]

FILES_PER_RANK = 64  # of our own, beside connections: libraries, pipes, arenas
ENOUGH_FILES = 4096
ENOUGH_SHM_BYTES = 1 << 30


def judge_settings(errors: Sequence[str], warnings: Sequence[str]) -> list[Finding]:
    """Of the environment: the same verdicts as ``bps env``."""
    look = "see what `bps env --set` says"
    found = [fail("settings", text, look) for text in errors]
    found += [warn("settings", text, look) for text in warnings]
    return found or [ok("settings", "every variable that is set parses, and none contradicts another")]


def judge(machine: Machine, config: Config) -> list[Finding]:
    """Everything about one machine, in the order of the report."""
    return [*_name(machine), *_cores(machine, config), *_limits(machine, config), *_memory(machine, config)]


def _name(machine: Machine) -> Iterator[Finding]:
    check = "own name"
    if machine.own_address is None:
        yield warn(
            check,
            f"the name of this machine, {machine.host}, has no address",
            f"add it to /etc/hosts or the name server ('127.0.1.1 {machine.host}'), or set DMLC_NODE_HOST",
        )
    else:
        yield ok(check, f"{machine.host} is {machine.own_address}")
    check = "clock"
    if machine.clock_synchronised is False:
        yield warn(
            check,
            "the kernel says that nothing keeps this clock right; times in logs will differ between machines",
            "start chrony or systemd-timesyncd",
        )
    else:
        how = "kept right" if machine.clock_synchronised else "not known whether kept right"
        yield ok(check, f"the clock is {how}")


def _cores(machine: Machine, config: Config) -> Iterator[Finding]:
    check = "cores"
    limit = machine.cpu_time
    usable = machine.cpus if limit is None else min(limit, machine.cpus)
    text = f"{machine.cpus} processors" + ("" if limit is None else f", time of {limit:g}")
    if usable < config.local_size and config.local_size > 1:
        yield warn(
            check,
            f"{text}, for {config.local_size} ranks here: they take turns",
            "start fewer ranks on this machine, or give its container more processors",
        )
    elif usable < 2:
        yield warn(
            check,
            f"{text}: sending waits for computing",
            "give this machine or its container two processors or more",
        )
    else:
        yield ok(check, text)


def _limits(machine: Machine, config: Config) -> Iterator[Finding]:
    check = "open files"
    soft, hard = machine.open_files.soft, machine.open_files.hard
    connections = config.num_worker * config.local_size if config.role == "server" else config.num_server
    needed = max(ENOUGH_FILES if config.num_worker > 1 else 256, FILES_PER_RANK + 8 * connections)
    if soft is None or soft >= needed:
        yield ok(check, f"limit of {soft or 'none'}, {needed} are plenty")
    else:
        most = "" if hard is None or hard >= needed else f" (only {hard} allowed: raise the hard limit first)"
        remedy = f"ulimit -n {needed}{most}; for a service LimitNOFILE=, for a container --ulimit nofile="
        few = soft < FILES_PER_RANK + connections
        yield (fail if few else warn)(check, f"limit of {soft}, this job may need {needed}", remedy)
    check = "locked memory"
    locked = machine.locked_bytes.soft
    if config.enable_rdma != "0" and locked is not None:
        yield fail(check, f"limit of {_size(locked)}, RDMA pins its buffers", "ulimit -l unlimited")
    else:
        yield ok(
            check, f"limit of {'none' if locked is None else _size(locked)}; only RDMA and GPUs pin memory"
        )
    check = "own port"
    if machine.own_port_error:
        yield fail(
            check, machine.own_port_error, "set DMLC_PORT to a free port or a wider range, or unset it"
        )
    else:
        ports = config.port
        which = "any" if not ports[0] else f"{ports[0]}-{ports[-1]}"
        yield ok(check, f"a port can be listened on (DMLC_PORT: {which})")


def _memory(machine: Machine, config: Config) -> Iterator[Finding]:
    check = "/dev/shm"
    size, free = machine.shm_bytes, machine.shm_free_bytes
    if size is None or free is None:
        yield warn(
            check,
            "there is none; data loaders of PyTorch need it",
            "mount a tmpfs there, or start the container with --ipc=host or --shm-size=8g",
        )
    elif free < ENOUGH_SHM_BYTES:
        yield warn(
            check,
            f"{_size(free)} free of {_size(size)}; PyTorch's data loaders get a bus error when it is full",
            "start the container with --ipc=host or --shm-size=8g, or remove what fills it (ls -l /dev/shm)",
        )
    else:
        yield ok(check, f"{_size(free)} free of {_size(size)}")
    check = "memory of ranks"
    if machine.reads_memory:
        yield ok(check, "ranks may read each other's memory: large tensors are copied once")
    elif config.enable_ipc:
        scope = machine.ptrace_scope
        why = f" (kernel.yama.ptrace_scope={scope})" if scope not in ("", "0") else ""
        yield warn(
            check,
            f"process_vm_readv is forbidden here{why}: tensors outside byteps.empty() are copied twice",
            "sysctl kernel.yama.ptrace_scope=0; a container needs --cap-add=SYS_PTRACE, or a seccomp profile "
            "that permits process_vm_readv",
        )
    check = "sockets folder"
    if machine.socket_folder_error and config.enable_ipc:
        yield fail(
            check,
            machine.socket_folder_error,
            "set BYTEPS_SOCKET_PATH to a folder that you own, with a short name",
        )
    elif config.enable_ipc:
        yield ok(check, "the ranks of this machine can meet")


def _size(number: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number} bytes"
