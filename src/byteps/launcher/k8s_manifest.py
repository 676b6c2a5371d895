"""A job as objects of Kubernetes: a Secret, a Service for the scheduler, and a JobSet. Pure.

    JobSet NAME
      scheduler   1 pod; the others find it by the name of the Service, NAME-scheduler
      server      M pods
      worker      W pods, one for every worker machine, with N ranks each; its index is DMLC_WORKER_ID

The JobSet has succeeded when all workers have, and has failed when any pod has; ``restarts`` begins it anew.
Every restart has a job id of its own, so that nobody who is left over can join the next one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byteps.errors import ConfigError

__all__ = ["Wish", "manifest"]

_SERVER_PORT = 9100
_MASTER_PORT = 29500
_LABEL = "byteps.job"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_ATTEMPT = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"
_USER = 1000
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME = 40  # names of pods are made of it, and those have at most 63 characters


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    name: str
    image: str
    command: tuple[str, ...]
    workers: int
    servers: int
    nproc: int
    secret: str = field(repr=False)
    launch_id: str
    server_image: str = ""
    namespace: str = ""
    cpus: str = ""
    memory: str = ""
    gpus: int = 0
    shm: str = "2Gi"
    server_cpus: str = "2"
    server_memory: str = "4Gi"
    restarts: int = 0
    secret_name: str = ""  # one that exists; empty: make one
    root_port: int = 9000
    grace: float | None = None  # seconds, None: as bpslaunch has it
    folder: str = ""  # where workers work; empty: where the image says
    env: Mapping[str, str] = field(default_factory=dict)


def manifest(wish: Wish) -> list[dict[str, Any]]:
    """The objects to apply, in this order; ``ConfigError`` for what cannot be."""
    _check(wish)
    objects = []
    if not wish.secret_name:
        objects.append(
            {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(wish, f"{wish.name}-secret"),
             "type": "Opaque", "stringData": {"secret": wish.secret}}
        )  # fmt: skip
    if wish.servers:
        objects.append(_service(wish))
    objects.append(_job_set(wish))
    return objects


def _check(wish: Wish) -> None:
    if not _NAME.fullmatch(wish.name) or len(wish.name) > _MAX_NAME:
        raise ConfigError(
            f"--name {wish.name!r}: expected up to {_MAX_NAME} small letters, digits, dashes, a letter first"
        )
    if wish.workers < 1 or wish.servers < 0:
        raise ConfigError(f"--workers {wish.workers}, --servers {wish.servers}: expected at least 1, and 0")
    if wish.workers > 1 and not wish.servers:
        raise ConfigError(f"--workers {wish.workers} with --servers 0: several machines need servers")
    if not wish.command:
        raise ConfigError("nothing to run: --k8s needs a COMMAND, for example: python train.py")


def _metadata(wish: Wish, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    if wish.namespace:
        found["namespace"] = wish.namespace
    return {**found, "labels": {_LABEL: wish.name}}


def _service(wish: Wish) -> dict[str, Any]:
    """A name for the scheduler, which everybody may look up before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(wish, f"{wish.name}-scheduler"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                "jobset.sigs.k8s.io/jobset-name": wish.name,
                "jobset.sigs.k8s.io/replicatedjob-name": "scheduler",
            },
            "ports": [
                {"name": "scheduler", "port": wish.root_port, "targetPort": wish.root_port, "protocol": "TCP"}
            ],
        },
    }


def _job_set(wish: Wish) -> dict[str, Any]:
    jobs = []
    if wish.servers:
        jobs.append(_job(wish, "scheduler", 1, _scheduler(wish)))
        jobs.append(_job(wish, "server", wish.servers, _server(wish)))
    jobs.append(_job(wish, "worker", wish.workers, _worker(wish)))
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(wish, wish.name),
        "spec": {
            "network": {
                "enableDNSHostnames": True,
                "subdomain": wish.name,
                "publishNotReadyAddresses": True,
            },
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["worker"]},
            "failurePolicy": {"maxRestarts": wish.restarts},
            "replicatedJobs": jobs,
        },
    }


def _job(wish: Wish, role: str, pods: int, container: Mapping[str, Any]) -> dict[str, Any]:
    """An indexed Job with these many pods. One that fails fails the job: JobSet decides about a restart."""
    service = role != "worker"
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if not service:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": wish.shm}})
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _end_s(wish, role),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": volumes,
        "containers": [
            {
                "name": role,
                **container,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": service,
                },
            }
        ],
    }
    return {
        "name": role,
        "replicas": 1,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": {"metadata": {"labels": {_LABEL: wish.name}}, "spec": pod},
            }
        },
    }


def _end_s(wish: Wish, role: str) -> int:
    """How long a pod may take to end: what its ranks may take, and some more."""
    return max(15, math.ceil(wish.grace or 0) + 12) if role == "worker" else 15


def _scheduler(wish: Wish) -> dict[str, Any]:
    # Its own address and not its name: that is published only after it has started.
    own = {"name": "DMLC_PS_ROOT_URI", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return {
        "image": wish.server_image or wish.image,
        "command": ["bpslaunch"],
        "env": [own, *_environment(wish, "scheduler")],
        "ports": [{"name": "scheduler", "containerPort": wish.root_port, "protocol": "TCP"}],
        "resources": _resources("500m", "512Mi"),
        **_probes(wish.root_port),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _server(wish: Wish) -> dict[str, Any]:
    return {
        "image": wish.server_image or wish.image,
        "command": ["bpslaunch"],
        "env": [_root(wish), *_environment(wish, "server", DMLC_PORT=str(_SERVER_PORT))],
        "ports": [{"name": "server", "containerPort": _SERVER_PORT, "protocol": "TCP"}],
        "resources": _resources(wish.server_cpus, wish.server_memory),
        **_probes(_SERVER_PORT),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _worker(wish: Wish) -> dict[str, Any]:
    """No probes: that a rank lives is watched by the scheduler, and what it does only its program knows."""
    index = {"name": "DMLC_WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    master = {"MASTER_ADDR": f"{wish.name}-worker-0-0.{wish.name}", "MASTER_PORT": str(_MASTER_PORT)}
    first = [index, _root(wish)] if wish.servers else [index]
    resources = _resources(wish.cpus, wish.memory)
    if wish.gpus:
        resources.setdefault("limits", {})["nvidia.com/gpu"] = str(wish.gpus)
    grace = [] if wish.grace is None else ["--grace", f"{wish.grace:g}"]
    return {
        "image": wish.image,
        "command": ["bpslaunch", "-n", str(wish.nproc), *grace, "--", *wish.command],
        **({"workingDir": wish.folder} if wish.folder else {}),
        "env": [*first, *_environment(wish, "worker", **master)],
        "resources": resources,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }


def _root(wish: Wish) -> dict[str, Any]:
    return {"name": "DMLC_PS_ROOT_URI", "value": f"{wish.name}-scheduler"}


def _environment(wish: Wish, role: str, **more: str) -> list[dict[str, Any]]:
    attempt = {"name": "JOBSET_RESTART_ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": _ATTEMPT}}}
    secret = {"name": wish.secret_name or f"{wish.name}-secret", "key": "secret"}
    plain = {
        "DMLC_ROLE": role,
        "DMLC_NUM_WORKER": str(wish.workers),
        "DMLC_NUM_SERVER": str(wish.servers),
        "BYTEPS_JOB_ID": f"{wish.name}-$(JOBSET_RESTART_ATTEMPT)",
        "BYTEPS_LAUNCH_ID": f"{wish.launch_id}-$(JOBSET_RESTART_ATTEMPT)",
        "PYTHONUNBUFFERED": "1",
        **more,
    }
    if wish.servers:
        plain["DMLC_PS_ROOT_PORT"] = str(wish.root_port)
        if wish.workers == 1:  # whoever asks for servers wants them used
            plain["BYTEPS_FORCE_DISTRIBUTED"] = "1"
    given = {name: text for name, text in wish.env.items() if name not in plain and "SECRET" not in name}
    values = [{"name": name, "value": text} for name, text in {**plain, **given}.items()]
    return [attempt, *values, {"name": "BYTEPS_JOB_SECRET", "valueFrom": {"secretKeyRef": secret}}]


def _resources(cpus: str, memory: str) -> dict[str, Any]:
    wanted = {name: amount for name, amount in (("cpu", cpus), ("memory", memory)) if amount}
    limits = {name: amount for name, amount in wanted.items() if name == "memory"}
    return {**({"requests": wanted} if wanted else {}), **({"limits": limits} if limits else {})}


def _probes(port: int) -> dict[str, Any]:
    """Whether it listens, seen from inside: a connection would be a stranger's, and logged as one."""
    listens: Sequence[str] = (
        "grep",
        "-qE",
        f":{port:04X} [0-9A-F]+:0000 0A",
        "/proc/net/tcp",
        "/proc/net/tcp6",
    )
    look = {"exec": {"command": list(listens)}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**look, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**look, "periodSeconds": 5},
        "livenessProbe": {**look, "periodSeconds": 10, "failureThreshold": 3},
    }
