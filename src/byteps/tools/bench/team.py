"""The processes of one setting of a benchmark, with every peer ready, and what all questions ask of them."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from byteps.tools.bench.machine import cpu_seconds
from byteps.tools.bench.members import Members, Message
from byteps.tools.bench.series import Sample

__all__ = ["STARTUP_TIMEOUT_S", "WORKER_MODULE", "Team", "numbered"]

AnyTeam = TypeVar("AnyTeam", bound="Team")

STARTUP_TIMEOUT_S = 90.0
STEP_TIMEOUT_S = 120.0
LEAVE_TIMEOUT_S = 30.0
WORKER_MODULE = "byteps.tools.bench.worker"


def numbered(name: str, sizes: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Flat tensors of these sizes in bytes, named by their number."""
    return {f"{name}.{index}": (nbytes // 4,) for index, nbytes in enumerate(sizes)}


class Team(ABC):
    """Workers, and what serves them; as a context manager it leaves nothing behind."""

    def __init__(self, workers: int, peers: Sequence[str]) -> None:
        self.workers = workers
        # Among one worker Gloo has nothing to do, and a number for that would mislead.
        self.peers = [peer for peer in peers if peer != "gloo" or workers > 1]
        self.worker_names = [f"worker {rank}" for rank in range(workers)]
        self.folder = Path(tempfile.mkdtemp(prefix="bps-bench-"))
        self.members = Members(self.folder)

    def __enter__(self: AnyTeam) -> AnyTeam:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.members.__exit__(kind, error, trace)
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _start(self) -> None:
        """Start every process and wait until all of them are set up."""

    def setup_request(self, rank: int) -> Message:
        """What every worker needs to know at first."""
        return {
            "do": "setup",
            "rank": rank,
            "workers": self.workers,
            "peers": self.peers,
            "store": str(self.folder / "gloo"),
        }

    def server_pids(self, peer: str) -> list[int]:
        """The processes that sum for a peer besides its workers."""
        return []

    def measure_many(
        self, peer: str, name: str, tensors: Mapping[str, Sequence[int]], inner: int = 1
    ) -> Sample:
        """One sample of a set of tensors: rounds of all of them, after one that is not timed."""
        request = {"do": "measure-many", "peer": peer, "set": name, "tensors": tensors, "inner": inner}
        return self.sample(peer, request, {}, inner)

    def sample(self, peer: str, request: Message, others: Mapping[str, Message], inner: int) -> Sample:
        """Have all workers do ``request``, and other members what they are told; one sample of it."""
        pids = self.server_pids(peer)
        before = sum(map(cpu_seconds, pids))
        answers = self.members.ask({**others, **dict.fromkeys(self.worker_names, request)}, STEP_TIMEOUT_S)
        on_servers = (sum(map(cpu_seconds, pids)) - before) / (1 + inner)
        workers = [answers[name] for name in self.worker_names]
        span_ns = max(each["end_ns"] for each in workers) - min(each["start_ns"] for each in workers)
        on_workers = sum(each["cpu_ns"] for each in workers) / 1e9 / inner
        return Sample(span_ns / 1e9 / inner, on_workers + on_servers, on_servers)

    def talking(self) -> list[str]:
        """The members that wait to be told what to do next."""
        return self.worker_names

    def leave(self) -> None:
        """End in order: workers leave, servers and scheduler follow. Raises when one does not."""
        self.members.leave({name: {"do": "leave"} for name in self.talking()}, LEAVE_TIMEOUT_S)
