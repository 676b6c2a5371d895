"""How a job is run whichever way it is launched: how long its end may take, and where its output is kept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from byteps.errors import ConfigError
from byteps.launcher.ending import Times
from byteps.launcher.log_files import LogFiles
from byteps.launcher.spec import ProcessSpec

__all__ = ["Manner"]


@dataclass(frozen=True)
class Manner:
    """What ``--grace`` and ``--log-dir`` say."""

    times: Times = field(default_factory=Times)
    log_dir: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Manner:
        """From the options; ``ConfigError`` for wrong use."""
        if args.grace is None:
            return cls(log_dir=args.log_dir)
        if not 0 <= args.grace < 1e6:
            raise ConfigError(f"--grace {args.grace:g}: expected a number of seconds")
        return cls(Times(stop_s=args.grace), args.log_dir)

    def draining(self, drain_s: float) -> Manner:
        """The same for a part of a job, which ends this much later than the part that failed."""
        return replace(self, times=replace(self.times, drain_s=drain_s))

    def logs(self, specs: Sequence[ProcessSpec]) -> LogFiles | None:
        """The files of the output, opened; ``ConfigError`` when the folder cannot be written."""
        if self.log_dir is None:
            return None
        return LogFiles(Path(self.log_dir), [spec.label for spec in specs])
