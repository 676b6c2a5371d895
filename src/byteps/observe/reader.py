"""Commands whose reader may go before they have written everything: ``bps env | head -1``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

__all__ = ["with_a_reader"]


def with_a_reader(command: Callable[[], int]) -> int:
    """The exit code of ``command``, after all that it printed is written. Readers may go."""
    try:
        try:
            return command()
        finally:  # also when --help or a wrong option ends it: at the end of Python nobody could catch it
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
