"""How a process becomes a member: alone without a socket, or through the scheduler to the servers."""

from __future__ import annotations

from byteps.config import Config
from byteps.errors import BytePSError, ConfigError, JoinError
from byteps.observe import logging
from byteps.worker import solo
from byteps.worker.session import Session

__all__ = ["become_member"]


def become_member(config: Config) -> Session:
    """A session of the job that ``config`` describes; raises ConfigError, or JoinError."""
    config.check()
    if config.role not in ("", "worker"):
        raise ConfigError(
            f"init: DMLC_ROLE={config.role}, but only workers call it; start a {config.role} with bpslaunch"
        )
    logging.setup(config, "worker")
    if config.plugins:
        from byteps.compress.custom import load_plugins

        load_plugins(config.plugins)
    if not config.distributed:
        return Session(
            config, solo.PLACE, solo.SoloControl(), solo.SoloClient(asynchronous=config.enable_async)
        )
    from byteps.worker import remote  # the native core and asyncio are loaded only when they are needed

    try:
        return remote.open_session(config)
    except OSError as error:  # of the system, about this process itself: peers have errors of their own
        if isinstance(error, BytePSError) or not error.errno:
            raise
        from byteps.control.shortage import explained, needed

        raise JoinError(f"init: {explained(error, needed(config))}") from error
