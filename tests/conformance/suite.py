"""What a check is and what it gets; ``checks.py`` lists them all. Each runs in all workers at once.

Data is ``byteps.testing.exact``: worker r contributes 4^r times a pattern, so a wrong sum tells who was
missing or counted twice, and results are compared without tolerance. Names of tensors begin with the
interface and the check, so that a check that fails leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from interfaces import Interface

from byteps.testing import exact
from byteps.testing.checks import Checks

SHAPES = [(), (1,), (0,), (3, 0, 2), (7,), (2, 3, 5), (1, 1, 1, 1), (1025,), (33, 129)]


@dataclass
class Context:
    """What a check needs to know."""

    api: Interface
    check: str
    folder: Path  # seen by all ranks

    @property
    def bps(self) -> Any:
        return self.api.bps

    @property
    def rank(self) -> int:
        return int(self.bps.rank())

    @property
    def size(self) -> int:
        return int(self.bps.size())

    def name(self, *parts: object) -> str:
        return ".".join(map(str, (self.api.name, self.check, *parts)))

    def mine(self, shape: tuple[int, ...], dtype: str = "float32", salt: int = 0) -> Any:
        """This rank's contribution."""
        values = exact.contribution(self.rank, shape, signed=dtype != "uint8", salt=salt)
        return self.api.make(values, dtype)

    def expect(
        self, got: Any, shape: tuple[int, ...], dtype: str = "float32", *, average: bool, salt: int = 0
    ) -> None:
        """``got`` must be the exact sum or average."""
        signed = dtype != "uint8"
        if average:
            wanted = exact.average(self.size, shape, whole="int" in dtype, signed=signed, salt=salt)
        else:
            wanted = exact.total(self.size, shape, signed=signed, salt=salt)
        assert tuple(got.shape) == shape, (got.shape, shape)
        assert self.api.dtype_of(got) == dtype, (got.dtype, dtype)
        np.testing.assert_array_equal(self.api.values(got), wanted)


check = Checks()  # each takes a Context
IN_PLACE_CHECKS: set[str] = set()


def in_place_check(function: Callable[[Context], None]) -> Callable[[Context], None]:
    """Add a check for interfaces whose tensors can be replaced in place."""
    IN_PLACE_CHECKS.add(function.__name__)
    return check(function)


def raises(
    kind: type[Exception], text: str, verb: Callable[..., object], *args: Any, **named: Any
) -> Exception:
    """Like pytest.raises, which a worker need not load."""
    try:
        verb(*args, **named)
    except kind as error:
        assert text in str(error), f"{text!r} is not in: {error}"
        return error
    raise AssertionError(f"expected {kind.__name__} with {text!r}, but nothing was raised")
