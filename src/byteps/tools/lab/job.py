"""The launcher of ``bps lab``: runs the processes of a job on hosts that ``run.py`` has built."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from byteps.errors import ConfigError
from byteps.launcher import guard, here, supervise
from byteps.launcher.plan import Options, plan
from byteps.tools.lab.layout import Layout, placed

__all__ = ["main"]

MASTER_PORT = "29500"  # every host has all ports to itself


def main(fd: int) -> int:
    """Read the request from the descriptor ``fd``, run the job, return its exit code."""
    with os.fdopen(fd) as pipe:
        request = json.load(pipe)
    layout = Layout(*request["layout"])
    hosts = request["hosts"]
    options = Options(
        tuple(request["command"]), layout.workers, len(layout.server_hosts), nproc=request["nproc"]
    )
    here.open_standard_fds()
    stdin = here.stdin_is_ours()
    with here.bind() as listener:
        facts = replace(here.facts(listener), listen_fd="", master_port=MASTER_PORT)
    try:
        processes = plan(options, os.environ, facts).processes
    except ConfigError as error:
        print(f"bps lab: error: {error}", file=sys.stderr)
        return 2
    specs = placed(
        processes, layout, lambda host: hosts[host][0], lambda host: hosts[host][1], request["speeds"]
    )
    return guard.guarded(
        lambda front_gone: supervise.run(specs, os.environ, stdin=stdin, front_gone=front_gone)
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
