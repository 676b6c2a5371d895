"""``--trace DIR``: a job is told to record, and what it has recorded here is merged when it has ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["traced"]


def traced(folder: str | None, dry_run: bool, run: Callable[[], int]) -> int:
    """What ``run`` returns; with a folder, all processes that it starts record there."""
    if folder is None:
        return run()
    path = Path(folder).absolute()
    os.environ.update(BYTEPS_TRACE_ON="1", BYTEPS_TRACE_DIR=str(path))
    begin_s = time.time()
    try:
        return run()
    finally:
        if not dry_run:
            _merge(path, begin_s)


def _merge(folder: Path, begin_s: float) -> None:
    from byteps.errors import ConfigError
    from byteps.observe.merging import MERGED, load, merge
    from byteps.observe.recording import SUFFIX
    from byteps.observe.verdict import verdict
    from byteps.observe.walk import walked

    # Not those of an earlier job; a file system may know times to the second only.
    paths = [path for path in sorted(folder.glob(f"*{SUFFIX}")) if path.stat().st_mtime >= int(begin_s)]
    if not paths:
        text = f"--trace: no member has recorded anything in {folder} on this machine"
        print(f"bpslaunch: {text}", file=sys.stderr)
        return
    try:
        recordings = load(paths)
        merge(recordings, folder / MERGED)
    except ConfigError as error:
        print(f"bpslaunch: --trace: {error}", file=sys.stderr)
        return
    print(
        f"bpslaunch: trace of {len(paths)} members: {folder / MERGED} (bps trace show {folder})",
        file=sys.stderr,
    )
    print(f"bpslaunch: {verdict(walked(recordings)).text()}", file=sys.stderr)
