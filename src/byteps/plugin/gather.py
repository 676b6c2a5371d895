"""Every rank's bytes on all ranks, also where each has another number of them: what allgather is made of.

A server adds, and it hands the bits of one rank to all (a broadcast): so a gather is a broadcast from each
rank, all in flight at once, each into its place in one piece of memory. What a rank has to send goes up once
and comes down once per rank, as it must. How much each has is told first, in one small sum.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from byteps.errors import ConfigError
from byteps.tensor import arrays, dtypes
from byteps.tensor.arrays import Array
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.session import Session

__all__ = ["Joint", "gather", "mark", "same_everywhere", "tell"]

_INT64, _UINT8 = dtypes.NUMBERS["int64"], dtypes.NUMBERS["uint8"]


class Joint(Handle[Any]):
    """Several operations as one; its result is made of theirs, once. Calling it is waiting for it."""

    __slots__ = ("_handles", "_make")

    def __init__(
        self, session: Session, handles: Sequence[Handle[Any]], make: Callable[[list[Any]], Any]
    ) -> None:
        super().__init__(session, None, None, None)
        self._handles: Sequence[Handle[Any]] | None = handles
        self._make = make

    def done(self) -> bool:
        return self._handles is None or all(handle.done() for handle in self._handles)

    def wait(self) -> Any:
        if self._handles is not None:
            self._result = self._make([handle.wait() for handle in self._handles])
            self._handles = None
        return self._result

    __call__ = wait  # what Horovod's sparse_allreduce_async returns is called


def tell(session: Session, name: str, numbers: Sequence[int]) -> list[list[int]]:
    """The numbers of every rank, in rank order; waits until all have come. As many on each rank."""
    table = np.zeros((session.size, len(numbers)), np.int64)
    table[session.rank] = numbers
    declared = session.tensor("gather", f"{name}.sizes", _INT64, table.shape)
    address = arrays.address(table)
    session.push_pull(declared, address, address, False, 1, table, None).wait()
    rows: list[list[int]] = table.tolist()
    return rows


def mark(words: object) -> int:
    """A number that differs where words differ, to be told among others."""
    return zlib.crc32(repr(words).encode())


def same_everywhere(verb: str, name: str, rows: Sequence[Sequence[int]], column: int, what: str) -> None:
    """ConfigError, on all ranks alike, where a number that all must have alike is another somewhere."""
    for rank, row in enumerate(rows):
        if row[column] != rows[0][column]:
            raise ConfigError(
                f"{verb} of {name}: {what} on rank {rank} differs from that on rank 0; only the first "
                "dimension may differ between ranks"
            )


def gather(session: Session, name: str, data: Array, sizes: Sequence[int]) -> Handle[Array]:
    """Begin to gather. ``data`` are this rank's bytes, ``sizes`` how many each rank has, from ``tell``.

    The result is one array of all bytes in rank order. ``data`` must not change before.
    """
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    parts = [out[end - size : end] for end, size in zip(ends.tolist(), sizes, strict=True)]
    parts[session.rank][...] = data
    names = [f"{name}.{rank}" for rank in range(session.size)]
    session.declare(Spec(each, _UINT8, part.shape) for each, part in zip(names, parts, strict=True))
    handles = [
        session.broadcast(session.tensors[each], arrays.address(part), root, 0, out, None)
        for root, (each, part) in enumerate(zip(names, parts, strict=True))
    ]
    return Joint(session, handles, lambda _: out)
