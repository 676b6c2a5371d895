"""A real Slurm of two nodes on this machine, with ports and files of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT_S = 40.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")


def find() -> dict[str, str]:
    """The programs, or a reason to skip."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = {name: shutil.which(name, path=path) for name in _PROGRAMS}
    if missing := [name for name, place in found.items() if place is None]:
        pytest.skip(f"not installed: {', '.join(missing)}; on Debian and Ubuntu: apt install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of its own can only be started by root")
    return {name: place for name, place in found.items() if place is not None}


def _ports(count: int) -> list[int]:
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [sock.getsockname()[1] for sock in socks]
    finally:
        for sock in socks:
            sock.close()


def _configuration(folder: Path, nodes: int) -> str:
    controller, *daemons = _ports(1 + nodes)
    host = socket.gethostname().partition(".")[0]
    lines = [
        "ClusterName=byteps",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        "CredType=cred/munge",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SlurmdParameters=config_overrides",
        "AccountingStorageType=accounting_storage/none",
        "JobAcctGatherType=jobacct_gather/none",
        "JobCompType=jobcomp/none",
        "ReturnToService=2",
        "KillWait=2",
        "MailProg=/bin/true",
        *(
            f"NodeName=n{k} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 State=UNKNOWN"
            for k, port in enumerate(daemons, 1)
        ),
        f"PartitionName=all Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def running(folder: Path, nodes: int = 2) -> Iterator[dict[str, str]]:
    """Start a cluster and end it; yields the environment in which its commands work."""
    programs = find()
    folder.chmod(0o711)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(_configuration(folder, nodes))
    env = {**os.environ, "SLURM_CONF": str(conf)}
    options = [
        f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("pid-file", "log-file", "seed-file")
    ]
    munge = (
        "munged",
        "--foreground",
        "--force",
        f"--socket={folder}/munge.socket",
        f"--key-file={key}",
        *options,
    )
    daemons = [("slurmctld", "-D", "-i"), *(("slurmd", "-D", "-N", f"n{k}") for k in range(1, nodes + 1))]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, *args in (munge, *daemons):
            with (folder / f"{name}.out").open("ab") as out:
                started.append(
                    subprocess.Popen(
                        (programs[name], *args), env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                    )
                )
            if name == "munged":
                _until(lambda: (folder / "munge.socket").exists(), "munged")
        wanted = [f"n{k} idle" for k in range(1, nodes + 1)]
        command = (programs["sinfo"], "-h", "-N", "-o", "%N %t")

        def up() -> bool:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
            return sorted(done.stdout.split("\n")[:-1]) == wanted

        _until(up, f"the nodes; see {folder}")
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(check: object, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not check():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"Slurm did not start: {what}"
        time.sleep(0.1)  # its daemons tell nobody when they are ready
