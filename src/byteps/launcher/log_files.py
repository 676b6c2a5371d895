"""A file for the output of every process of a job, as it was written: what ``--log-dir`` asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from byteps.errors import ConfigError

__all__ = ["LogFiles", "file_name"]


def file_name(label: str) -> str:
    """The name of a process's file.

    >>> file_name("worker 10")
    'worker-10.log'
    """
    return label.replace(" ", "-").replace("/", "-") + ".log"


class LogFiles:
    """The files of one job; those of an earlier job in the same folder are replaced."""

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        """ConfigError when the folder or a file in it cannot be made."""
        self.folder = folder
        self.error = ""  # why output is missing in a file; the job goes on
        self._fds: list[int] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for label in labels:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
                self._fds.append(os.open(folder / file_name(label), flags, 0o666))
        except OSError as error:
            self.close()
            raise ConfigError(
                f"--log-dir {str(folder)!r} cannot be used: {error.strerror} ({error.filename}); "
                "choose a folder that you may write to"
            ) from None

    def write(self, process: int, data: bytes) -> None:
        """Append what a process has written."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fds[process], rest) :]
        except OSError as error:  # a full disk ends the file, not the training
            self.error = self.error or f"{self.folder}: {error.strerror}; what came later is not in the files"

    def close(self) -> None:
        """Close the files; fine to call twice."""
        while self._fds:
            os.close(self._fds.pop())
