"""The whole way of a tensor in NumPy: ranks with momentum, machines with error feedback, and the server.

What a job must compute, bit for bit, for every codec: the oracle of tests over real processes.

    rank       m = mu * m + g;  g = g + mu * m
    machine    p = a * (sum of its ranks) + c * e;  send C(p);  e = p - decode(C(p));  a: 1 / ranks or 1
    server     p = sum of decoded + c * e;  send C(p) to all;  e = p - decode(C(p))

The sum is made in the order of the machines. randomk draws the same positions everywhere, so that the server
sends the sum itself, with fp16 rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byteps.compress.params import CodecSpec
from byteps.compress.reference import fp16
from byteps.compress.reference.arrays import Floats
from byteps.compress.reference.codecs import Codec, make
from byteps.compress.reference.error_feedback import encode_with_feedback, factor
from byteps.compress.reference.momentum import nesterov
from byteps.compress.reference.random import SERVER, stream_key

__all__ = ["Pipeline"]


class _End:
    """One sender's codec and error of one partition."""

    def __init__(self, spec: CodecSpec, n: int, seed: int, name: str, partition: int, sender: int) -> None:
        key = stream_key(name, partition, SERVER if spec.compressor == "randomk" else sender)
        self.codec: Codec = make(spec, n, seed, key)
        self.ef = spec.ef
        self.error = np.zeros(n, np.float32)

    def send(self, x: Floats, c: float, step: int) -> Floats:
        """What arrives at the other end."""
        if self.ef is None:
            payload = self.codec.encode(x, step)
        else:
            payload, self.error = encode_with_feedback(self.codec, x, c, self.error, step)
        return self.codec.decode(payload, step)


class Pipeline:
    """One tensor of ``n`` elements of a job. ``machines`` has the ranks of each."""

    def __init__(
        self, spec: CodecSpec, name: str, n: int, machines: Sequence[Sequence[int]], partition: int, seed: int
    ) -> None:
        self.spec = spec
        self.machines = machines
        self.ranks = sum(map(len, machines))
        self.parts = [slice(begin, min(n, begin + partition)) for begin in range(0, n, partition)]
        sizes = [part.stop - part.start for part in self.parts] if spec.codec else []
        self.momenta = [np.zeros(n, np.float32) for _ in range(self.ranks)]
        self.workers = [
            [_End(spec, size, seed, name, i, sender + 1) for i, size in enumerate(sizes)]
            for sender in range(len(machines))
        ]
        self.servers = [_End(spec, size, seed, name, i, SERVER) for i, size in enumerate(sizes)]
        self.step = 0
        self.previous_lr = np.float32(0)

    def push_pull(
        self, gradients: Sequence[Floats], *, average: bool = True, lr: float = 0.0, mu: float = 0.9
    ) -> Floats:
        """The result that every rank gets for these gradients."""
        now = np.float32(lr)  # as it travels
        c = factor(self.spec.ef or "vanilla", float(self.previous_lr), float(now))
        self.previous_lr = now
        if self.spec.momentum:
            gradients = [self._with_momentum(rank, g, mu) for rank, g in enumerate(gradients)]
        if self.spec.codec is None:
            return self._plain(gradients, average)
        scale = np.float32(1) / np.float32(self.ranks) if average else np.float32(1)
        out = np.empty_like(gradients[0])
        with np.errstate(all="ignore"):
            for index, part in enumerate(self.parts):
                total = None
                for ends, ranks in zip(self.workers, self.machines, strict=True):
                    machine = _sum([gradients[rank][part] for rank in ranks])
                    arrived = ends[index].send(scale * machine, c, self.step)
                    total = arrived if total is None else total + arrived
                assert total is not None
                if self.spec.compressor != "randomk":
                    total = self.servers[index].send(total, c, self.step)
                elif self.spec.fp16:
                    total = fp16.decode(fp16.encode(total), total.size)
                out[part] = total
        self.step += 1
        return out

    def _plain(self, gradients: Sequence[Floats], average: bool) -> Floats:
        total = _sum([_sum([gradients[rank] for rank in ranks]) for ranks in self.machines])
        if average:
            np.divide(total, np.float32(self.ranks), out=total)
        return total

    def _with_momentum(self, rank: int, g: Floats, mu: float) -> Floats:
        self.momenta[rank], g = nesterov(self.momenta[rank], g, mu)
        return g


def _sum(terms: Sequence[Floats]) -> Floats:
    total: Floats = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total
