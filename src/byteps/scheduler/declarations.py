"""Tensors that workers declared by name: their ids, their places, and who disagrees. No I/O.

A worker that uses a name with another dtype, shape or codec declares it anew with the next *generation*;
ranks agree on (name, generation). The first declaration decides; one that differs is a conflict, which goes
to every worker that declared that tensor, now or later, so that none waits for a sum that cannot come.
A generation is retired when every worker has declared a newer one of that name, or one of every machine where
it pushes for all of them (``direct``): a worker does so only when its operations on the old one are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from byteps import dtypes
from byteps.control.messages import Conflict, Member, Placed, TensorSpec
from byteps.scheduler.placement import Placement, cut

MAX_TENSOR_BYTES = 1 << 40
MAX_PARTITIONS = 1 << 20


@dataclass
class Tensor:
    """One declared tensor."""

    tensor_id: int
    spec: TensorSpec
    first: int  # the rank whose declaration decided
    sizes: list[int]
    places: list[tuple[int, int]]
    ranks: set[int]
    conflict: str = ""


@dataclass
class Outcome:
    """What a declaration leads to: an answer to its sender, and messages to others."""

    placed: list[Placed] = field(default_factory=list)
    conflicts: list[tuple[int, Conflict]] = field(default_factory=list)  # (rank, message)
    retired: list[int] = field(default_factory=list)


class Declarations:
    """All declarations of one epoch."""

    def __init__(self, workers: Sequence[Member], placement: Placement, partition_bytes: int) -> None:
        self._workers = workers
        self._machines = len({worker.worker_id for worker in workers})
        self._placement = placement
        self._partition_bytes = partition_bytes
        self._live: dict[str, dict[int, Tensor]] = {}  # name -> generation -> tensor
        self._newest: dict[str, dict[int, int]] = {}  # name -> rank -> newest generation it declared
        self._next_id = 0

    def declare(self, rank: int, specs: Sequence[TensorSpec]) -> Outcome:
        """Take a batch of declarations of one worker; the same one twice gets the same answer."""
        outcome = Outcome()
        for spec in specs:
            outcome.placed.append(self._declare(rank, spec, outcome))
            outcome.retired += self._retire(spec)
        return outcome

    def _declare(self, rank: int, spec: TensorSpec, outcome: Outcome) -> Placed:
        newest = self._newest.setdefault(spec.name, {})
        tensor = self._live.get(spec.name, {}).get(spec.generation)
        if tensor is None:
            if newest and spec.generation < max(newest.values()) and rank in newest:
                return self._refused(spec, rank, f"generation {spec.generation} of it was retired")
            error = self._invalid(spec)
            if error:
                return self._refused(spec, rank, error)
            tensor = self._first(rank, spec)
        tensor.ranks.add(rank)
        newest[rank] = max(spec.generation, newest.get(rank, 0))
        if spec != tensor.spec and not tensor.conflict:
            tensor.conflict = self._disagreement(tensor, rank, spec)
            message = Conflict(spec.name, spec.generation, tensor.conflict, tensor.tensor_id)
            outcome.conflicts += [(other, message) for other in sorted(tensor.ranks)]
        elif tensor.conflict:
            outcome.conflicts.append(
                (rank, Conflict(spec.name, spec.generation, tensor.conflict, tensor.tensor_id))
            )
        return Placed(tensor.tensor_id, tensor.places, tensor.conflict)

    def _first(self, rank: int, spec: TensorSpec) -> Tensor:
        # Without servers there is nothing to place: the ranks of the one machine keep it among themselves.
        nbytes = dtypes.nbytes(spec.dtype, tuple(spec.shape)) if self._placement.loads else 0
        sizes = cut(nbytes, self._partition_bytes)
        places = self._placement.place(self._next_id, sizes)
        tensor = Tensor(self._next_id, spec, rank, sizes, places, set())
        self._next_id += 1
        self._live.setdefault(spec.name, {})[spec.generation] = tensor
        return tensor

    def _retire(self, spec: TensorSpec) -> list[int]:
        newest = self._newest[spec.name]
        if len(newest) < (self._machines if spec.direct else len(self._workers)):
            return []
        oldest = min(newest.values())
        live = self._live.get(spec.name, {})
        gone = [live.pop(generation) for generation in sorted(live) if generation < oldest]
        for tensor in gone:
            self._placement.remove(tensor.places, tensor.sizes)
        return [tensor.tensor_id for tensor in gone]

    def _invalid(self, spec: TensorSpec) -> str:
        if not 0 <= spec.dtype < len(dtypes.NAMES):
            return f"dtype number {spec.dtype} is unknown; valid are {dtypes.VALID}"
        if not self._placement.loads and self._machines > 1:
            return "the job has no servers; set DMLC_NUM_SERVER to at least 1"
        nbytes = dtypes.nbytes(spec.dtype, tuple(spec.shape))
        if nbytes > MAX_TENSOR_BYTES:
            return f"it has {nbytes} bytes, at most {MAX_TENSOR_BYTES} are allowed; split it"
        if nbytes > MAX_PARTITIONS * self._partition_bytes:
            return f"it has more than {MAX_PARTITIONS} partitions; raise BYTEPS_PARTITION_BYTES"
        return ""

    def _refused(self, spec: TensorSpec, rank: int, why: str) -> Placed:
        return Placed(-1, [], f"tensor {spec.name!r} of {self._workers[rank]} was refused: {why}")

    def _disagreement(self, tensor: Tensor, rank: int, spec: TensorSpec) -> str:
        return (
            f"ranks disagree on tensor {spec.name!r}: {self._workers[tensor.first]} declared "
            f"{show(tensor.spec)}, {self._workers[rank]} declared {show(spec)}; one name needs the same "
            "dtype, shape and codec on all ranks: check that all run the same code and model"
        )


def show(spec: TensorSpec) -> str:
    """A declaration as people read it.

    >>> show(TensorSpec("x", 0, 0, [2, 3]))
    'float32 [2, 3]'
    """
    dtype = dtypes.NAMES[spec.dtype] if 0 <= spec.dtype < len(dtypes.NAMES) else f"dtype {spec.dtype}"
    codec = f" with codec {spec.codec!r}" if spec.codec else ""
    return f"{dtype} {list(spec.shape)}{codec}{' without its machine' if spec.direct else ''}"
