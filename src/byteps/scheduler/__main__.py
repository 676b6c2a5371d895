"""``python -m byteps.scheduler``: run the scheduler of the job that the environment describes."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys

from byteps.config import Config
from byteps.control import blame, starter
from byteps.control.address import bind_host, is_loopback, listen
from byteps.control.channel import show_wire
from byteps.control.listening import BACKLOG
from byteps.control.shortage import LOOP, NO_MEMORY, ensure, explained, needed, take_all
from byteps.errors import BytePSError, ConfigError
from byteps.observe import logging
from byteps.scheduler import rivals, statement
from byteps.scheduler.service import Scheduler


def listener(config: Config) -> socket.socket:
    """The inherited socket if the launcher made one, else DMLC_PS_ROOT_URI:DMLC_PS_ROOT_PORT."""
    if config.listen_fd is not None:
        sock = socket.socket(fileno=config.listen_fd)
        sock.listen(BACKLOG)
        return sock
    try:
        return _bound(config)
    except ConfigError as error:
        raise ConfigError(f"{rivals.announce(config)}{error}") from None


def _bound(config: Config) -> socket.socket:
    port = range(config.root_port, config.root_port + 1)
    try:
        return listen(config.root_uri, port, "DMLC_PS_ROOT_PORT")
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        # The name others use for this machine may not be an address of it (a service in front, say).
        logging.logger.info("%s is no address of this machine: listening on all", config.root_uri)
        return listen(bind_host(config.root_uri, ""), port, "DMLC_PS_ROOT_PORT")


def main() -> int:
    """Exit status 0: all workers left cleanly. Anything else comes with a line that says why."""
    line, launcher = None, ""  # to the rank that started us, and to the launcher
    try:
        config = starter.settings()
        line, launcher = config.starter_fd, config.blame
        logging.setup(config, "scheduler")
        take_all()
        ensure(LOOP)
        config.require_distributed()
        show_wire(config.ps_verbose)
        sock = listener(config)
        if config.job_secret is None and not is_loopback(sock.getsockname()[0]):
            logging.warn_once(
                "no job secret is set, so anybody who reaches this port can join; set BYTEPS_JOB_SECRET"
            )
        statement.announce(config)
        end = asyncio.run(Scheduler(config, sock).run())
        code, reason = end.code, f"{end.error + ': ' if end.error else ''}{end.text}"
    except (BytePSError, OSError, MemoryError) as error:
        text = explained(error, needed(config)) if isinstance(error, OSError) else str(error) or NO_MEMORY
        code, reason = 1, f"{type(error).__name__}: {text}"
        blame.tell(launcher, blame.words(statement.SELF, error))
    if code:
        starter.tell(line, reason)
        print(f"byteps scheduler: {reason}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
