"""How the ranks of torch.distributed become a job of ours: through the store that they have met at.

Under ``bpslaunch`` there is nothing to agree on. Otherwise, under ``torchrun`` or any other launcher, each
rank tells the store which machine it is on, and rank 0 chooses the port, the name and the secret of the job.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from byteps.config import load
from byteps.control.machine import kernel
from byteps.control.said import unpack
from byteps.errors import ConfigError
from byteps.worker import current
from byteps.worker.session import Session
from byteps.worker.torchrun import LOOPBACK, no_servers

__all__ = ["membership", "place"]

OPERATION = 'init_process_group("byteps")'


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    """What rank 0 tells the others; only these names get into the environment, whoever wrote to the store."""

    DMLC_PS_ROOT_URI: str
    DMLC_PS_ROOT_PORT: str
    BYTEPS_JOB_ID: str
    BYTEPS_JOB_SECRET: str


_decoder = msgspec.json.Decoder(_Job)


def membership(store: Any, rank: int, size: int) -> Session:
    """This process's membership; makes one if there is none. ConfigError when it is another job's."""
    if current.session is None:
        if not os.environ.get("BYTEPS_LOCAL_SIZE"):
            # For good, as the launcher would: the scheduler that rank 0 starts inherits it.
            os.environ.update(_agreed(store, rank, size))
        current.init()
    session = current.required(OPERATION)
    if (session.rank, session.size) != (rank, size):
        raise ConfigError(
            f"{OPERATION}: torch.distributed says rank {rank} of {size}, byteps says rank {session.rank} of "
            f"{session.size}; start the program with bpslaunch or torchrun, with as many ranks on every "
            "machine, and do not call byteps.init() before where neither was used"
        )
    return session


def place(machines: Sequence[str], rank: int) -> dict[str, str]:
    """Where a rank stands, given the machine of every rank; pure.

    >>> place(["a", "a", "b"], 1)["BYTEPS_LOCAL_RANK"], place(["a", "a", "b"], 2)["DMLC_WORKER_ID"]
    ('1', '1')
    """
    different = list(dict.fromkeys(machines))
    own = machines[rank]
    return {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": str(len(different)),
        "DMLC_WORKER_ID": str(different.index(own)),
        "BYTEPS_LOCAL_RANK": str(machines[:rank].count(own)),
        "BYTEPS_LOCAL_SIZE": str(machines.count(own)),
        "BYTEPS_GLOBAL_RANK": str(rank),
    }


def _agreed(store: Any, rank: int, size: int) -> dict[str, str]:
    store.set(f"byteps/machine/{rank}", _machine())
    machines = [store.get(f"byteps/machine/{each}").decode(errors="replace") for each in range(size)]
    found = place(machines, rank)
    config = load({**os.environ, **found})
    if config.serverless:
        return found | _new_job(store, rank)
    if config.num_worker > 1 and not config.root_uri:
        raise no_servers(OPERATION, config.num_worker)
    return found  # alone, or with a scheduler that the user has named


def _new_job(store: Any, rank: int) -> dict[str, str]:
    """The scheduler's address and the job's identity, from rank 0, which also gets the listening socket."""
    own = {}
    if rank == 0:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, 0))
        port = str(listener.getsockname()[1])
        job = _Job(LOOPBACK, port, secrets.token_hex(8), secrets.token_hex(32))
        own = {"BYTEPS_LISTEN_FD": str(listener.detach())}  # the scheduler's, as from bpslaunch
        store.set("byteps/job", msgspec.json.encode(job).decode())
    agreed = unpack(_decoder, store.get("byteps/job"), "what rank 0 wrote to the store of torch.distributed")
    return {**msgspec.structs.asdict(agreed), **own}


def _machine() -> str:
    """The same for processes that can share memory: containers have names of their own on one kernel."""
    return f"{socket.gethostname()} {kernel()}"
