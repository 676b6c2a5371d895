"""The tensors this rank has declared: names, generations, and names made from the order of calls.

A name that is used with another dtype, shape or codec is declared anew: same name, next generation. Every
rank uses a name in the same order, so generations agree without a message. Operations look tensors up in
``Tensors.by_name`` without a lock; everything that changes the table holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from byteps.errors import BytePSError, ConfigError, DeclarationError, OutOfMemoryError
from byteps.tensor import dtypes
from byteps.worker import codec_state, codecs
from byteps.worker.codecs import codec_of
from byteps.worker.interface import Client, Control, NativeHandle, Spec

if TYPE_CHECKING:
    from byteps.config import Config

__all__ = ["Tensor", "Tensors", "codec_of"]

_REFUSED = -1  # the id of a tensor that the scheduler refused
_PENDING_ROOM = 8
_NAME_BYTES = 4096
_FLOAT64 = dtypes.NUMBERS["float64"]


def _check_name(spec: Spec) -> None:
    """Refuse here what the scheduler would have to refuse by ending the connection."""
    if not isinstance(spec.name, str):
        raise ConfigError(f"the name of a tensor is {spec.name!r}, expected text")
    if not 0 < len(spec.name.encode(errors="replace")) <= _NAME_BYTES or not spec.name.isprintable():
        raise ConfigError(
            f"the name of a tensor is {spec.name[:80]!r} with {len(spec.name)} characters, "
            f"expected 1 to {_NAME_BYTES} bytes of printable text"
        )


class Tensor:
    """One generation of a declared name."""

    __slots__ = (
        "codec",
        "conflict",
        "direct",
        "dtype",
        "generation",
        "is_rated",
        "lack",
        "lr",
        "mu",
        "name",
        "native",
        "nbytes",
        "pending",
        "placement",
        "room",
        "shape",
        "tensor_id",
    )

    def __init__(self, spec: Spec, generation: int, tensor_id: int, native: Any) -> None:
        self.placement: Sequence[tuple[int, int]] = ()  # (server, shard) of each partition
        self.name, self.dtype, self.shape, self.codec, self.direct, _ = spec
        self.nbytes = dtypes.nbytes(spec.dtype, spec.shape)
        self.generation = generation
        self.tensor_id = tensor_id
        self.native = native  # None when there are no bytes to move
        self.conflict = ""  # why it cannot be used, once that is known: ranks disagree
        self.lack = False  # or a process has no memory for it
        self.pending: list[NativeHandle] = []  # operations that may still be in flight
        self.room = _PENDING_ROOM  # more than this: time to look which are done
        self.is_rated = False  # the core wants to know the two below with each operation
        self.lr = 0.0  # learning rate, for error feedback; 0: unknown
        self.mu = codecs.DEFAULT_MU  # of momentum in the core

    def is_like(self, spec: Spec) -> bool:
        """True when ``spec`` needs no new declaration."""
        return (self.dtype, self.shape, self.codec, self.direct) == spec[1:5] and (
            spec.generation is None or spec.generation == self.generation
        )

    def check(self) -> None:
        """Raise if it cannot be used."""
        if self.conflict:
            raise (OutOfMemoryError if self.lack else DeclarationError)(self.conflict)

    def is_double_momentum(self, address: int) -> bool:
        """The momentum of float64 is float64; everything else in a codec's state is float32."""
        return bool(self.dtype == _FLOAT64 and address == self.native.momentum[0])

    def track(self, handle: NativeHandle) -> None:
        """Remember an operation, so that the next generation can wait for it."""
        self.pending.append(handle)
        if len(self.pending) > self.room:
            self.pending = [each for each in self.pending if not each.done()]
            self.room = max(_PENDING_ROOM, 2 * len(self.pending))  # so that looking stays rare

    def finish(self) -> None:
        """Wait for the operations in flight; how they ended is the business of their handles."""
        for handle in list(self.pending):
            try:
                handle.wait()
            except Exception:
                continue


class Tensors:
    """The table of one membership."""

    def __init__(self, control: Control, client: Client, config: Config) -> None:
        self.by_name: dict[str, Tensor] = {}
        self._config = config
        self._rates: dict[str | None, tuple[float | None, float | None]] = {}  # by name; None: everybody's
        self._control = control
        self._client = client
        self._lock = threading.Lock()
        # By tensor id why it cannot be used, and whether that is for want of memory; may come before the
        # declaration has returned.
        self._conflicts: dict[int, tuple[str, bool]] = {}
        self._automatic: dict[tuple[str, int, tuple[int, ...], str], str] = {}
        self._calls: dict[str, int] = {}

    def declare(self, specs: Iterable[Spec]) -> None:
        """Declare those that are new or have changed, all in one message."""
        wanted = list(specs)
        for spec in wanted:
            known = self.by_name.get(spec.name)
            if known is None:
                _check_name(spec)
            elif not known.is_like(spec):
                # Without the lock: what we wait for may need a declaration by another thread of ours.
                known.finish()
        with self._lock:
            new = [spec for spec in wanted if not self._is_declared(spec)]
            if new:
                self._declare_new(new)
        for spec in wanted:
            self.by_name[spec.name].check()

    def _is_declared(self, spec: Spec) -> bool:
        known = self.by_name.get(spec.name)
        return known is not None and known.is_like(spec)

    def _declare_new(self, specs: Sequence[Spec]) -> None:
        numbered = [(spec, self._generation(spec)) for spec in specs]
        plans = [
            codecs.plan(spec.codec, spec.dtype, dtypes.nbytes(spec.dtype, spec.shape), self._config)
            for spec in specs
        ]
        told = [
            (spec._replace(codec=plan.told), number)
            for (spec, number), plan in zip(numbered, plans, strict=True)
        ]
        try:
            placements = self._control.declare(told)
        except (DeclarationError, OutOfMemoryError) as error:
            if len(specs) > 1:
                self._declare_singly(specs)
                return
            self._add_refused(specs[0], numbered[0][1], _REFUSED, error)
            raise
        lack: OutOfMemoryError | None = None
        for (spec, generation), plan, placed in zip(numbered, plans, placements, strict=True):
            tensor_id, parts, partition_bytes = placed
            nbytes = dtypes.nbytes(spec.dtype, spec.shape)
            native = None
            is_rated = plan.codec is not None or plan.momentum
            more: dict[str, Any] = {"codec": plan.codec, "momentum": plan.momentum} if is_rated else {}
            if nbytes:
                try:
                    native = self._client.declare(
                        tensor_id,
                        spec.name,
                        spec.dtype,
                        nbytes,
                        partition_bytes,
                        parts,
                        spec.direct,
                        **more,
                    )
                except MemoryError as error:  # of this process; its words name it
                    lack = lack or OutOfMemoryError(str(error))
                    self._add_refused(spec, generation, tensor_id, OutOfMemoryError(str(error)))
                    self._control.lack(tensor_id, str(error).removeprefix(f"{spec.name}: "))
                    continue
            tensor = Tensor(spec, generation, tensor_id, native)
            tensor.placement = parts
            tensor.is_rated = is_rated
            if is_rated:
                self._rate(tensor)
                codec_state.kept.give(tensor)
            self._add(tensor)
        if lack is not None:
            raise lack

    def _add_refused(self, spec: Spec, generation: int, tensor_id: int, error: BytePSError) -> None:
        # Kept, so that this rank's generations stay in step with those of ranks that were not refused.
        tensor = Tensor(spec, generation, tensor_id, None)
        tensor.conflict, tensor.lack = str(error), isinstance(error, OutOfMemoryError)
        self._add(tensor)

    def set_rates(self, names: Iterable[str] | None, lr: float | None, mu: float | None) -> None:
        """Learning rate and momentum for these tensors or for all, also for those still to be declared."""
        with self._lock:
            for name in [None] if names is None else names:
                before = self._rates.get(name, (None, None))
                self._rates[name] = (before[0] if lr is None else lr, before[1] if mu is None else mu)
            for tensor in self.by_name.values():
                self._rate(tensor)

    def _rate(self, tensor: Tensor) -> None:
        for name in (None, tensor.name):
            lr, mu = self._rates.get(name, (None, None))
            tensor.lr = tensor.lr if lr is None else lr
            tensor.mu = tensor.mu if mu is None else mu

    def _declare_singly(self, specs: Sequence[Spec]) -> None:
        """One of several was refused: find out which, so that the others can be used."""
        refusal: DeclarationError | OutOfMemoryError | None = None
        for spec in specs:
            try:
                self._declare_new([spec])
            except (DeclarationError, OutOfMemoryError) as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def _generation(self, spec: Spec) -> int:
        if spec.generation is not None:
            return spec.generation
        known = self.by_name.get(spec.name)
        return 0 if known is None else known.generation + 1

    def _add(self, tensor: Tensor) -> None:
        before = self.by_name.get(tensor.name)
        self.by_name[tensor.name] = tensor
        if before is not None and before.native is not None:
            self._client.forget(before.tensor_id)
        # The other half of refuse(): whichever of the two comes second sees the other's work.
        if tensor.tensor_id in self._conflicts:
            self._mark(tensor, *self._conflicts[tensor.tensor_id])

    def refuse(self, name: str, tensor_id: int, text: str, lack: bool = False) -> None:
        """The scheduler says that it cannot be used: every operation on it fails. Any thread.

        Ranks disagree on it, or one of them has no memory for it (``lack``).
        """
        self._conflicts[tensor_id] = text, lack
        tensor = self.by_name.get(name)
        if tensor is not None and tensor.tensor_id == tensor_id:
            self._mark(tensor, text, lack)

    def _mark(self, tensor: Tensor, text: str, lack: bool) -> None:
        tensor.conflict, tensor.lack = text, lack
        if tensor.native is not None:
            self._client.fail_tensor(tensor.tensor_id, text, lack)

    def automatic_name(self, verb: str, dtype: int, shape: tuple[int, ...], codec: str) -> str:
        """A name for a call without one, made from the order of such calls.

        The first call with some dtype and shape is named by its number, and later calls that look the same
        are further rounds of it. So ranks that call in one order agree, ranks that do not are told at the
        first difference, and a loop does not declare a new tensor in each turn.
        """
        with self._lock:
            number = self._calls.get(verb, 0)
            self._calls[verb] = number + 1
            return self._automatic.setdefault((verb, dtype, shape, codec), f"{verb}.noname.{number}")
