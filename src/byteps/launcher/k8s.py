"""``bpslaunch --k8s IMAGE``: a job on Kubernetes, as a JobSet. Options, and how the manifest is applied."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["add_arguments", "asked", "run"]

_APPLY_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this way."""
    add = parser.add_argument_group("Kubernetes, with JobSet").add_argument
    add("--k8s", metavar="IMAGE", help="the image of the workers: W pods of N ranks, M pods of servers; with "
        "--dry-run the manifest is printed, else kubectl applies it")  # fmt: skip
    add("--name", metavar="NAME", help="of the job, and of all that is made for it")
    add("--namespace", metavar="NAME", default="", help="(default: the one of kubectl's context)")
    add("--server-image", metavar="IMAGE", default="", help="of scheduler and servers (default: IMAGE)")
    add("--cpus", metavar="C", default="", help="CPUs of a worker pod, as Kubernetes writes them")
    add("--memory", metavar="SIZE", default="", help="memory of a worker pod, for example 16Gi")
    add("--gpus", metavar="G", type=int, default=0, help="nvidia.com/gpu of a worker pod")
    add("--shm", metavar="SIZE", default="2Gi", help="/dev/shm of a worker pod (default 2Gi)")
    add("--server-cpus", metavar="C", default="2", help="CPUs of a server pod (default 2)")
    add("--server-memory", metavar="SIZE", default="4Gi", help="memory of a server pod (default 4Gi)")
    add("--restarts", metavar="K", type=int, default=0, help="start the job again up to K times (default 0)")
    add("--secret-name", metavar="NAME", default="", help="a Secret that exists, with the job's secret under "
        "the key secret (default: one is made)")  # fmt: skip


def asked(args: argparse.Namespace) -> bool:
    """Whether these options ask for this way."""
    return args.k8s is not None


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Print the manifest, or apply it."""
    import os
    import secrets

    from byteps.errors import ConfigError
    from byteps.launcher import nodes
    from byteps.launcher.arguments import variables
    from byteps.launcher.k8s_manifest import Wish, manifest
    from byteps.launcher.manner import Manner

    if not args.name:
        raise ConfigError("--k8s needs --name: what the job is called, for example --name job1")
    given = {name: text for name, text in os.environ.items() if name.startswith(("BYTEPS_", "PS_"))}
    own = variables(args.env, os.environ)
    if hidden := [name for name in own if "SECRET" in name]:
        raise ConfigError(f"--env {hidden[0]}: everybody could read it in the manifest; keep it in a Secret")
    workers = 1 if args.workers is None else args.workers
    wish = Wish(
        name=args.name,
        image=args.k8s,
        command=tuple(command),
        workers=workers,
        servers=int(workers > 1) if args.servers is None else args.servers,
        nproc=nodes.ranks(args),
        namespace=args.namespace,
        server_image=args.server_image or args.k8s,
        cpus=args.cpus,
        memory=args.memory,
        gpus=args.gpus,
        shm=args.shm,
        server_cpus=args.server_cpus,
        server_memory=args.server_memory,
        restarts=args.restarts,
        secret_name=args.secret_name,
        secret=secrets.token_hex(32),
        launch_id=secrets.token_hex(8),
        root_port=args.scheduler_port or 9000,
        grace=Manner.of(args).times.stop_s if args.grace is not None else None,
        folder=args.chdir or "",
        env={**given, **own},
    )
    documents = manifest(wish)
    if overruled := own.items() - _plain_variables(documents).items():
        raise ConfigError(f"--env {min(overruled)[0]}: bpslaunch itself decides what workers get there")
    text = _text(documents)
    if args.dry_run:
        print(text, end="")
        return 0
    return _apply(text, wish.name, args.namespace)


def _plain_variables(documents: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The variables of a worker, without those that refer to something."""
    jobs = documents[-1]["spec"]["replicatedJobs"]
    (container,) = jobs[-1]["template"]["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def _text(documents: Sequence[dict[str, Any]]) -> str:
    """YAML where PyYAML is installed, else JSON, which is YAML too."""
    note = "# Made by bpslaunch --k8s. It holds the secret of this job: keep it private.\n"
    if all(document["kind"] != "Secret" for document in documents):
        note = "# Made by bpslaunch --k8s.\n"
    try:
        import yaml
    except ImportError:
        import json

        print("bpslaunch: JSON and not YAML: for that, pip install 'byteps-train[k8s]'", file=sys.stderr)
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}, indent=2) + "\n"

    class Plain(yaml.SafeDumper):  # type: ignore[misc]
        """Without references between parts of a document, which no person wants to follow."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return note + str(yaml.dump_all(documents, Dumper=Plain, sort_keys=False, width=110))


def _apply(text: str, name: str, namespace: str) -> int:
    import shutil
    import subprocess

    from byteps.errors import ConfigError

    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigError(
            "--k8s: kubectl is not in PATH; install it, or print the manifest with --dry-run and apply it "
            "elsewhere"
        )
    where = ["--namespace", namespace] if namespace else []
    try:  # over its input: an argument or a file would show the secret
        code = subprocess.run(
            [kubectl, *where, "apply", "-f", "-"], input=text.encode(), timeout=_APPLY_S
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"bpslaunch: kubectl did not end within {_APPLY_S:g} s", file=sys.stderr)
        return 1
    if code == 0:
        space = f" -n {namespace}" if namespace else ""
        print(
            f"bpslaunch: {name} is applied; look at it with `kubectl{space} get jobset {name}`, read worker "
            f"0 with `kubectl{space} logs -f job/{name}-worker-0`, end it with `kubectl{space} delete "
            f"jobset,service,secret -l byteps.job={name}`",
            file=sys.stderr,
        )
    return code
