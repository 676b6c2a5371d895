"""``GradientExchange``: every gradient of a model is pushed the moment a backward pass has made it.

DistributedOptimizer, DistributedDataParallel and CrossBarrier are built on it. The parts of a step, in order:

    backward        hooks push each gradient, in the last backward pass of the step
    tell()          this rank tells the others for which parameters it has gradients
    contribute()    this rank pushes zeros for parameters of which only other ranks have gradients
    finish()        this rank waits until every gradient holds the result

The last three happen at the end of ``backward()`` (``backward_end``), so that scripts find the result in
``p.grad``. CrossBarrier leaves out ``finish()`` and calls ``wait(p)`` instead. ``step()`` does those that
have not happened by then.

A result is the same on all ranks, and so is what a script makes of it. Therefore a further backward pass may
add to it, and be exchanged in its turn: the average over the ranks of A + g is A + the average of g. That
does not hold where the core applies momentum: there the second exchange of a step is refused.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from byteps.errors import BytePSError, ConfigError
from byteps.torch import backward_end, in_flight
from byteps.torch.compression import Cast, Compression
from byteps.torch.declared_parameters import DeclaredParameters
from byteps.torch.gradient_slot import Slot
from byteps.torch.watched import HAS_MOMENTUM, IN_STEP_ELSEWHERE, NOT_EXCHANGED, Watched
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.session import Session

if TYPE_CHECKING:
    from byteps.torch.rates import Rates

__all__ = ["GradientExchange"]

_numbers = itertools.count()  # of exchanges in this process, the same on every rank


class GradientExchange(DeclaredParameters):
    """Sums or averages the gradients of parameters over all ranks, while the backward pass is running.

    All ranks make their exchanges in the same order: a second one over the same names gets names of its own.
    Gradients of several passes are added up before they are pushed. In a job of one nothing is pushed.
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
        super().__init__(prefix, compression_params)
        self.number = next(_numbers)
        self.average = average
        self.compression = compression
        self.compression_params = compression_params
        self.rates = rates  # of the optimizer, where there is one and a codec asks for it
        self.passes_per_step = self.passes_left = _count(passes_per_step)
        self.waits = True  # at the end of backward(), until the results are there
        self.paused = False  # hooks do nothing: gradients stay with their rank
        self.ends_step = False  # with its results: nobody calls end_step()
        self.on_end: Callable[[], object] | None = None  # called first when a backward pass is over
        self.task = -1  # of autograd, in which a hook has run last
        self.is_open = False  # a hook has run since the last exchange
        self.is_exchanged = False  # there was an exchange since the last step() or zero_grad()
        self.is_announced = False  # the first push of an exchange is on its way
        self.warned_of_sparse = self.warned_of_other = False
        self.readiness: list[Slot] | None = []  # in the first step, the order in which gradients come
        self._told: list[Slot] = []  # what no hook has pushed, between tell() and contribute()
        self._absent: dict[Slot, None] = {}  # had no gradient in the last exchange, on any rank
        self._lead = 0  # exchanges less steps
        self._in_step = False  # the last exchange was made by step()
        self._finished = True  # nothing is on its way that finish() would wait for
        self._watched: Watched | None = None
        in_flight.watch(self)
        self.add(named_parameters)

    # Parameters and settings, the same on every rank

    def add(self, named_parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Take more parameters; all are declared with one message.

        Frozen ones take part from when they are not frozen any more.
        """
        self.restart("add")
        self._take(self, named_parameters)
        self.bind()

    def bind(self) -> Session:
        """Declare everything in the current membership; done again by the first hook after ``resume()``."""
        self.is_open = self.is_exchanged = self.is_announced = False
        self._told, self._absent, self._watched, self._lead = [], {}, None, 0
        session = super().bind()
        session.exchanges[self._roll_call.name] = weakref.WeakMethod(self.take_part_with_nothing)
        return session

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
        self.passes_per_step = self.passes_left = wanted

    def restart(self, operation: str) -> None:
        """Begin the step anew, as if there had been no backward pass; refused while gradients travel."""
        for slot in self._slots.values():
            if slot.handle is not None:
                raise BytePSError(
                    f"{operation}: the gradient {slot.name} is on its way to the other ranks and would be "
                    "changed under them; call synchronize() first, or step()"
                )
            slot.is_fresh = False
        self._renew()

    def _renew(self) -> None:
        self.passes_left = self.passes_per_step
        self.is_open = self.is_exchanged = False
        self._absent, self._watched = {}, None

    # An exchange

    def enter(self, task: int, grad: Tensor) -> None:
        """From the first hook in a task of autograd, which has added to ``grad``: be there at its end."""
        if not self._finished and self.is_exchanged:  # with CrossBarrier, a second pass before step()
            if names := self.names_in_flight({id(grad)}):
                raise BytePSError(
                    f"backward: a second pass has added to {names[0]} while it is on its way to the other "
                    "ranks, for CrossBarrier does not wait at the end of backward(); call "
                    "optimizer.synchronize() between the passes, or set backward_passes_per_step"
                )
            self.finish()
        self.task = task
        backward_end.complete_after(self, task)

    def announce(self) -> None:
        """The exchange begins; once, before its first push. Tells those who are out of data."""
        self.is_announced = True
        joining = self.session.joining
        if joining is None:
            return
        if self.has_momentum or not self.waits:
            raise ConfigError(
                "uneven data: momentum in compression_params and CrossBarrier need gradients of every rank "
                "in every step; leave them out, or give every rank as many batches"
            )
        name = self._roll_call.name
        joining.begin_step(name, [name, *(slot.name for slot in self._slots.values())])

    def take_part_with_nothing(self, in_the_end: bool) -> None:
        """In one exchange of the others, when this rank is out of data: in its beginning, and in its end.

        In between they may begin other operations, so the beginning waits for nobody.
        """
        joining = self.session.joining
        assert joining is not None
        if not in_the_end:
            self._roll_call.tell_nothing(self.session)
            return
        counts = self._roll_call.present()
        self._roll_call.forget()
        for slot in self._slots.values():
            if counts[slot.index]:
                tensor = slot.declared
                joining.contribute_nothing(
                    tensor.name, tensor.dtype, tensor.shape, tensor.codec, self.average, slot.priority
                )

    def end_pass(self) -> bool:
        """A backward pass is over; True when gradients are to be exchanged now."""
        if self.on_end is not None:
            self.on_end()
        if not self.is_open:  # no gradient came, or step() was called inside the pass
            return False
        self.keep_local()
        self.passes_left -= 1
        return self.passes_left == 0

    def keep_local(self) -> None:
        """Where more passes are to come: what is done to gradients before their exchange is to be noticed."""
        if self.passes_left > 1:
            self._watched = Watched(self._slots.values(), NOT_EXCHANGED)

    def tell(self, in_step: bool = False) -> None:
        """The backward passes of this step are over: tell the others what there is."""
        if current.session is not self.session:
            self.bind()
        self.passes_left = self.passes_per_step
        self.is_open = False
        self._in_step = in_step
        self._finished = False
        self._watched = None
        if self.is_idle:
            return
        if not self.is_announced:
            self.announce()
        self._told = [slot for slot in self._slots.values() if slot.handle is None]
        self._absent = {slot: None for slot in self._told if not self._has_news(slot)}
        if self.session.size > 1:
            absent = [slot.index for slot in self._absent]
            self._roll_call.tell(self.session, absent, self._lead, in_step)
        self._lead += 1

    def _has_news(self, slot: Slot) -> bool:
        """True when the others have not got this gradient: after an exchange, only what came later."""
        grad = slot.parameter.grad
        if grad is None or type(grad) is in_flight.InFlight:  # the latter is with another exchange
            return False
        return not self.is_exchanged or slot.is_fresh or slot in self._absent

    def contribute(self) -> list[Slot]:
        """Push what the hooks have not; gives the slots that had no gradient here and have one now."""
        told, self._told = self._told, []
        absent: Mapping[Slot, None] = self._absent
        wanted: dict[Slot, None] = {}
        # What is frozen is so on every rank.
        if self.session.size > 1 and any(slot.parameter.requires_grad for slot in absent):
            counts = self._roll_call.present()
            wanted = {slot: None for slot in absent if counts[slot.index]}
        for slot in told:
            if slot not in absent or slot in wanted:
                slot.push(self.session)
        self._absent = {slot: None for slot in absent if slot not in wanted}
        self.is_exchanged = True
        self.is_announced = False
        if self.session.joining is not None:
            self.session.joining.end_step(self._roll_call.name)
        if not self.waits:
            with torch._C.DisableTorchFunctionSubclass():  # to read a version is no touch
                for slot in self._slots.values():
                    slot.watch()
        if self.readiness:
            self.set_order([slot.parameter for slot in reversed(self.readiness)])
        return list(wanted)

    def finish(self) -> None:
        """Until every gradient is the result."""
        if self._finished:
            return
        others_in_step = self._roll_call.check(self.session)
        for slot in self._slots.values():
            slot.wait()
        self._finished = True
        if self.ends_step:
            self.session.steps.mark(self)
        if others_in_step and not self._in_step:
            self._watched = Watched(self._slots.values(), IN_STEP_ELSEWHERE)
        elif self.has_momentum:
            self._watched = Watched(self._slots.values(), HAS_MOMENTUM)

    def synchronize(self) -> None:
        """Every gradient is the sum or average over all ranks; at once if the end of backward() has done it.

        Raises PeerLostError or OperationTimeoutError; then no gradient means anything.
        """
        if self.needs_exchange:
            self.tell()
            self.contribute()
        self.finish()
        if self._watched is not None and self._watched.why is HAS_MOMENTUM:
            self._watched = None  # whoever asks for what has momentum in it may change it

    @property
    def needs_exchange(self) -> bool:
        """True when there may be gradients of this rank alone: of hooks, or set by hand."""
        if current.session is not self.session:  # after resume()
            return True
        if self.is_open or not self.is_exchanged:
            return not self.is_idle
        return any(slot.parameter.grad is not None for slot in self._absent)

    # From ``step()``: before it uses the gradients, and after

    def prepare_step(self) -> None:
        """Exchange what has not been exchanged; refuse what a script must not have done."""
        if self._watched is not None:
            self._watched.check(self.passes_per_step)
        if self.needs_exchange:
            self.tell(in_step=True)
            self.contribute()

    def end_step(self) -> None:
        """The gradients have been used."""
        self.session.steps.mark(self)
        self._renew()
        self._lead -= 1

    # Gradients on their way

    @property
    def handles(self) -> dict[Tensor, Handle[Any]]:
        """Operations that nobody has waited for, by parameter."""
        return {parameter: slot.handle for parameter, slot in self._slots.items() if slot.handle is not None}

    def wait(self, parameter: Tensor) -> None:
        """Until the gradient of ``parameter`` is the result; at once if it is not on its way."""
        self._slots[parameter].wait()

    def is_done(self, parameter: Tensor) -> bool:
        """True when ``wait(parameter)`` would not block."""
        handle = self._slots[parameter].handle
        return handle is None or handle.done()

    def names_in_flight(self, ids: Container[int]) -> list[str]:
        """Of the gradients on their way that are among these objects."""
        return [slot.name for slot in self._slots.values() if id(slot.grad) in ids and slot.grad is not None]

    def finish_touched(self) -> None:
        """Somebody looks at a gradient on its way, outside of a backward pass: see ``in_flight``."""
        late: list[Slot] = []
        if self.is_open:  # the end of the backward pass was not seen: see ``backward_end``
            self.tell()
            late = self.contribute()
        self.finish()
        if late:
            raise BytePSError(
                f"the gradient {late[0].name} came from another rank only when this one looked at its "
                "gradients, too late for whoever has listed them before; call optimizer.synchronize() after "
                "backward(), or use checkpoint(..., use_reentrant=False)"
            )


def _count(passes: int) -> int:
    if not isinstance(passes, int) or passes < 1:
        raise ConfigError(f"backward passes per step: {passes!r}, expected a whole number of 1 or more")
    return passes
