"""``bpslaunch --nnodes 2 --node-rank 0 --master-addr A``: the same on every machine, as with torchrun.

Machine 0 starts the scheduler, at ``--master-addr`` and ``--master-port``, and every machine a server and its
ranks. The number of ranks is the same on all. Rank 0 finds the port after the scheduler's in MASTER_PORT.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from byteps.launcher.arguments import address, port

if TYPE_CHECKING:
    from byteps.launcher.share import Share

__all__ = ["add_arguments", "asked", "count", "ranks", "run", "share_of"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this way, with both spellings that torchrun knows."""
    add = parser.add_argument_group("the same command on every machine, as with torchrun").add_argument
    add("--nnodes", metavar="N", help="the number of machines; each starts its ranks and a server")
    add("--node-rank", "--node_rank", type=int, metavar="R", help="the index of this machine, from 0")
    add("--master-addr", "--master_addr", metavar="ADDRESS", type=address, help="machine 0, which starts the "
        "scheduler")  # fmt: skip
    add("--master-port", "--master_port", type=port, metavar="PORT", help="the scheduler's port (default "
        "29500); the next one is left to torch.distributed. On one machine: the port of torch.distributed "
        "(default: a free one)")  # fmt: skip
    add("--standalone", action="store_true", help=argparse.SUPPRESS)  # what -n does anyway


def asked(args: argparse.Namespace) -> bool:
    """Whether these options ask for this way; one machine is the same as without them."""
    return args.nnodes is not None and args.nnodes != "1"


def count(text: str) -> int:
    """A number of ranks, or how to find it. Used by the parser, which turns a ValueError into a message."""
    cores, devices = len(os.sched_getaffinity(0)), _devices(os.environ)
    if text == "auto":
        return devices or cores
    if text in ("cpu", "gpu"):
        found = cores if text == "cpu" else devices
        if not found:
            raise argparse.ArgumentTypeError(
                "gpu: NVIDIA_VISIBLE_DEVICES names none; set it, or give a number"
            )
        return found
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, auto, cpu or gpu") from None


def ranks(args: argparse.Namespace) -> int:
    """The number of ranks of a machine or task that was asked for."""
    from byteps.errors import ConfigError

    if args.nproc is not None and args.nproc < 1:
        raise ConfigError(f"--nproc {args.nproc}: expected at least 1 rank")
    return 1 if args.nproc is None else int(args.nproc)


def _devices(environ: Mapping[str, str]) -> int:
    named = environ.get("NVIDIA_VISIBLE_DEVICES", "")
    return len([word for word in named.split(",") if word.strip() and word not in ("all", "none", "void")])


def share_of(args: argparse.Namespace, environ: Mapping[str, str]) -> Share:
    """What this machine has of the job; pure."""
    from byteps.errors import ConfigError
    from byteps.launcher.share import Share

    if not args.nnodes.isdecimal() or args.nnodes == "0":
        raise ConfigError(
            f"--nnodes {args.nnodes}: expected a number; a job cannot grow or shrink while it runs"
        )
    machines = int(args.nnodes)
    if args.node_rank is None:
        raise ConfigError(f"--nnodes {machines} needs --node-rank: on every machine another, from 0 to "
                          f"{machines - 1}")  # fmt: skip
    if not 0 <= args.node_rank < machines:
        raise ConfigError(
            f"--node-rank {args.node_rank}: expected 0 to {machines - 1}, as --nnodes is {machines}"
        )
    if not args.master_addr:
        raise ConfigError("--nnodes needs --master-addr: the address of machine 0, the same on all")
    servers = machines if args.servers is None else args.servers
    if servers < 1:
        raise ConfigError(f"--servers {servers}: several machines need at least 1")
    mine = [k for k in range(servers) if k % machines == args.node_rank]
    size = ranks(args)
    root_port = args.master_port or 29500
    return Share(
        sizes=(size,) * machines,
        machine=args.node_rank,
        ranks=tuple(range(size)),
        servers=servers,
        own_servers=tuple(mine),
        scheduler=args.node_rank == 0,
        root_uri=args.master_addr,
        root_port=root_port,
        master_port=root_port + 1,
        job_id=environ.get("BYTEPS_JOB_ID", ""),
    )


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Run this machine's share."""
    from byteps.launcher import share

    return share.run(share_of(args, os.environ), command, os.environ, sys.executable, args)
