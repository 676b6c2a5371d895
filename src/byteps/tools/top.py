"""``bps top ADDRESS``: what a running job does, once a second, until it ends or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from byteps import config
from byteps.control.channel import Channel
from byteps.control.messages import AskNumbers, Numbers
from byteps.errors import ProtocolError
from byteps.tools.live import Live, Member, live
from byteps.tools.observing import ANSWER_S, address, observe

__all__ = ["add_parser", "lines", "run"]

EVERY_S = 1.0
FIRST_S = 2.0  # members begin to tell their numbers when the first question has come


def add_parser(subparsers: Any) -> None:
    """The options of this subcommand."""
    parser = subparsers.add_parser(
        "top",
        help="what a running job does, live",
        description="Show what the job of the scheduler at ADDRESS does: steps, waits, bytes, and who is "
        "waited for. It needs the job's BYTEPS_JOB_ID and BYTEPS_JOB_SECRET, and works over ssh.",
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="HOST:PORT of the scheduler (default: DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT)",
    )
    parser.add_argument("--json", action="store_true", help="once, over two seconds, for programs")


def run(args: argparse.Namespace) -> int:
    """Show until the end of the job."""
    settings = config.load()
    where = address(args.address, settings)
    try:
        observe(settings, *where, _once if args.json else _show)
    except KeyboardInterrupt:
        pass
    return 0


async def _numbers(channel: Channel) -> AsyncIterator[Numbers]:
    """The numbers, again and again."""
    for number in itertools.count():
        channel.send(AskNumbers(number))
        answer = await asyncio.wait_for(channel.receive(), ANSWER_S)
        if not isinstance(answer, Numbers) or answer.id != number:
            raise ProtocolError("the scheduler's answer does not fit")
        yield answer
        await asyncio.sleep(FIRST_S if number == 0 else EVERY_S)


async def _once(channel: Channel) -> None:
    seen: list[Numbers] = []
    async for numbers in _numbers(channel):
        seen.append(numbers)
        if len(seen) == 4:  # the first two may come before all members have told theirs
            break
    found = live(seen[1], seen[3])
    json.dump({**msgspec.to_builtins(found), "slowest": found.slowest}, sys.stdout, indent=1)
    print()


async def _show(channel: Channel) -> None:
    before: Numbers | None = None
    screen = _screen() if sys.stdout.isatty() else _Plain()
    try:
        async for numbers in _numbers(channel):
            if before is not None:
                screen.draw("\n".join(lines(live(before, numbers))))
            before = numbers
    except (OSError, ProtocolError) as error:
        print(f"the job has ended, or its scheduler is gone: {error}")
    finally:
        screen.stop()


class _Plain:
    """Lines below each other."""

    def draw(self, text: str) -> None:
        print(text, flush=True)

    def stop(self) -> None:
        """Nothing to do."""


def _screen() -> _Plain:
    """A table that lives, where rich is installed."""
    try:
        from rich.live import Live as Screen
        from rich.text import Text
    except ImportError:
        return _Plain()

    class Living(_Plain):
        def __init__(self) -> None:
            self._screen = Screen(refresh_per_second=4)
            self._screen.start()

        def draw(self, text: str) -> None:
            self._screen.update(Text(text))

        def stop(self) -> None:
            self._screen.stop()

    return Living()


def lines(found: Live) -> list[str]:
    """The job as a table. Pure."""
    shown = [f"{found.text}", _waits(found), ""]
    shown.append(
        f"{'member':<24} {'steps/s':>8} {'step ms':>8} {'waiting':>8} {'sent MB/s':>10} {'got MB/s':>10} "
        f"{'in flight MB':>12}"
    )
    return [*shown, *(_row(each) for each in found.members)]


def _waits(found: Live) -> str:
    if found.slowest is None:
        return "nobody is waited for"
    order = sorted(found.waited_for.items(), key=lambda each: -each[1])[:5]
    total = sum(found.waited_for.values())
    return "waited for: " + ", ".join(f"rank {rank} {share / total:.0%}" for rank, share in order)


def _row(member: Member) -> str:
    name = f"{member.role} {member.rank} ({member.host})"[:24]
    steps = f"{member.steps:8.2f} {member.step_ms:8.1f} {member.waiting:8.0%}"
    if member.role == "server":
        steps = f"{'-':>8} {'-':>8} {'-':>8}"
    bytes_ = f"{member.sent_bytes / 1e6:10.2f} {member.received_bytes / 1e6:10.2f}"
    late = f"  no numbers for {member.age_s:.0f} s" if member.age_s > 5 else ""
    return f"{name:<24} {steps} {bytes_} {member.in_flight_bytes / 1e6:12.2f}{late}"
