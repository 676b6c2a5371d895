"""The parameters of a ``GradientExchange``: their names, and their declaration in the current membership."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from byteps.compress.params import CodecSpec
from byteps.errors import ConfigError, DeclarationError, OutOfMemoryError
from byteps.torch.gradient_slot import Slot
from byteps.torch.ops import NUMBERS
from byteps.torch.parameter_names import distinct
from byteps.torch.roll_call import RollCall
from byteps.worker import current
from byteps.worker.interface import Spec
from byteps.worker.session import Session
from byteps.worker.tensors import codec_of

if TYPE_CHECKING:
    from byteps.torch.gradients import GradientExchange
    from byteps.worker import tensors

__all__ = ["DeclaredParameters"]

_ROLL_CALL = "used parameters"
_taken: weakref.WeakKeyDictionary[Session, set[str]] = weakref.WeakKeyDictionary()


class DeclaredParameters:
    """Slots by parameter. All ranks add the same, in the same order."""

    def __init__(self, prefix: str, compression_params: Mapping[str, object] | None) -> None:
        self.session = current.required("GradientExchange")
        self._codec = codec_of(compression_params)
        self.has_momentum = CodecSpec.from_text(self._codec).momentum is not None
        self._slots: dict[Tensor, Slot] = {}
        self._prefix = prefix
        self._roll_call = RollCall("")  # gets its name with the first parameters

    @property
    def parameters(self) -> list[Tensor]:
        """In the order in which they were given."""
        return list(self._slots)

    def name(self, parameter: Tensor) -> str:
        """The name under which the gradient of ``parameter`` travels."""
        return self._slots[parameter].name

    def _take(self, exchange: GradientExchange, named_parameters: Iterable[tuple[str, Tensor]]) -> None:
        """A slot for each. A parameter given under several names (shared layers) has the first."""
        new = {
            name: parameter
            for name, parameter in distinct(named_parameters).items()
            if parameter not in self._slots and (parameter.requires_grad or parameter.dtype in NUMBERS)
        }
        if not self._roll_call.name:
            self._prefix = _free_prefix(self.session, self._prefix, (*new, _ROLL_CALL))
            self._roll_call = RollCall(self._prefix + _ROLL_CALL)
        known = {slot.name for slot in self._slots.values()}
        for name, parameter in new.items():
            slot = Slot(exchange, self._prefix + name, parameter, len(self._slots))
            if slot.name in known:
                raise ConfigError(f"add: there is a parameter called {name!r} already; give it another name")
            self._slots[parameter] = slot

    def bind(self) -> Session:
        """Declare everything in the current membership; done again by the first hook after ``resume()``."""
        self.session = session = current.required("GradientExchange")
        if self.is_idle:
            for slot in self._slots.values():
                slot.remove()
            return session
        specs = [slot.spec(self._codec) for slot in self._slots.values()]
        specs.append(self._roll_call.spec(len(specs)))
        _taken.setdefault(session, set()).update(spec.name for spec in specs)
        _declare(session, specs)
        for slot in self._slots.values():
            slot.bind(session)
        return session

    @property
    def is_idle(self) -> bool:
        """True in a job of one: nothing is pushed, unless the core has something to do to gradients."""
        return self.session.size == 1 and not self.has_momentum

    def declared(self) -> Iterator[tuple[str, tensors.Tensor]]:
        """Name of the parameter and declared tensor of everything whose gradient travels."""
        if current.session is not self.session:
            self.bind()
        if not self.is_idle:
            for slot in self._slots.values():
                yield slot.name.removeprefix(self._prefix), slot.declared

    def remove(self) -> None:
        """Take the hooks off, on every rank; the names can be used again."""
        taken = _taken.get(self.session, set())
        for slot in self._slots.values():
            slot.remove()
            taken.discard(slot.name)
        taken.discard(self._prefix + _ROLL_CALL)


def _free_prefix(session: Session, prefix: str, names: Iterable[str]) -> str:
    """``prefix``, or with a number in it if an exchange made before has one of the names."""
    taken = _taken.get(session, set())
    names, number, found = tuple(names), 1, prefix
    while any(found + name in taken for name in names):
        number += 1
        found = f"{prefix}{number}."
    return found


def _declare(session: Session, specs: list[Spec]) -> None:
    """Declare on all ranks together, so that every rank is told at once if one of them has another model.

    Without the barrier a rank that came first would go on, and wait for one that has died of the difference.
    """
    with contextlib.suppress(DeclarationError, OutOfMemoryError):
        session.declare(specs)
    session.barrier()
    for spec in specs:
        session.tensors[spec.name].check()
