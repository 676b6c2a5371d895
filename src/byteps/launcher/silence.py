"""How long a launcher and its agents put up with silence: longer than the members of the job do. Pure.

They speak over connections of ssh, on which TCP tries again ever more rarely: a link that was away for a
while may be silent for as long again. An outage that the job survives must not end its launcher.
"""

from __future__ import annotations

from collections.abc import Mapping

from byteps.config import load

__all__ = ["LEAST_S", "PING_S", "tolerated_s"]

PING_S = 5.0  # between two signs of life
LEAST_S = 30.0

_TIMEOUT = "PS_HEARTBEAT_TIMEOUT"


def tolerated_s(env: Mapping[str, str]) -> float:
    """From the environment of the job.

    >>> tolerated_s({}), tolerated_s({"PS_HEARTBEAT_TIMEOUT": "60"})
    (30.0, 130.0)
    """
    return max(LEAST_S, 2 * load({_TIMEOUT: env.get(_TIMEOUT, "")}).heartbeat_timeout_s + 2 * PING_S)
