"""``bps version``: the versions that matter in a bug report."""

from __future__ import annotations

import argparse
import platform
from typing import Any

from byteps.version import __version__


def add_parser(subparsers: Any) -> None:
    """Add ``version`` to the parser of ``bps``."""
    subparsers.add_parser(
        "version", help="show the versions", description="The versions that matter in a bug report."
    )


def _native() -> str:
    try:
        from byteps import _core
    except ImportError as error:  # worth reporting, and no reason to hide the other lines
        return f"not usable: {error}"
    return f"protocol {_core.PROTOCOL_VERSION}"


def run(args: argparse.Namespace) -> int:
    """Print one line per part."""
    print(f"byteps  {__version__}")
    print(f"core    {_native()}")
    print(f"python  {platform.python_version()}")
    print(f"system  {platform.system()} {platform.release()} {platform.machine()}")
    return 0
