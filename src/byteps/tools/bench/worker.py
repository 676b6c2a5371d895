"""A worker of a benchmark: holds every peer ready at once and runs one of them when told.

A measurement fills the tensors with exactly summable numbers, runs one round that is not timed (it also
aligns the workers), then the timed rounds, then checks the sums. Peers of one kind of memory share the
tensors, so that none has luckier pages. Times are of the machine's monotonic clock, which all processes
share.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import torch

from byteps.tools.bench import exact
from byteps.tools.bench.member import Message, serve
from byteps.tools.bench.peers import Arena, Byteps, Gloo, MemoryBound, Peer, SocketBound


class _Worker:
    def __init__(self) -> None:
        self.rank = 0
        self.workers = 1
        self.peers: dict[str, Peer] = {}
        self.tensors: dict[tuple[str, int], torch.Tensor] = {}  # by kind of memory and bytes
        self.sets: dict[tuple[str, str], dict[str, torch.Tensor]] = {}  # by kind of memory and name

    def setup(self, request: Message) -> Message:
        torch.set_num_threads(1)
        self.rank, self.workers = request["rank"], request["workers"]
        if "byteps" in request["peers"]:
            self.peers["byteps"] = Byteps()
        if "arena" in request["peers"]:
            self.peers["arena"] = Arena()
        if "gloo" in request["peers"]:
            self.peers["gloo"] = Gloo(request["store"], self.rank, self.workers)
        if "bound" in request["peers"] and "shared" in request:
            self.peers["bound"] = MemoryBound(**request["shared"], rank=self.rank, workers=self.workers)
        elif "bound" in request["peers"]:
            self.peers["bound"] = SocketBound(request["fds"])
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection in the middle of a sample would be charged to one peer
        return {}

    def measure(self, request: Message) -> Message:
        """One sample of one peer on one tensor."""
        nbytes, inner = request["nbytes"], request["inner"]
        peer = self.peers[request["peer"]]
        key = (peer.memory, nbytes)
        if key not in self.tensors:
            self.tensors[key] = peer.empty([nbytes // 4])
        tensor = self.tensors[key]
        exact.fill(tensor.numpy(), self.rank)
        peer.rounds(tensor, 1, request)
        times = _timed(lambda: peer.rounds(tensor, inner, request))
        exact.check(tensor.numpy(), self.workers, rounds=1 + inner)
        return times

    def measure_many(self, request: Message) -> Message:
        """One sample of one peer on a set of tensors, all started before the first one is waited for."""
        peer, inner = self.peers[request["peer"]], request["inner"]
        tensors = self._set(peer, request)
        peer.prepare(tensors)
        peer.many(tensors)

        def rounds() -> None:
            for _ in range(inner):
                peer.many(tensors)

        times = _timed(rounds)
        self._check(tensors, rounds=1 + inner)
        return times

    def repeat_many(self, request: Message) -> Message:
        """Rounds of a set of tensors in pieces that stay finite: what server memory is watched over."""
        peer, left = self.peers[request["peer"]], request["rounds"]
        while left > 0:
            rounds = min(left, exact.rounds_that_fit(self.workers))
            tensors = self._set(peer, request)
            peer.prepare(tensors)
            for _ in range(rounds):
                peer.many(tensors)
            self._check(tensors, rounds)
            left -= rounds
        return {}

    def _set(self, peer: Peer, request: Message) -> dict[str, torch.Tensor]:
        key = (peer.memory, request["set"])
        if key not in self.sets:
            self.sets[key] = {name: peer.empty(shape) for name, shape in request["tensors"].items()}
        for tensor in self.sets[key].values():
            exact.fill(tensor.view(-1).numpy(), self.rank)
        return self.sets[key]

    def _check(self, tensors: dict[str, torch.Tensor], rounds: int) -> None:
        for tensor in tensors.values():
            exact.check(tensor.view(-1).numpy(), self.workers, rounds)

    def leave(self) -> None:
        for peer in self.peers.values():
            peer.leave()


def _timed(run: Callable[[], None]) -> Message:
    cpu, start = time.process_time_ns(), time.monotonic_ns()
    run()
    end = time.monotonic_ns()
    return {"start_ns": start, "end_ns": end, "cpu_ns": time.process_time_ns() - cpu}


def main() -> None:
    worker = _Worker()
    serve(
        {
            "setup": worker.setup,
            "measure": worker.measure,
            "measure-many": worker.measure_many,
            "repeat-many": worker.repeat_many,
        }
    )
    worker.leave()


if __name__ == "__main__":
    main()
