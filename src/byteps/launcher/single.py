"""Runs a plan whose processes are all on this machine: asks the machine, and supervises."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace

from byteps.launcher import guard, here, supervise
from byteps.launcher.manner import Manner
from byteps.launcher.spec import Facts, Plan

__all__ = ["launch"]


def launch(
    planned: Callable[[Facts], Plan], bind: Callable[[], socket.socket], manner: Manner, master_port: int = 0
) -> int:
    """``bind`` makes the scheduler's socket; returns the exit code of the job.

    ``master_port``: for torch.distributed, 0: a free one.
    """
    here.open_standard_fds()
    stdin = here.stdin_is_ours()  # asked here: the supervisor has left the terminal's session

    def job(front_gone: int) -> int:
        listener = bind()
        with here.reserve(
            master_port
        ) as master:  # for as long as the job runs: its program may ask for the port late
            facts = replace(here.facts(listener), master_port=str(master.getsockname()[1]))
            processes = planned(facts).processes
            logs = manner.logs(processes)
            if here.listen(listener, processes):
                listener.detach()  # another process's from now on
            else:
                listener.close()
            return supervise.run(
                processes, os.environ, stdin=stdin, front_gone=front_gone, times=manner.times, logs=logs
            )

    return guard.guarded(job)
