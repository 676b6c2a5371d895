"""Values on the command line that several ways to launch share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from byteps.config import endpoint

__all__ = ["address", "port", "variables"]


def address(text: str) -> str:
    """A host, without the brackets of an IPv6 address; nothing stays nothing."""
    try:
        return endpoint.host(text) if text else ""
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {endpoint.HOST}") from None


def port(text: str) -> int:
    """A port, 1 to 65535."""
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port, 1 to 65535")
    return int(text)


def variables(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What ``--env`` sets; a name alone has the value that it has here.

    >>> variables(["KEY", "A=1", "B:2"], {"KEY": "x"})
    {'KEY': 'x', 'A': '1', 'B': '2'}
    """
    from byteps.errors import ConfigError

    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:  # as the original's launcher had it
            name, equals, value = word.partition(":")
        if not name or not name.replace("_", "a").isalnum():
            raise ConfigError(f"--env {word!r}: expected NAME=VALUE, or NAME to pass it on")
        if not equals and name not in environ:
            raise ConfigError(f"--env {name}: it is not set here; set it, or write --env {name}=VALUE")
        found[name] = value if equals else environ[name]
    return found
