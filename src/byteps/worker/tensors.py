"""The tensors this rank has declared: names, generations, and names made from the order of calls.

A name that is used with another dtype, shape or codec is declared anew: same name, next generation. Every
rank uses a name in the same order, so generations agree without a message. Operations look tensors up in
``Tensors.by_name`` without a lock; everything that changes the table holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from byteps import dtypes
from byteps.errors import ConfigError, DeclarationError
from byteps.scheduler.placement import aligned
from byteps.worker.interface import Client, Control, NativeHandle, Spec

__all__ = ["Tensor", "Tensors", "codec_of"]

_REFUSED = -1  # the id of a tensor that the scheduler refused
_PENDING_ROOM = 8
_NAME_BYTES = 4096


def codec_of(compression_params: Mapping[str, object] | None) -> str:
    """Canonical text of ``compression_params``; ranks must agree on it."""
    if not compression_params:
        return ""
    raise ConfigError(
        f"compression_params={dict(compression_params)!r}: this version sends tensors uncompressed; pass None"
    )


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
        "name",
        "native",
        "nbytes",
        "pending",
        "placement",
        "room",
        "shape",
        "tensor_id",
    )

    def __init__(self, spec: Spec, generation: int, tensor_id: int, native: Any, conflict: str = "") -> None:
        self.placement: Sequence[tuple[int, int]] = ()  # (server, shard) of each partition
        self.name, self.dtype, self.shape, self.codec, self.direct = spec
        self.nbytes = dtypes.nbytes(spec.dtype, spec.shape)
        self.generation = generation
        self.tensor_id = tensor_id
        self.native = native  # None when there are no bytes to move
        self.conflict = conflict  # why ranks disagree, once that is known
        self.pending: list[NativeHandle] = []  # operations that may still be in flight
        self.room = _PENDING_ROOM  # more than this: time to look which are done

    def is_like(self, spec: Spec) -> bool:
        """True when ``spec`` needs no new declaration."""
        return (self.dtype, self.shape, self.codec, self.direct) == spec[1:]

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

    def __init__(self, control: Control, client: Client, partition_bytes: int) -> None:
        self.by_name: dict[str, Tensor] = {}
        self._control = control
        self._client = client
        self._partition_bytes = aligned(partition_bytes)
        self._lock = threading.Lock()
        self._conflicts: dict[int, str] = {}  # tensor id -> why; may come before the declaration has returned
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
            if self.by_name[spec.name].conflict:
                raise DeclarationError(self.by_name[spec.name].conflict)

    def _is_declared(self, spec: Spec) -> bool:
        known = self.by_name.get(spec.name)
        return known is not None and known.is_like(spec)

    def _declare_new(self, specs: Sequence[Spec]) -> None:
        numbered = [(spec, self._generation(spec.name)) for spec in specs]
        try:
            placements = self._control.declare(numbered)
        except DeclarationError as error:
            if len(specs) > 1:
                self._declare_singly(specs)
                return
            # Kept, so that this rank's generations stay in step with those of ranks that were not refused.
            self._add(Tensor(specs[0], numbered[0][1], _REFUSED, None, str(error)))
            raise
        for (spec, generation), (tensor_id, parts) in zip(numbered, placements, strict=True):
            nbytes = dtypes.nbytes(spec.dtype, spec.shape)
            native = None
            if nbytes:
                native = self._client.declare(
                    tensor_id, spec.name, spec.dtype, nbytes, self._partition_bytes, parts, spec.direct
                )
            tensor = Tensor(spec, generation, tensor_id, native)
            tensor.placement = parts
            self._add(tensor)

    def _declare_singly(self, specs: Sequence[Spec]) -> None:
        """One of several was refused: find out which, so that the others can be used."""
        refusal = None
        for spec in specs:
            try:
                self._declare_new([spec])
            except DeclarationError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def _generation(self, name: str) -> int:
        known = self.by_name.get(name)
        return 0 if known is None else known.generation + 1

    def _add(self, tensor: Tensor) -> None:
        before = self.by_name.get(tensor.name)
        self.by_name[tensor.name] = tensor
        if before is not None and before.native is not None:
            self._client.forget(before.tensor_id)
        # The other half of refuse(): whichever of the two comes second sees the other's work.
        if tensor.tensor_id in self._conflicts:
            self._mark(tensor, self._conflicts[tensor.tensor_id])

    def refuse(self, name: str, tensor_id: int, text: str) -> None:
        """The scheduler found that ranks disagree: every operation on this tensor fails. Any thread."""
        self._conflicts[tensor_id] = text
        tensor = self.by_name.get(name)
        if tensor is not None and tensor.tensor_id == tensor_id:
            self._mark(tensor, text)

    def _mark(self, tensor: Tensor, text: str) -> None:
        tensor.conflict = text
        if tensor.native is not None:
            self._client.fail_tensor(tensor.tensor_id, text)

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
