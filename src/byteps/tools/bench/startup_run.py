"""One start of every peer of ``bps bench startup``: processes as a user starts them, and two clocks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence

from byteps.errors import BytePSError
from byteps.tools.bench.series import Sample

__all__ = ["ALONE", "PEERS", "measure"]

LIMIT_S = 600.0
# CLOCK_MONOTONIC is one clock for all processes of a machine. One write: ranks under torchrun share a pipe.
_DONE = "import os, time; os.write(1, f'FIRST {time.monotonic()}\\n'.encode())"
_IMPORT = {"numpy": "import numpy as np", "torch": "import torch, torch.distributed"}
_SUM = {
    "numpy": "import byteps as bps; bps.init(); x = np.ones(1, 'float32')\n"
    "assert bps.push_pull(x, average=False, name='x')[0] == bps.size()",
    "torch": "import byteps.torch as bps; bps.init(); x = torch.ones(1)\n"
    "assert bps.push_pull(x, average=False, name='x')[0] == bps.size()",
}
_GLOO = (
    "import torch.distributed as dist; dist.init_process_group('gloo'); x = torch.ones(1)\n"
    "dist.all_reduce(x); assert x[0] == dist.get_world_size()"
)

ALONE = ("python x1", "import byteps")  # one process, whatever the number of ranks
PEERS = (*ALONE, "python", "imports", "byteps", "byteps+server", "torchrun")


def measure(peer: str, ranks: int, framework: str) -> Sample:
    """Start it, wait for its end, and check that every rank came to its first sum."""
    imports = _IMPORT[framework]
    launcher = [sys.executable, "-m", "byteps.launcher"]
    if peer == "python":
        return _run([_python(_DONE)] * ranks, ranks)
    if peer in ALONE:
        return _run([_python(_DONE if peer == "python x1" else f"import byteps\n{_DONE}")], 1)
    if peer == "imports":
        return _run([_python(f"{imports}\n{_DONE}")] * ranks, ranks)
    if peer == "torchrun":
        # It runs a file or a module; --no-python lets it run a command as bpslaunch does.
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        code = f"{imports}\n{_GLOO}\n{_DONE}\ndist.destroy_process_group()"
        return _run([[*start, "--nproc-per-node", str(ranks), *_python(code)]], ranks)
    shape = ["-n", str(ranks)] if peer == "byteps" else ["-n", str(ranks), "--workers", "1", "--servers", "1"]
    return _run([[*launcher, *shape, *_python(f"{imports}\n{_SUM[framework]}\n{_DONE}")]], ranks)


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _run(commands: Sequence[Sequence[str]], ranks: int) -> Sample:
    """Start all commands at once; the time until the last rank's mark, and the CPU time of all there was."""
    ours = ("BYTEPS_", "DMLC_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    before = os.times()
    began = time.monotonic()
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    marks: list[float] = []
    try:
        for process in started:
            out, err = process.communicate(timeout=max(1.0, began + LIMIT_S - time.monotonic()))
            if process.returncode:
                raise BytePSError(f"bench startup: {process.args!r} failed: {(err or out)[-2000:]}")
            marks += [float(found) for found in re.findall(r"FIRST ([0-9.]+)", out)]
    except subprocess.TimeoutExpired:
        raise BytePSError(f"bench startup: {commands[0]!r} did not end within {LIMIT_S:g} s") from None
    finally:
        for process in started:
            process.kill()
            process.wait()
    if len(marks) != ranks:
        raise BytePSError(f"bench startup: {len(marks)} of {ranks} ranks came to their first sum")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Sample(max(marks) - began, used)
