"""bpslaunch --k8s: the manifest, played on this machine; a kubectl of the test; and the Dockerfiles."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from launch_job import LIMIT_S, bpslaunch, environment, run

from byteps.launcher.cli import WAYS

ROOT = Path(__file__).parents[2]
PROGRAM = (
    "import byteps as bps, numpy as np; bps.init(); "
    "print('sum', bps.push_pull(np.full(9, 4.0**bps.rank()), average=False, name='x')[0], flush=True)"
)
ARGS = ("--k8s", "img:1", "--name", "job1", "--workers", "2", "--servers", "2", "-n", "2")


def pods(documents: list[dict[str, Any]], folder: Path, ports: dict[str, str]) -> list[subprocess.Popen[str]]:
    """What the kubelet would do: every container of every pod, with what its environment refers to."""
    secrets = {each["metadata"]["name"]: each["stringData"] for each in documents if each["kind"] == "Secret"}
    (job_set,) = [each for each in documents if each["kind"] == "JobSet"]
    started = []
    for job in job_set["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        for index in range(spec["completions"]):
            env: dict[str, str] = {}
            for each in container["env"]:
                source = each.get("valueFrom", {})
                if "secretKeyRef" in source:
                    text = secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
                elif "fieldRef" in source:
                    path = source["fieldRef"]["fieldPath"]
                    text = {"status.podIP": "127.0.0.1"}.get(
                        path, str(index) if "completion-index" in path else "0"
                    )
                else:
                    text = each["value"]
                    for name in re.findall(r"\$\((\w+)\)", text):
                        text = text.replace(f"$({name})", env[name])
                env[each["name"]] = text
            # Names and ports of a cluster: here all pods share an address and one space of ports.
            env |= {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PORT": "", **ports}
            command = [sys.executable if word == "python" else word for word in container["command"]]
            assert command[0] == "bpslaunch"
            started.append(
                subprocess.Popen(
                    (sys.executable, "-m", "byteps.launcher", *command[1:]),
                    env=environment(**env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
    return started


def test_the_manifest_works_when_it_is_played_here(tmp_path: Path) -> None:
    import socket

    job = run(bpslaunch(*ARGS, "--dry-run", "python", "-c", PROGRAM))
    assert job.process.returncode == 0, job.said
    documents = list(yaml.safe_load_all(job.out))
    assert [each["kind"] for each in documents] == ["Secret", "Service", "JobSet"]
    assert "&id" not in job.out.decode()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    started = pods(documents, tmp_path, {"DMLC_PS_ROOT_PORT": port})
    try:
        said = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert [process.returncode for process in started] == [0] * 5, said
    assert sum(text.count("sum 85.0") for text in said) == 4, said


def test_the_probe_finds_a_port_that_is_listened_on() -> None:
    import socket

    from byteps.launcher.k8s_manifest import _probes

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = _probes(port)["readinessProbe"]["exec"]["command"]
        assert subprocess.run(command, timeout=LIMIT_S).returncode == 0
    assert subprocess.run(command, timeout=LIMIT_S).returncode == 1


def test_kubectl_gets_the_manifest_over_its_input(tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\ncat > {tmp_path}/input\nexit $CODE\n')
    kubectl.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    job = run(bpslaunch(*ARGS, "--namespace", "team", "python", "train.py", PATH=path, CODE="0"))
    assert job.process.returncode == 0, job.said
    secret, _, job_set = yaml.safe_load_all((tmp_path / "input").read_text())
    value = secret["stringData"]["secret"]
    assert (tmp_path / "args").read_text() == "--namespace team apply -f -\n"
    assert len(value) == 64 and value not in job.said and job_set["metadata"]["namespace"] == "team"
    assert "kubectl -n team get jobset job1" in job.said
    assert run(bpslaunch(*ARGS, "true", PATH=path, CODE="7")).process.returncode == 7
    job = run(bpslaunch(*ARGS, "true", PATH=str(tmp_path / "empty")))
    assert job.process.returncode == 2 and "kubectl is not in PATH" in job.said


def test_without_pyyaml_it_is_json(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ImportError('not here')\n")
    job = run(bpslaunch(*ARGS, "--dry-run", "true", PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}"))
    assert job.out.startswith(b"{") and "byteps-train[k8s]" in job.said
    assert [each["kind"] for each in yaml.safe_load(job.out)["items"]] == ["Secret", "Service", "JobSet"]


# ---- Dockerfiles: no daemon builds them here, but what they name must exist


def instructions(path: Path) -> list[tuple[str, list[str]]]:
    text = path.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], shlex.split(line.partition(" ")[2])) for line in lines]


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.server"])
def test_a_dockerfile_names_what_exists(name: str) -> None:
    found = instructions(ROOT / "docker" / name)
    ignored = (ROOT / ".dockerignore").read_text().split()
    for kind, words in found:
        assert kind in ("FROM", "RUN", "WORKDIR", "COPY", "ARG", "USER", "ENV", "ENTRYPOINT", "CMD")
        if kind == "COPY" and not words[0].startswith("--from"):
            for source in words[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, f"{source} is not in the context"
    needed = {"pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "native", "src"}
    copied = {source for kind, words in found if kind == "COPY" for source in words[:-1]}
    assert needed <= copied  # what pyproject.toml refers to, and what is built
    kinds = [kind for kind, _ in found]
    assert kinds.count("FROM") == 2 and kinds.index("USER") > kinds.index("FROM", 1)
    assert ("USER", ["1000:1000"]) in found  # the manifest runs as this user
    entry = next(words for kind, words in found if kind == "ENTRYPOINT")
    assert entry == ["[bpslaunch]"] and "bpslaunch =" in (ROOT / "pyproject.toml").read_text()
    torch = [
        word for kind, words in found if kind == "ARG" for word in words if word.startswith("TORCH_VERSION")
    ]
    if torch:
        assert (
            torch[0].replace("TORCH_VERSION=", "torch==") in (ROOT / "requirements" / "demo.txt").read_text()
        )


def test_every_way_is_in_the_help() -> None:
    text = run(bpslaunch("--help")).out.decode()
    for way in WAYS:
        assert way.split()[0] in text
