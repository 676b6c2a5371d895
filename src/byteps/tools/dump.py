"""``bps dump ADDRESS``: every member of a running job writes its last seconds to a file."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from byteps import config
from byteps.control.channel import Channel
from byteps.control.messages import Dump, Status
from byteps.errors import ProtocolError
from byteps.tools.observing import ANSWER_S, address, observe

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """The options of this subcommand."""
    parser = subparsers.add_parser(
        "dump",
        help="let every member of a running job write its last seconds",
        description="Ask the scheduler at ADDRESS to let every member write its last seconds: to "
        "BYTEPS_FLIGHT_DIR on its own machine. `bps trace merge` and `bps trace show` read the files. It "
        "needs the job's BYTEPS_JOB_ID and BYTEPS_JOB_SECRET.",
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="HOST:PORT of the scheduler (default: DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT)",
    )


def run(args: argparse.Namespace) -> int:
    """Ask, and say how many were asked."""
    settings = config.load()
    status = observe(settings, *address(args.address, settings), _ask)
    print(f"asked {len(status.members)} members; their logs say where the files are")
    return 0


async def _ask(channel: Channel) -> Status:
    channel.send(Dump("bps dump"))
    status = await asyncio.wait_for(channel.receive(), ANSWER_S)
    if not isinstance(status, Status):
        raise ProtocolError("the scheduler's answer does not fit")
    return status
