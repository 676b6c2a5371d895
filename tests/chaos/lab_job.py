"""A job on the hosts of a lab, whose links a test can take away, and what its workers run."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from byteps.launcher.plan import Options, plan
from byteps.launcher.spec import Facts
from byteps.testing import Cluster, report
from byteps.tools.lab import Lab
from byteps.tools.lab.layout import Layout, placed
from byteps.tools.lab.network import why_not

RATE_MBIT = 200  # slow enough that a step does not take all cores
INTERVAL_S, TIMEOUT_S = 0.1, 3.0
HEARTBEAT = {"PS_HEARTBEAT_INTERVAL": str(INTERVAL_S), "PS_HEARTBEAT_TIMEOUT": str(TIMEOUT_S)}


def why_no_cuts() -> str:
    """Why no lab with cuts can be built here; empty when it can."""
    return why_not() or ("" if shutil.which("iptables") else "a cut needs iptables: apt install iptables")


@contextlib.contextmanager
def lab_job(
    lab: Lab, layout: Layout, args: tuple[Any, ...], env: Mapping[str, str], deadline_s: float = 90.0
) -> Iterator[Cluster]:
    """``train`` on the worker hosts of ``layout``; whatever is left at the end of the block is killed."""
    common = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "BYTEPS_SERVER_ENGINE_THREAD": "2",
        "BYTEPS_CONNECT_TIMEOUT_S": "60",
        **HEARTBEAT,
        **env,
    }
    facts = Facts(sys.executable, "9000", "", f"lab-{secrets.token_hex(4)}", secrets.token_hex(16), "29500")
    command = (sys.executable, "-m", "byteps.testing.call", __file__, "train", json.dumps(args))
    options = Options(command, layout.workers, len(layout.server_hosts))
    job = Cluster(deadline_s)
    try:
        for spec in placed(plan(options, common, facts).processes, layout, lab.address, lab.inside):
            job.start(spec, common)
        for worker in job.workers:
            worker.wait_report(timeout_s=job.left_s)
        yield job
    finally:
        job.close()


def train(stop: str, elements: int, idle: str = "") -> dict[str, Any]:
    """Exact sums until the file ``stop`` is there, or until somebody is lost.

    With ``idle``, a pipe in the file system, nothing is asked for between two steps until it is written to.
    """
    import numpy as np

    import byteps as bps

    bps.init()
    contributions = sum(4.0**rank for rank in range(bps.size()))
    step, began = 0, time.monotonic()
    try:
        while True:
            factor = step % 7 + 1
            began = time.monotonic()
            mine = np.full(elements, 4.0 ** bps.rank() * factor, np.float32)
            total = bps.push_pull(mine, average=False, name="gradient")
            wrong = np.flatnonzero(total != contributions * factor)
            assert not len(wrong), f"step {step}, element {wrong[0]}: {total[wrong[0]]}"
            stopping = np.array([Path(stop).exists()], np.float32)
            step += 1
            if bps.push_pull(stopping, average=False, name="stop")[0]:
                return {"steps": step}
            if step == 3:
                report("running")
                if idle:
                    Path(idle).read_text()
    except bps.PeerLostError as error:
        lost = {"role": error.role, "rank": error.rank, "host": error.host, "text": str(error)}
        return {"steps": step, "waited_s": time.monotonic() - began, **lost}
