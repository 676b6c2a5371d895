"""A whole job of ``byteps.torch.device`` in one process: a thread for each rank, and servers of dictionaries.

Sessions and servers are stand-ins; stores, process groups (Gloo) and the pipeline are the real ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from byteps.torch import device
from byteps.torch.ops import NUMBERS
from byteps.worker.handle import Handle

TIMEOUT_S = 60.0


class Servers:
    """Adds what comes under one name and round, and gives the sum to all when everybody has contributed."""

    def __init__(self, machines: int, ranks: int) -> None:
        self.bytes_pushed = 0
        self._contributors = {True: machines, False: ranks}  # by ``direct``
        self._size = ranks
        self._sums: dict[tuple[str, int], tuple[list[torch.Tensor], list[Future[torch.Tensor]]]] = {}
        self._lock = threading.Lock()

    def push(self, spec: Any, number: int, values: torch.Tensor, average: bool) -> Future[torch.Tensor]:
        result: Future[torch.Tensor] = Future()
        with self._lock:
            values_so_far, waiting = self._sums.setdefault((spec.name, number), ([], []))
            values_so_far.append(values.clone())
            waiting.append(result)
            if spec.direct:
                self.bytes_pushed += values.numel() * values.element_size()
            if len(waiting) == self._contributors[spec.direct]:
                total = torch.stack(values_so_far).sum(0).to(values.dtype)
                total = total // self._size if average else total
                for each in waiting:
                    each.set_result(total)
        return result


@dataclass(eq=False)
class Session:
    """What ``byteps.torch.device`` uses of a session."""

    servers: Servers
    rank: int
    size: int
    local_rank: int
    local_size: int
    config: Any
    made: list[Any] = field(default_factory=list)
    tensors: dict[str, Any] = field(default_factory=dict)

    def follower(self, kind: type, make: Callable[[], Any]) -> Any:
        if not self.made:
            self.made.append(make())
        return self.made[0]

    def tensor(
        self,
        verb: str,
        name: str,
        dtype: int,
        shape: Any,
        codec: str = "",
        direct: bool = False,
        generation: int | None = None,
    ) -> Any:
        spec = SimpleNamespace(name=name, dtype=dtype, shape=tuple(shape), codec=codec, direct=direct)
        spec.native, spec.generation, spec.rounds, spec.track = object(), 0, 0, lambda operation: None
        spec.is_rated, spec.lr, spec.mu, spec.conflict = False, None, None, ""
        return self.tensors.setdefault(name, spec)

    def push_pull(
        self, spec: Any, src: int, dst: int, average: bool, priority: int, keep: torch.Tensor, result: Any
    ) -> Any:
        spec.rounds += 1
        future = self.servers.push(spec, spec.rounds, keep, average)

        def wait() -> Any:
            keep.copy_(future.result(TIMEOUT_S))
            return result

        return SimpleNamespace(wait=wait)

    def failure(self, error: Exception) -> Exception:
        return error

    def adopt(self, native: Any, keep: object) -> None:
        return

    def start(self, name: str, values: torch.Tensor, average: bool = False) -> Handle[torch.Tensor]:
        spec = self.tensor("push_pull", name, NUMBERS[values.dtype], values.shape)
        return device.push_pull(self, spec, values, average, 0, values, None, "gloo")  # type: ignore[arg-type]


def run(
    local_sizes: Sequence[int], body: Callable[[Session], Any], *, serverless: bool = False
) -> tuple[list[Any], Servers]:
    """Run ``body`` as every rank of a job with these machines; the results by rank, and the servers."""
    size = sum(local_sizes)
    servers = Servers(len(local_sizes), size)
    sessions = []
    for machine, local_size in enumerate(local_sizes):
        config = SimpleNamespace(
            op_timeout_s=TIMEOUT_S, worker_id=machine, num_worker=len(local_sizes), serverless=serverless
        )
        for local_rank in range(local_size):
            sessions.append(Session(servers, len(sessions), size, local_rank, local_size, config))
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(body, session) for session in sessions]
        results = [future.result(TIMEOUT_S) for future in futures]
    for session in sessions:
        for pipeline in session.made:
            pipeline.close()
    return results, servers
