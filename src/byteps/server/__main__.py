"""``python -m byteps.server``: run one server of the job that the environment describes."""

from __future__ import annotations

import asyncio
import os
import sys

from byteps.control import blame, starter
from byteps.control.channel import show_wire
from byteps.control.shortage import LOOP, NO_MEMORY, ensure, explained, needed, take_all
from byteps.errors import BytePSError
from byteps.observe import logging
from byteps.server.service import Interrupted, Server


def main() -> int:
    """Exit status 0: all workers left cleanly. Anything else comes with a line that says why."""
    line, launcher = None, ""  # to the rank that started us, and to the launcher
    try:
        config = starter.settings()
        line, launcher = config.starter_fd, config.blame
        logging.setup(config, "server")
        take_all()
        ensure(LOOP)
        config.require_distributed()
        show_wire(config.ps_verbose)
        if config.plugins:
            from byteps.compress.custom import load_plugins

            load_plugins(config.plugins)
        asyncio.run(Server(config).run())
    except (BytePSError, OSError, MemoryError) as error:
        text = explained(error, needed(config)) if isinstance(error, OSError) else str(error) or NO_MEMORY
        reason = f"{type(error).__name__}: {text}"
        starter.tell(line, reason)
        blame.tell(launcher, blame.words(blame.Whom("server", 0, pid=os.getpid()), error))
        print(f"byteps server: {reason}", file=sys.stderr)
        return error.code if isinstance(error, Interrupted) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
