"""A rank of a job in which one member comes to a bad end: ``culprit_job.py WAY RANK``."""

from __future__ import annotations

import atexit
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np

import byteps

LAST = 5  # operations of the rank that has fewer than the others


def main() -> None:
    way, who = sys.argv[1], int(sys.argv[2])
    if int(os.environ["RANK"]) == who:
        before(way)
    byteps.init()
    x = np.ones(1000, np.float32)
    for step in range(1_000_000):
        if step == 3:
            print("ready", os.getpid(), flush=True)
            if (way, byteps.rank() == who) in (("idle", True), ("others compute", False)):
                time.sleep(600)  # it lives, and comes to no operation that could fail
        if step == LAST and byteps.rank() == who and at_the_end_of_its_data(way):
            return
        if step == LAST and way == "all raise":
            raise ValueError("loss is nan")
        if step == LAST and way == "barrier" and byteps.rank() != who:
            byteps.barrier()
        try:
            byteps.push_pull(x, name="x")
        except byteps.PeerLostError as error:
            if way == "others wrap":
                raise RuntimeError("training failed") from error
            if way == "others exit":
                os._exit(5)
            raise


def before(way: str) -> None:
    """What the culprit does before it has joined."""
    if way == "import":
        raise ImportError("no module named apex")
    if way == "never":
        signal.pause()
    if way == "refused":
        os.environ["BYTEPS_PARTITION_BYTES"] = "1000000"
    if way == "slow":
        atexit.register(time.sleep, 600)  # registered first, it runs last: after the goodbye to the others


def at_the_end_of_its_data(way: str) -> bool:
    """What the culprit does in the middle of the job; True: it has nothing more to do, and is content."""
    if way in ("raise", "slow", "others wrap", "others exit"):
        raise ValueError("loss is nan")
    if way == "exit":
        sys.exit(7)
    if way == "vanish":
        os._exit(0)
    if way == "memory":
        declare_until_there_is_no_memory()
    if way == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    return way in ("uneven", "barrier")


def declare_until_there_is_no_memory() -> None:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (500 << 20), now + (500 << 20)))
    values = np.empty(16 << 20, np.float32)  # never touched
    for number in range(64):  # of each, the error that is left is as large as the tensor
        byteps.declare(f"y.{number}", values, compression_params={"compressor": "onebit", "ef": "vanilla"})


if __name__ == "__main__":
    main()
