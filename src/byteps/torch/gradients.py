"""``GradientExchange``: every gradient of a model is pushed the moment a backward pass has made it.

What DistributedOptimizer, DistributedDataParallel and CrossBarrier are built on. A step goes so:

    backward        hooks push gradients, each after its last pass of the step
    flush()         parameters that had no gradient here but on another rank contribute zeros
    wait(p)         p.grad is the result

``synchronize()`` is the last two for all parameters. A rank learns what the others used from a small map that
every rank pushes with ``flush()`` and that only ranks with an unused parameter wait for. So a parameter that
no rank used keeps ``grad = None``, as in one process, and one that some rank used has a gradient on all.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from byteps.compress.params import CodecSpec
from byteps.errors import BytePSError, ConfigError, DeclarationError
from byteps.torch.compression import Cast, Compression
from byteps.torch.gradient_slot import Slot
from byteps.torch.ops import NUMBERS
from byteps.torch.parameter_names import distinct
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.session import Session
from byteps.worker.tensors import codec_of

if TYPE_CHECKING:
    from byteps.torch.rates import Rates
    from byteps.worker import tensors

__all__ = ["GradientExchange"]

_MAP_NAME = "used parameters"
_taken: weakref.WeakKeyDictionary[Session, set[str]] = weakref.WeakKeyDictionary()


class GradientExchange:
    """Sums or averages the gradients of parameters over all ranks, while the backward pass is running.

    All ranks make their exchanges in the same order: a second one over the same names gets names of its own.
    Gradients of several passes are added up before they are pushed. On a machine with several ranks a
    gradient lies in memory that they share and is the same tensor in each step: clone what you want to keep.
    In a job of one nothing is pushed.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        *,
        average: bool = True,
        compression: Cast = Compression.none,
        compression_params: Mapping[str, object] | None = None,
        passes_per_step: int = 1,
        prefix: str = "Gradient.",
        rates: Rates | None = None,
    ) -> None:
        self.session = current.required("GradientExchange")
        self.average = average
        self.compression = compression
        self.compression_params = compression_params
        self.passes_per_step = _count(passes_per_step)
        self.paused = False  # hooks do nothing: gradients stay with their rank
        self.is_open = False  # a hook has run since the last flush()
        self.warned_of_sparse = False
        self.readiness: list[Slot] | None = []  # in the first step, the order in which gradients come
        self._codec = codec_of(compression_params)
        self.rates = rates  # of the optimizer, where there is one and a codec asks for it
        self._has_momentum = CodecSpec.from_text(self._codec).momentum is not None
        self._slots: dict[Tensor, Slot] = {}
        self._map = torch.zeros(0, dtype=torch.int32)
        self._map_handle: Handle[Any] | None = None
        self._prefix = prefix
        self._numbered = False
        self.add(named_parameters)

    # Parameters

    @property
    def parameters(self) -> list[Tensor]:
        """In the order in which they were given."""
        return list(self._slots)

    @property
    def handles(self) -> dict[Tensor, Handle[Any]]:
        """Operations of this step that nobody has waited for, by parameter."""
        return {parameter: slot.handle for parameter, slot in self._slots.items() if slot.handle is not None}

    def name(self, parameter: Tensor) -> str:
        """The name under which the gradient of ``parameter`` travels."""
        return self._slots[parameter].name

    def add(self, named_parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Take more parameters, on every rank the same; all are declared with one message.

        A parameter given under several names (shared layers) has the first. Frozen ones take part from
        when they are not frozen any more.
        """
        self.restart("add")
        new = {
            name: parameter
            for name, parameter in distinct(named_parameters).items()
            if parameter not in self._slots and (parameter.requires_grad or parameter.dtype in NUMBERS)
        }
        if not self._numbered:
            self._number(new)
        known = {slot.name for slot in self._slots.values()}
        for name, parameter in new.items():
            slot = Slot(self, self._prefix + name, parameter, len(self._slots))
            if slot.name in known:
                raise ConfigError(f"add: there is a parameter called {name!r} already; give it another name")
            self._slots[parameter] = slot
        self._map = torch.zeros(len(self._slots), dtype=torch.int32)
        self.bind()

    def _number(self, new: Mapping[str, Tensor]) -> None:
        taken = _taken.setdefault(self.session, set())
        number, prefix = 1, self._prefix
        while any(prefix + name in taken for name in (*new, _MAP_NAME)):
            number += 1
            prefix = f"{self._prefix}{number}."
        self._prefix = prefix
        self._numbered = True

    def bind(self) -> Session:
        """Declare everything in the current membership; done again by the first hook after ``resume()``."""
        self.session = session = current.required("GradientExchange")
        self._map_handle = None
        self.is_open = False
        if self.is_idle:
            for slot in self._slots.values():
                slot.remove()
            return session
        taken = _taken.setdefault(session, set())
        specs = [slot.spec(self._codec) for slot in self._slots.values()]
        specs.append(Spec(self._prefix + _MAP_NAME, NUMBERS[torch.int32], tuple(self._map.shape)))
        taken.update(spec.name for spec in specs)
        _declare(session, specs)
        for slot in self._slots.values():
            slot.bind(session)
        return session

    @property
    def is_idle(self) -> bool:
        """True in a job of one: nothing is pushed, unless the core has something to do to gradients."""
        return self.session.size == 1 and not self._has_momentum

    def declared(self) -> Iterator[tuple[str, tensors.Tensor]]:
        """Name of the parameter and declared tensor of everything whose gradient travels."""
        if current.session is not self.session:
            self.bind()
        if not self.is_idle:
            for slot in self._slots.values():
                yield slot.name.removeprefix(self._prefix), slot.declared

    @property
    def is_between_passes(self) -> bool:
        """True when a parameter has got some of the step's backward passes and waits for the others."""
        return any(0 < slot.left < self.passes_per_step for slot in self._slots.values())

    def restart(self, operation: str) -> None:
        """Count the backward passes of this step anew; refused when gradients are on their way."""
        for slot in self._slots.values():
            if slot.handle is not None:
                raise BytePSError(
                    f"{operation}: the gradient {slot.name} is on its way to the other ranks and would be "
                    "changed under them; call step() or synchronize() first"
                )
            slot.left = self.passes_per_step
        self.is_open = False

    def set_order(self, parameters: Iterable[Tensor]) -> None:
        """Say in which order the next forward pass needs the parameters: the first is the most urgent.

        Without it that is the reverse of the order in which the first step's gradients came.
        """
        self.readiness = None
        order = [parameter for parameter in parameters if parameter in self._slots]
        for index, parameter in enumerate(dict.fromkeys((*order, *self._slots))):
            self._slots[parameter].priority = -index

    def set_passes_per_step(self, passes: int) -> None:
        """Add up the gradients of this many backward passes before they are pushed."""
        wanted = _count(passes)
        self.restart("set_backward_passes_per_step")
        self.passes_per_step = wanted
        self.restart("set_backward_passes_per_step")

    def remove(self) -> None:
        """Take the hooks off, on every rank; its names can be used again."""
        for slot in self._slots.values():
            slot.remove()
        _taken.get(self.session, set()).difference_update(slot.name for slot in self._slots.values())
        _taken.get(self.session, set()).discard(self._prefix + _MAP_NAME)

    # A step

    def flush(self) -> None:
        """The backward passes of this step are over: push what the hooks have not."""
        if current.session is not self.session:
            self.bind()
        self.is_open = False
        if self.is_idle:
            return
        missing = [slot for slot in self._slots.values() if slot.handle is None]
        absent = [slot for slot in missing if slot.parameter.grad is None]
        used = self._exchange_map(absent)
        for slot in missing:
            if slot.parameter.grad is not None or used(slot):
                slot.push(self.session)
                slot.hook()
        if self.readiness:
            self.set_order([slot.parameter for slot in reversed(self.readiness)])

    def _exchange_map(self, absent: list[Slot]) -> Callable[[Slot], bool]:
        """Tell the others what has no gradient here; gives what says whether another rank has one."""
        if self.session.size == 1:
            return lambda slot: False
        if self._map_handle is not None:
            self._map_handle.wait()  # of the last step, and long done
        self._map.fill_(1)
        if absent:
            self._map[[slot.index for slot in absent]] = 0
        declared = self.session.tensors[self._prefix + _MAP_NAME]
        address = self._map.data_ptr()
        self._map_handle = self.session.push_pull(declared, address, address, False, 1, self._map, self._map)
        if not any(slot.parameter.requires_grad for slot in absent):  # what is frozen is so on every rank
            return lambda slot: False
        counts = self._map_handle.wait().tolist()
        return lambda slot: bool(counts[slot.index])

    def wait(self, parameter: Tensor) -> None:
        """Until ``parameter.grad`` is the result; at once if it has none. After ``flush()``."""
        self._slots[parameter].wait()

    def is_done(self, parameter: Tensor) -> bool:
        """True when ``wait(parameter)`` would not block."""
        handle = self._slots[parameter].handle
        return handle is None or handle.done()

    def synchronize(self) -> None:
        """End the step: every gradient of every parameter is the sum or average over all ranks.

        Raises PeerLostError or OperationTimeoutError; then no gradient means anything.
        """
        self.flush()
        for slot in self._slots.values():
            slot.wait()


def _declare(session: Session, specs: list[Spec]) -> None:
    """Declare on all ranks together, so that every rank is told at once if one of them has another model.

    Without the barrier a rank that came first would go on, and wait for one that has died of the difference.
    """
    with contextlib.suppress(DeclarationError):
        session.declare(specs)
    session.barrier()
    for spec in specs:
        conflict = session.tensors[spec.name].conflict
        if conflict:
            raise DeclarationError(conflict)


def _count(passes: int) -> int:
    if not isinstance(passes, int) or passes < 1:
        raise ConfigError(f"backward passes per step: {passes!r}, expected a whole number of 1 or more")
    return passes
