"""A process that ``torchrun`` has started, in the words of our own launcher. Pure.

``torchrun`` tells each process its rank and the number of ranks, of the job and of its machine. On one
machine that is all a job without servers needs, but for a port: without PyTorch there is nobody to ask, so it
is derived from what all ranks know. ``torch.distributed.init_process_group("byteps")`` does better and agrees
on a free one (``byteps.torch.process_group.agree``).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from byteps.errors import ConfigError

__all__ = ["adopted", "no_servers"]

LOOPBACK = "127.0.0.1"
_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# Below the ports that Linux gives to outgoing connections, and below 29500, which torchrun takes itself.
_PORTS = range(10_000, 29_000)


def adopted(environ: Mapping[str, str]) -> dict[str, str]:
    """What is missing in ``environ`` for a member of the job; nothing unless torchrun started this process.

    >>> two = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    >>> [adopted(two)[name] for name in ("DMLC_NUM_WORKER", "BYTEPS_LOCAL_RANK", "DMLC_PS_ROOT_URI")]
    ['1', '1', '127.0.0.1']

    What is set stays: under ``bpslaunch`` everything is, and who names a scheduler gets that one.
    """
    if environ.get("BYTEPS_LOCAL_SIZE") or not all(environ.get(name) for name in _NEEDED):
        return {}
    rank, size, local_rank, local_size = (_number(environ, name) for name in _NEEDED)
    if size == 1:
        return {}
    machines = -(-size // local_size)
    machine = _number(environ, "GROUP_RANK") if environ.get("GROUP_RANK") else rank // local_size
    found = {
        "DMLC_NUM_WORKER": str(machines),
        "DMLC_WORKER_ID": str(machine),
        "BYTEPS_LOCAL_RANK": str(local_rank),
        "BYTEPS_LOCAL_SIZE": str(local_size),
    }
    if not environ.get("DMLC_PS_ROOT_URI"):
        if machines > 1:
            raise no_servers("init", machines)
        job = _job(environ)
        port = _PORTS[job % len(_PORTS)]
        found |= {"DMLC_PS_ROOT_URI": LOOPBACK, "DMLC_PS_ROOT_PORT": str(port)}
        found["BYTEPS_JOB_ID"] = f"torchrun-{job:08x}"
    return {name: text for name, text in found.items() if not environ.get(name)}


def no_servers(operation: str, machines: int) -> ConfigError:
    """What to say when ranks are on several machines and nobody has named a scheduler."""
    return ConfigError(
        f"{operation}: the ranks are on {machines} machines, and DMLC_PS_ROOT_URI is not set: machines sum "
        "through servers; start a scheduler and servers with bpslaunch, and set DMLC_PS_ROOT_URI, "
        "DMLC_PS_ROOT_PORT and DMLC_NUM_SERVER for torchrun on every machine"
    )


def _job(environ: Mapping[str, str]) -> int:
    """A number of 32 bits that all ranks of this job know, and that is another one after a restart."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return zlib.crc32("\n".join(environ.get(name, "") for name in names).encode())


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not text.isdecimal():
        raise ConfigError(
            f"init: {name}={text!r} does not parse: expected a whole number, as torchrun sets it"
        )
    return int(text)
