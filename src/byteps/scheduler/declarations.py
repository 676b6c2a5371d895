"""Tensors that workers declared by name: their ids, their places, and who disagrees. No I/O.

A worker that uses a name with another dtype, shape or codec declares it anew with the next *generation*;
ranks agree on (name, generation). The first declaration decides; one that differs is a conflict, which goes
to every worker that declared that tensor, now or later, so that none waits for a sum that cannot come.
A generation is retired when every worker has declared a newer one of that name, or one of every machine where
it pushes for all of them (``direct``): a worker does so only when its operations on the old one are done.

A declaration costs the scheduler's memory and time before a byte of the tensor exists anywhere. So names and
places are counted, and what one message may ask for is bounded (``ProtocolError``: workers keep to it).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from byteps import _core
from byteps.control.messages import MAX_BATCH_PARTITIONS, Assigned, Conflict, Member, Placed, TensorSpec
from byteps.errors import ProtocolError
from byteps.scheduler.names import Partial
from byteps.scheduler.placement import Placement
from byteps.scheduler.value import Value
from byteps.tensor import dtypes
from byteps.tensor.partition import MAX_PARTITIONS, aligned
from byteps.tensor.runs import Runs, stored
from byteps.tensor.tuning import USUAL_BYTES

MAX_NAMES = 1 << 18
MAX_NAME_CHARACTERS = 1 << 26  # of all names together
MAX_PLACES = 1 << 22  # that do not repeat, of all tensors
MAX_PARTIALS = 4_096  # names that not all have declared, to be looked at in one go


@dataclass
class Tensor:
    """One declared tensor."""

    tensor_id: int
    spec: TensorSpec
    first: int  # the rank whose declaration decided
    nbytes: int  # that were placed: 0 where there are no servers
    partition_bytes: int
    runs: Runs
    ranks: set[int]
    conflict: str = ""
    lack: bool = False  # the conflict is with a member that has no memory for it


Told = list[tuple[int, Conflict]]  # (rank, message)


@dataclass
class Outcome:
    """What a declaration leads to: an answer to its sender, and messages to others."""

    placed: list[Placed] = field(default_factory=list)
    conflicts: Told = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    new: list[Assigned] = field(default_factory=list)  # servers must know them first


class Declarations(Value):
    """All declarations of one epoch. ``partition_bytes`` 0: what is best for each tensor."""

    def __init__(self, workers: Sequence[Member], placement: Placement, partition_bytes: int) -> None:
        self._workers = workers
        self._machines = len({worker.worker_id for worker in workers})
        self._placement = placement
        self._partition_bytes = partition_bytes
        self._places = 0  # stored
        self._characters = 0  # of names
        self._live: dict[str, dict[int, Tensor]] = {}  # name -> generation -> tensor
        self._newest: dict[str, dict[int, int]] = {}  # name -> rank -> newest generation it declared
        self._by_id: dict[int, Tensor] = {}
        self._since: dict[int, tuple[Tensor, float]] = {}  # id -> what not all have declared, since when
        self._next_id = 0
        self._workers_left = False

    def declare(self, rank: int, specs: Sequence[TensorSpec], now: float = 0.0) -> Outcome:
        """Take a batch of declarations of one worker; the same one twice gets the same answer."""
        outcome = Outcome()
        self._check_batch(specs)
        for spec in specs:
            outcome.placed.append(self._declare(rank, spec, outcome, now))
            outcome.retired += self._retire(spec)
        return outcome

    def _check_batch(self, specs: Sequence[TensorSpec]) -> None:
        partitions = sum(self._partitions(spec) for spec in specs)
        if len(specs) > 1 and partitions > MAX_BATCH_PARTITIONS:
            raise ProtocolError(
                f"a declaration of {len(specs)} tensors with {partitions} partitions, "
                f"at most {MAX_BATCH_PARTITIONS} fit into a message"
            )

    def _partitions(self, spec: TensorSpec) -> int:
        valid = self._placement.loads and 0 <= spec.dtype < len(dtypes.NAMES)
        return (
            -(-dtypes.nbytes(spec.dtype, tuple(spec.shape)) // self._partition_bytes_of(spec)) if valid else 0
        )

    def partials(self) -> list[Partial]:
        """What some ranks have declared and others have not, in the order of first declaration.

        Not all, if they are many: while one rank is ahead with a hundred thousand names, going through them
        would take a second, again and again, and nobody reads more than a few.
        """
        return [
            Partial(spec.name, frozenset(self._speaking_for(tensor)), since, anew=spec.generation > 0)
            for tensor, since in itertools.islice(self._since.values(), MAX_PARTIALS)
            for spec in (tensor.spec,)
        ]

    def partial_since(self) -> tuple[float, float] | None:
        """When the oldest and the newest of them were declared first; None when all ranks agree."""
        if not self._since:
            return None
        oldest, newest = next(iter(self._since.values())), next(reversed(self._since.values()))
        return oldest[1], newest[1]

    def depart(self) -> None:
        """A worker has left: what it has not declared, it never will, and its peers are told by name."""
        self._since.clear()
        self._workers_left = True

    def _note_partial(self, tensor: Tensor, now: float) -> None:
        if tensor.conflict or self._workers_left or len(self._speaking_for(tensor)) == len(self._workers):
            self._since.pop(tensor.tensor_id, None)
        else:
            self._since.setdefault(tensor.tensor_id, (tensor, now))

    def _speaking_for(self, tensor: Tensor) -> set[int]:
        """The ranks that need not declare it any more; one of a machine is enough where it pushes for all."""
        if not tensor.spec.direct:
            return tensor.ranks
        machines = {self._workers[rank].worker_id for rank in tensor.ranks}
        return {worker.rank for worker in self._workers if worker.worker_id in machines}

    def _declare(self, rank: int, spec: TensorSpec, outcome: Outcome, now: float) -> Placed:
        newest = self._newest.get(spec.name, {})
        tensor = self._live.get(spec.name, {}).get(spec.generation)
        if tensor is None:
            if newest and spec.generation < max(newest.values()) and rank in newest:
                return self._refused(spec, rank, f"generation {spec.generation} of it was retired")
            error = self._invalid(spec)
            if error:
                return self._refused(spec, rank, error)
            tensor = self._first(rank, spec)
            outcome.new += self._assigned(tensor)
            newest = self._newest.setdefault(spec.name, {})
        tensor.ranks.add(rank)
        newest[rank] = max(spec.generation, newest.get(rank, 0))
        if spec != tensor.spec and not tensor.conflict:
            tensor.conflict = self._disagreement(tensor, rank, spec)
            outcome.conflicts += self._tell_all(tensor)
        elif tensor.conflict:
            outcome.conflicts.append((rank, _conflict(tensor)))
        self._note_partial(tensor, now)
        return _placed(tensor)

    def refuse(self, tensor_id: int, why: str, lack: bool) -> str:
        """A member cannot hold a tensor. Of a server: nobody uses it yet, and is answered after this.

        Returns the answer to all of them; nothing if they have another one already.
        """
        tensor = self._by_id.get(tensor_id)
        if tensor is None or tensor.conflict:
            return ""
        tensor.conflict = f"tensor {tensor.spec.name!r}, {show(tensor.spec)}: {why}"
        tensor.lack = lack
        self._since.pop(tensor_id, None)
        return tensor.conflict

    def lack(self, rank: int, tensor_id: int, why: str) -> Told:
        """A worker has no memory for what it has declared: the others would wait for it in vain.

        Returns what those who have declared it are told; who comes later gets it as an answer.
        """
        tensor = self._by_id.get(tensor_id)
        if tensor is None or rank not in tensor.ranks:
            return []
        told = self.refuse(tensor_id, f"{self._workers[rank]} cannot hold it: {why}", True)
        return self._tell_all(tensor) if told else []

    def _tell_all(self, tensor: Tensor) -> Told:
        return [(rank, _conflict(tensor)) for rank in sorted(tensor.ranks)]

    def settled(self, placed: Sequence[Placed]) -> list[Placed]:
        """Answers as they are now, when servers have had their say."""
        tensors = ((one, self._by_id.get(one.tensor_id)) for one in placed)
        return [one if tensor is None else _placed(tensor) for one, tensor in tensors]

    def _assigned(self, tensor: Tensor) -> list[Assigned]:
        if not tensor.nbytes:
            return []
        spec = tensor.spec
        what = (tensor.tensor_id, spec.name, spec.dtype, tensor.nbytes, spec.codec)
        return [Assigned(*what, tensor.partition_bytes, tensor.runs)]

    def _first(self, rank: int, spec: TensorSpec) -> Tensor:
        # Without servers there is nothing to place: the ranks of the one machine keep it among themselves.
        nbytes = dtypes.nbytes(spec.dtype, tuple(spec.shape)) if self._placement.loads else 0
        partition_bytes = self._partition_bytes_of(spec)
        runs = self._placement.place(self._next_id, nbytes, partition_bytes)
        tensor = Tensor(self._next_id, spec, rank, nbytes, partition_bytes, runs, set())
        self._next_id += 1
        self._places += stored(runs)
        self._characters += 0 if spec.name in self._newest else len(spec.name)
        self._live.setdefault(spec.name, {})[spec.generation] = tensor
        self._by_id[tensor.tensor_id] = tensor
        return tensor

    def _partition_bytes_of(self, spec: TensorSpec) -> int:
        if self._partition_bytes:
            return aligned(self._partition_bytes)
        nbytes = dtypes.nbytes(spec.dtype, tuple(spec.shape))
        return USUAL_BYTES if spec.codec else self._placement.partition_bytes(nbytes)

    def _retire(self, spec: TensorSpec) -> list[int]:
        newest = self._newest.get(spec.name, {})
        if len(newest) < (self._machines if spec.direct else len(self._workers)):
            return []
        oldest = min(newest.values())
        live = self._live.get(spec.name, {})
        gone = [live.pop(generation) for generation in sorted(live) if generation < oldest]
        for tensor in gone:
            del self._by_id[tensor.tensor_id]
            self._placement.remove(tensor.runs, tensor.nbytes, tensor.partition_bytes)
            self._places -= stored(tensor.runs)
            self._since.pop(tensor.tensor_id, None)
        return [tensor.tensor_id for tensor in gone]

    def _invalid(self, spec: TensorSpec) -> str:
        if not 0 <= spec.dtype < len(dtypes.NAMES):
            return f"dtype number {spec.dtype} is unknown; valid are {dtypes.VALID}"
        if not self._placement.loads and self._machines > 1:
            return "the job has no servers; set DMLC_NUM_SERVER to at least 1"
        if not (spec.name and spec.name.isprintable()):
            return "its name is not printable text"
        nbytes = dtypes.nbytes(spec.dtype, tuple(spec.shape))
        if nbytes > _core.MAX_TENSOR_BYTES:
            return f"it has {nbytes} bytes, at most {_core.MAX_TENSOR_BYTES} are allowed; split it"
        if nbytes > MAX_PARTITIONS * self._partition_bytes_of(spec):
            return f"it has more than {MAX_PARTITIONS} partitions; raise BYTEPS_PARTITION_BYTES"
        return self._too_much(spec)

    def _too_much(self, spec: TensorSpec) -> str:
        names, characters = len(self._newest), self._characters + len(spec.name)
        if spec.name not in self._newest and (names >= MAX_NAMES or characters > MAX_NAME_CHARACTERS):
            return (
                f"the job has declared {names} names, and at most {MAX_NAMES} with {MAX_NAME_CHARACTERS} "
                "characters are allowed; a name that changes from step to step is a new tensor each time"
            )
        if self._places > MAX_PLACES:
            return f"the tensors of the job have more than {MAX_PLACES} places; raise BYTEPS_PARTITION_BYTES"
        return ""

    def _refused(self, spec: TensorSpec, rank: int, why: str) -> Placed:
        return Placed(-1, [], f"tensor {spec.name!r} of {self._workers[rank]} was refused: {why}")

    def _disagreement(self, tensor: Tensor, rank: int, spec: TensorSpec) -> str:
        return (
            f"ranks disagree on tensor {spec.name!r}: {self._workers[tensor.first]} declared "
            f"{show(tensor.spec)}, {self._workers[rank]} declared {show(spec)}; one name needs the same "
            "dtype, shape and codec on all ranks: check that all run the same code and model"
        )


def _placed(tensor: Tensor) -> Placed:
    return Placed(tensor.tensor_id, tensor.runs, tensor.conflict, tensor.lack, tensor.partition_bytes)


def _conflict(tensor: Tensor) -> Conflict:
    spec = tensor.spec
    return Conflict(spec.name, spec.generation, tensor.conflict, tensor.tensor_id, tensor.lack)


def show(spec: TensorSpec) -> str:
    """A declaration as people read it.

    >>> show(TensorSpec("x", 0, 0, [2, 3]))
    'float32 [2, 3]'
    """
    dtype = dtypes.NAMES[spec.dtype] if 0 <= spec.dtype < len(dtypes.NAMES) else f"dtype {spec.dtype}"
    codec = f" with codec {spec.codec!r}" if spec.codec else ""
    return f"{dtype} {list(spec.shape)}{codec}{' without its machine' if spec.direct else ''}"
