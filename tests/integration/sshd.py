"""A real sshd on loopback, with keys, port and configuration of its own; nothing of the machine is used."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

LIMIT_S = 20.0


@dataclass(frozen=True)
class Sshd:
    """A server that runs, and how to reach it."""

    ssh: str  # for bpslaunch --ssh
    port: int
    pid: int
    log: Path


def find() -> str:
    """The program, or a reason to skip."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh") is None:
        pytest.skip("sshd is not installed; on Debian and Ubuntu: apt install openssh-server")
    return found


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Sshd]:
    """Start one and end it."""
    program = find()
    folder.chmod(0o700)
    for name in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
            check=True,
            timeout=LIMIT_S,
        )
    authorized = folder / "authorized_keys"
    authorized.write_text((folder / "user_key.pub").read_text())
    authorized.chmod(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where Debian's build separates privileges
    server = folder / "sshd_config"
    server.write_text(
        f"Port {port}\nListenAddress 0.0.0.0\nHostKey {folder}/host_key\nAuthorizedKeysFile {authorized}\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"PermitRootLogin prohibit-password\nPidFile {folder}/pid\nMaxStartups 100\n"
    )
    client = folder / "ssh_config"
    client.write_text(
        "Host nowhere\n  HostName 127.0.0.1\n  Port 1\n"
        f"Host *\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user_key\n"
        "  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )
    log = folder / "sshd.log"
    process = subprocess.Popen([program, "-D", "-f", str(server), "-E", str(log)], stdin=subprocess.DEVNULL)
    try:
        _wait_for(port, process, log)
        yield Sshd(f"ssh -F {client}", port, process.pid, log)
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            said = log.read_text() if log.exists() else ""
            assert process.poll() is None and time.monotonic() < deadline, f"sshd did not start: {said}"
            time.sleep(0.05)  # it tells nobody when it is ready
