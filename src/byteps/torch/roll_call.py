"""What every rank tells the others in each exchange of gradients, as one small sum over the ranks.

    [0]     ranks that exchange inside step(): nobody could do anything to their gradients after it
    [1]     how many exchanges a rank is ahead of its steps
    [2]     the square of that
    [3:]    for each parameter, how many ranks have a gradient

The last tell a rank for which parameters it must contribute zeros: one that no rank used keeps
``grad = None``, as in one process, and one that some rank used has a gradient on all.

A rank that is out of data tells zeros (``worker/joining.py``): then the ranks that are counted are fewer.

The others are there because exchanges meet by their order: the k-th of one rank with the k-th of all others.
If one calls backward() or step() where another does not, parameters drift apart without a sign. A sum is n
times a number, and the sum of squares n times its square, only if all ranks have that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byteps.errors import BytePSError
from byteps.tensor import arrays, dtypes
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.session import Session

__all__ = ["RollCall"]

_HEAD = 3
_LEADS = 181  # the sum of squares of smaller numbers over 65,536 ranks fits into int32
_PRIORITY = 1  # before all gradients: some ranks wait for it before they send what is missing


class RollCall:
    """One for each exchange, under a name that all ranks know."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._sum = np.zeros(_HEAD, np.int32)
        self._lead = 0
        self._handle: Handle[Any] | None = None

    def spec(self, parameters: int) -> Spec:
        """To be declared; begins anew, for this number of parameters."""
        self._sum = np.zeros(_HEAD + parameters, np.int32)
        self._handle = None
        return Spec(self.name, dtypes.NUMBERS["int32"], self._sum.shape)

    def tell(self, session: Session, absent: Sequence[int], lead: int, in_step: bool) -> None:
        """``absent``: the parameters without a gradient here; ``lead``: exchanges less steps, before this."""
        self.check(session)  # of the last exchange, and long done
        self._lead = lead % _LEADS
        self._sum[_HEAD:] = 1
        if absent:
            self._sum[[_HEAD + index for index in absent]] = 0
        self._sum[:_HEAD] = in_step, self._lead, self._lead**2
        address = arrays.address(self._sum)
        declared = session.tensors[self.name]
        self._handle = session.push_pull(declared, address, address, False, _PRIORITY, self._sum, None)

    def tell_nothing(self, session: Session) -> None:
        """Take part without data; ``present`` then says what the others have."""
        self._sum[:] = 0
        address = arrays.address(self._sum)
        declared = session.tensors[self.name]
        self._handle = session.begin(declared, address, address, False, _PRIORITY, self._sum, None)

    def present(self) -> list[int]:
        """For each parameter, how many ranks have a gradient; waits until all ranks have told."""
        assert self._handle is not None
        self._handle.wait()
        counts: list[int] = self._sum[_HEAD:].tolist()
        return counts

    def forget(self) -> None:
        """It was the others' exchange: there is nothing to check."""
        self._handle = None

    def check(self, session: Session) -> int:
        """How many ranks exchange inside step(); BytePSError if the ranks are not equally far."""
        handle, self._handle = self._handle, None
        if handle is None:
            return 0
        handle.wait()
        in_step, leads, squares = self._sum[:_HEAD].tolist()
        ranks = session.contributors
        if leads != ranks * self._lead or squares != ranks * self._lead**2:
            raise BytePSError(
                "exchange of gradients: the ranks are not equally far; some have called backward(), step() "
                "or zero_grad() more often than others, so that gradients of different steps have met and "
                "parameters may differ; call them alike on all ranks, and let nothing decide that only one "
                "rank knows, such as its own loss"
            )
        return int(in_step)
