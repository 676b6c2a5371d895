"""Values on the command line that several ways to launch share."""

from __future__ import annotations

import argparse

from byteps.config import endpoint

__all__ = ["address"]


def address(text: str) -> str:
    """A host, without the brackets of an IPv6 address; nothing stays nothing."""
    try:
        return endpoint.host(text) if text else ""
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {endpoint.HOST}") from None
