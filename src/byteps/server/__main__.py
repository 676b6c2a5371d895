"""``python -m byteps.server``: run one server of the job that the environment describes."""

from __future__ import annotations

import asyncio
import sys

from byteps.control import blame, starter
from byteps.control.channel import show_wire
from byteps.errors import BytePSError, PeerLostError
from byteps.observe import logging
from byteps.server.service import Interrupted, Server


def main() -> int:
    """Exit status 0: all workers left cleanly. Anything else comes with a line that says why."""
    line = None  # to the rank that started us
    try:
        config = starter.settings()
        line = config.starter_fd
        logging.setup(config, "server")
        config.require_distributed()
        show_wire(config.ps_verbose)
        if config.plugins:
            from byteps.compress.custom import load_plugins

            load_plugins(config.plugins)
        asyncio.run(Server(config).run())
    except (BytePSError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        starter.tell(line, reason)
        if isinstance(error, PeerLostError):
            blame.another(config.blame)
        print(f"byteps server: {reason}", file=sys.stderr)
        return error.code if isinstance(error, Interrupted) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
