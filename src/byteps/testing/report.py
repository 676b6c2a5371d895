"""How a worker under test tells its cluster something: JSON lines through an inherited pipe."""

from __future__ import annotations

import json
import os

__all__ = ["FD_VARIABLE", "report", "send"]

# Not one of the project's own prefixes: ``config`` would warn of a name that it does not know.
FD_VARIABLE = "CLUSTER_REPORT_FD"


def send(kind: str, value: object) -> None:
    """Write one line; without a cluster to read it, do nothing."""
    if FD_VARIABLE in os.environ:
        line = json.dumps([kind, value]).encode() + b"\n"
        fd = int(os.environ[FD_VARIABLE])
        while line:
            line = line[os.write(fd, line) :]


def report(value: object) -> None:
    """Hand something that JSON can hold to ``Process.wait_report`` of the test; may be called many times."""
    send("report", value)
