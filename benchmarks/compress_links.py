"""How much faster is a compressed push_pull: over TCP on loopback, and over links of limited speed?

    python benchmarks/compress_links.py                      2 workers, 1 server, TCP on loopback
    sudo python benchmarks/compress_links.py --rate 1gbit    each in a network of its own, links of 1 Gbit/s

With --rate every process is a host: a network namespace with one link to a switch, shaped both ways by `tc
tbf`. It needs root and iproute2, and leaves nothing behind. Cases are measured in turn in every repetition,
in one job, in place on a tensor that is filled anew for each. What is reported is the median, over the
repetitions, of the time of one push_pull, taken by the slower worker; "times" is that of the uncompressed one
divided by it. The CPU time is that of one worker process, all its threads together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any] | None] = {
    "uncompressed": None,
    "onebit, scaling, ef": {"compressor": "onebit", "scaling": True, "ef": "vanilla"},
    "topk 0.001, ef": {"compressor": "topk", "k": 0.001, "ef": "vanilla"},
    "randomk 0.001, ef": {"compressor": "randomk", "k": 0.001, "ef": "vanilla"},
    "dithering 2": {"compressor": "dithering", "k": 2},
    "fp16": {"fp16": True},
    "int8": {"compressor": "int8"},
    "int4, ef": {"compressor": "int4", "ef": "vanilla"},
}
GOALS = {  # by rate and case, from the issue
    None: {"onebit, scaling, ef": 1.3},
    "1gbit": {"onebit, scaling, ef": 12.0, "topk 0.001, ef": 20.0},
}


def worker(nbytes: int, repeats: int, inner: int, path: str) -> None:
    """Measure all cases, and let rank 0 write the times of the slower rank."""
    import torch

    import byteps.torch as bps

    torch.set_num_threads(1)
    bps.init()
    tensor = torch.empty(nbytes // 4)
    samples: dict[str, list[float]] = {name: [] for name in CASES}
    wire: dict[str, int] = {}
    cpu: dict[str, list[float]] = {name: [] for name in CASES}
    for repeat in range(repeats + 1):  # the first one declares, and warms up
        for name, params in CASES.items():
            torch.manual_seed(1000 * repeat + bps.rank())
            tensor.normal_()
            before = bps.counters()["pushed_wire_bytes"]
            bps.barrier()
            start, cpu_start = time.perf_counter(), time.process_time()
            for _ in range(inner):
                bps.push_pull_inplace(tensor, name=name, compression_params=params)
            took = torch.tensor((time.perf_counter() - start) / inner, dtype=torch.float64)
            cpu_took = (time.process_time() - cpu_start) / inner
            wire[name] = (bps.counters()["pushed_wire_bytes"] - before) // inner
            table = torch.zeros(bps.size(), dtype=torch.float64)
            table[bps.rank()] = took
            slowest = float(bps.push_pull(table, average=False, name="times").max())
            if repeat > 0:
                samples[name].append(slowest)
                cpu[name].append(cpu_took)
    if bps.rank() == 0:
        Path(path).write_text(json.dumps({"samples_s": samples, "worker_cpu_s": cpu, "wire_bytes": wire}))
    bps.barrier()


class Hosts:
    """Network namespaces around a switch, each with one shaped link."""

    def __init__(self, names: list[str], rate: str) -> None:
        self.tag = f"bpsl{secrets.token_hex(2)}"
        self.names = names
        self._made: list[str] = []
        self._namespace("hub")
        self._ip("link add switch type bridge", "hub")
        self._ip("link set switch up", "hub")
        for name in names:
            self._namespace(name)
            self._ip(f"link add eth0 type veth peer name {name} netns {self.tag}-hub", name)
            self._ip(f"address add {self.address(name)}/24 dev eth0", name)
            for device, where in (("eth0", name), (name, "hub")):
                self._ip(f"link set {device} up", where)
                # A burst of a quarter of a megabyte: what one send of ours is; the queue holds 50 ms.
                self._run(f"tc qdisc add dev {device} root tbf rate {rate} burst 256kb latency 50ms", where)
            self._ip("link set lo up", name)
            self._ip(f"link set {name} master switch", "hub")

    def address(self, name: str) -> str:
        return f"10.231.77.{1 + self.names.index(name)}"

    def inside(self, name: str) -> list[str]:
        """The words in front of a command that run it on that host."""
        return ["ip", "netns", "exec", f"{self.tag}-{name}"]

    def _namespace(self, name: str) -> None:
        subprocess.run(["ip", "netns", "add", f"{self.tag}-{name}"], check=True)
        self._made.append(f"{self.tag}-{name}")

    def _ip(self, words: str, name: str) -> None:
        self._run(f"ip {words}", name)

    def _run(self, words: str, name: str) -> None:
        subprocess.run([*self.inside(name), *words.split()], check=True)

    def close(self) -> None:
        for name in self._made:  # links go with them
            subprocess.run(["ip", "netns", "del", name], check=False)


@contextlib.contextmanager
def _hosts(names: list[str], rate: str | None) -> Iterator[Hosts | None]:
    if rate is None:
        yield None
        return
    hosts = Hosts(names, rate)
    try:
        yield hosts
    finally:
        hosts.close()


def _port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run one job, and give what rank 0 has written."""
    names = ["server", *(f"worker{i}" for i in range(args.workers))]
    path = args.output / "compress_links.part.json"
    args.output.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    with _hosts(names, args.rate) as hosts:
        env = {
            **os.environ,
            "DMLC_PS_ROOT_URI": "127.0.0.1" if hosts is None else hosts.address("server"),
            "DMLC_PS_ROOT_PORT": _port() if hosts is None else "9000",
            "DMLC_NUM_WORKER": str(args.workers),
            "DMLC_NUM_SERVER": "1",
            "BYTEPS_JOB_ID": f"links-{secrets.token_hex(4)}",
            "BYTEPS_JOB_SECRET": secrets.token_hex(16),
            "BYTEPS_ENABLE_IPC": "0",
            "OMP_NUM_THREADS": "1",
        }

        def start(role: str, host: str, command: list[str], **more: str) -> None:
            inside = [] if hosts is None else hosts.inside(host)
            place = {} if hosts is None else {"DMLC_NODE_HOST": hosts.address(host)}
            processes.append(
                subprocess.Popen([*inside, *command], env={**env, "DMLC_ROLE": role, **place, **more})
            )

        try:
            start("scheduler", "server", [sys.executable, "-m", "byteps.scheduler"])
            start("server", "server", [sys.executable, "-m", "byteps.server"])
            run = [sys.executable, __file__, "--worker", str(path)]
            run += ["--mbytes", str(args.mbytes), "--repeats", str(args.repeats), "--inner", str(args.inner)]
            for i in range(args.workers):
                start("worker", f"worker{i}", run, DMLC_WORKER_ID=str(i))
            deadline = time.monotonic() + args.deadline
            for process in reversed(processes):
                if process.wait(max(1.0, deadline - time.monotonic())) != 0:
                    raise SystemExit("a process of the job failed; its last lines are above")
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    found: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", help="of each link, as tc writes it, such as 1gbit; without it: loopback")
    parser.add_argument("--mbytes", type=int, default=64, help="of the tensor (%(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--inner", type=int, default=2, help="push_pulls of one sample (%(default)s)")
    parser.add_argument("--deadline", type=float, default=300.0, metavar="S")
    parser.add_argument("--output", type=Path, default=Path("bench-results"), metavar="DIR")
    parser.add_argument("--check", action="store_true", help="end with status 1 when a goal is not reached")
    parser.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    nbytes = args.mbytes << 20
    if args.worker:
        worker(nbytes, args.repeats, args.inner, args.worker)
        return 0
    if args.rate and os.geteuid() != 0:
        parser.error("--rate makes network namespaces: run it as root")
    found = measure(args)
    medians = {name: statistics.median(samples) for name, samples in found["samples_s"].items()}
    reached = True
    where = f"links of {args.rate}" if args.rate else "TCP on loopback"
    print(f"{args.mbytes} MB, {args.workers} workers, 1 server, {where}, median of {args.repeats}")
    for name, median in medians.items():
        times = medians["uncompressed"] / median
        goal = GOALS.get(args.rate, {}).get(name)
        verdict = "" if goal is None else f"   goal {goal}: {'reached' if times >= goal else 'NOT reached'}"
        reached = reached and (goal is None or times >= goal)
        part = nbytes / found["wire_bytes"][name]
        cpu = statistics.median(found["worker_cpu_s"][name])
        print(
            f"  {name:22} {median * 1e3:8.1f} ms   {times:6.2f} times   bytes / {part:7.1f}   "
            f"CPU of a worker {cpu * 1e3:6.1f} ms{verdict}"
        )
    result = {"rate": args.rate, "mbytes": args.mbytes, "workers": args.workers, "median_s": medians, **found}
    kind = args.rate or "loopback"
    (args.output / f"compress_links_{kind}.json").write_text(json.dumps(result, indent=1))
    return 1 if args.check and not reached else 0


if __name__ == "__main__":
    sys.exit(main())
