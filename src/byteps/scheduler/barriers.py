"""Barriers of one epoch: the n-th barrier of every worker opens when all have come to it. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from byteps.control.messages import BarrierDone, Member
from byteps.scheduler.value import Value

Answers = list[tuple[int, BarrierDone]]  # (rank, message)


class Barriers(Value):
    """Who waits at which barrier; several threads of one worker may wait at several."""

    def __init__(self, workers: Sequence[Member]) -> None:
        self._workers = workers
        self._waiting: dict[int, deque[int]] = {worker.rank: deque() for worker in workers}
        self._left: Member | None = None

    def arrive(self, rank: int, request: int) -> Answers:
        """A worker has come; answers when it was the last one, or when somebody never will come."""
        self._waiting[rank].append(request)
        if self._left is not None:
            return self._answer_all()
        if all(self._waiting.values()):
            return [(rank, BarrierDone(queue.popleft())) for rank, queue in self._waiting.items()]
        return []

    def depart(self, rank: int) -> Answers:
        """A worker has left the job: no barrier will open any more."""
        self._left = self._left or self._workers[rank]
        self._waiting[rank].clear()
        return self._answer_all()

    def missing(self) -> str:
        """Who is awaited at the oldest barrier; empty when nobody waits."""
        if not any(self._waiting.values()):
            return ""
        absent = [str(self._workers[rank]) for rank, queue in self._waiting.items() if not queue]
        return f"barrier waits for {', '.join(absent)}"

    def waiting(self) -> list[int]:
        """The ranks that wait."""
        return [rank for rank, queue in self._waiting.items() if queue]

    def _answer_all(self) -> Answers:
        answers = [
            (rank, BarrierDone(request, self._left))
            for rank, queue in self._waiting.items()
            for request in queue
        ]
        for queue in self._waiting.values():
            queue.clear()
        return answers
