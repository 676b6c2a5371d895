"""Files of recordings in, one file for Perfetto out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from byteps.errors import ConfigError
from byteps.observe import chrome
from byteps.observe.recording import SUFFIX, Recording, read

__all__ = ["MERGED", "load", "merge"]

MERGED = "merged.json"


def load(folders: Sequence[Path]) -> list[Recording]:
    """All recordings in these folders and files; ConfigError if there are none, or one cannot be read."""
    paths: list[Path] = []
    for folder in folders:
        paths += sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else [folder]
    if not paths:
        raise ConfigError(
            f"no recordings (*{SUFFIX}) in {', '.join(map(str, folders))}; a job makes them with "
            "bpslaunch --trace DIR, or with BYTEPS_TRACE_ON=1 and BYTEPS_TRACE_DIR=DIR"
        )
    try:
        return [read(path) for path in paths]
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from None


def merge(recordings: Sequence[Recording], output: Path) -> None:
    """One file of all of them."""
    try:
        with output.open("w") as file:
            json.dump(chrome.trace(recordings), file, separators=(",", ":"))
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}") from None
