"""The other half of ``members``: the loop of a process that is told step by step what to measure."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["serve"]

Message = dict[str, Any]


def serve(handlers: Mapping[str, Callable[[Message], Message]]) -> None:
    """Answer requests until ``{"do": "leave"}`` or the end of input, which means that the director has gone.

    A handler gets the request and returns the answer; what it raises is the answer, and ends the process.
    """
    channel = os.fdopen(int(sys.argv[1]), "wb", buffering=0)
    for line in sys.stdin.buffer:
        request: Message = json.loads(line)
        if request["do"] == "leave":
            return
        try:
            answer = handlers[request["do"]](request)
        except BaseException as error:
            traceback.print_exc()
            channel.write(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
            raise SystemExit(1) from None
        channel.write(json.dumps(answer).encode() + b"\n")
