"""A random key of the user, in a file, from which processes that share a home folder derive a job's secret.

Tasks of a Slurm step have no common parent of ours that could make a secret and hand it on, and what they all
know (the number of the job) everybody knows. The key is made once, readable by its owner only; the secret of
a job is HMAC-SHA256 of its name under this key: another one for every job, and the key is never sent.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from byteps.errors import ConfigError

__all__ = ["path_of", "secret_for"]


def path_of(environ: Mapping[str, str]) -> Path:
    """Where the key is."""
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or Path.home()}/.config"
    return Path(base) / "byteps" / "job-key"


def secret_for(name: str, path: Path) -> str:
    """The secret of a job of this name; makes the key if there is none."""
    try:
        key = _read(path) or _make(path)
    except OSError as error:
        raise ConfigError(
            f"the key for job secrets, {path}, can neither be read nor made: {error.strerror}; make the "
            "folder writable, or set BYTEPS_JOB_SECRET_FILE to a file with a secret that all members can read"
        ) from None
    return hmac.new(key, f"byteps job secret: {name}".encode(), hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read().strip()
    except FileNotFoundError:
        return b""
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"the key for job secrets, {path}, is open to other users; run: chmod 600 {path}")
    if len(key) < 32:
        raise ConfigError(f"the key for job secrets, {path}, is too short; remove it, a new one will be made")
    return key


def _make(path: Path) -> bytes:
    """Make it whole under another name and link it: whoever is second reads what the first has made."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_hex(32).encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
    finally:
        draft.unlink()
    return _read(path)
