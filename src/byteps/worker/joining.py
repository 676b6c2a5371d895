"""Uneven data: a rank that is out of data takes part with nothing until all are.

Operations meet by their order, so a rank that has none of its own must learn what the others begin. While
uneven data is expected, every operation is therefore announced first, the gradients of a step together: one
small sum over all ranks, to which a rank out of data contributes nothing.

    [0 : size]      1 at the place of each rank that still has data: whom averages are over
    [size]          bytes of the words
    [size + 1 :]    the words, which say what is begun; every rank with data says the same

A rank out of data reads the words and contributes what changes no sum: 0, or -0.0, for 0.0 would change a
sum of -0.0. An average over those who have data is their sum, divided by their number where it lands: the
same two roundings, in the same order, as on the server. Half types are summed and divided in float32 for
that, and rounded once. A compressed tensor travels uncompressed while somebody is out of data: what codecs
hold back stays where it is, and the average is exact.
"""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from byteps.errors import BytePSError, ConfigError
from byteps.tensor import dtypes
from byteps.worker.handle import Handle

if TYPE_CHECKING:
    from byteps.worker.session import Session
    from byteps.worker.tensors import Tensor

__all__ = ["Joining", "Route", "explained", "route"]

NAME = "byteps.joining"
_WORDS = 1000  # bytes; a name alone may have a few hundred
_PRIORITY = 2  # before everything: others wait for it before they send anything
_INT32, _FLOAT32 = dtypes.NUMBERS["int32"], dtypes.NUMBERS["float32"]
_HALVES = (dtypes.NUMBERS["float16"], dtypes.NUMBERS["bfloat16"])
_FLOATS = (*_HALVES, _FLOAT32, dtypes.NUMBERS["float64"])


class Route(NamedTuple):
    """How a tensor travels while somebody is out of data: under which name, in which dtype."""

    name: str
    dtype: int
    is_apart: bool  # not as the tensor that it is declared as


def route(name: str, dtype: int, codec: str, average: bool) -> Route:
    """Pure.

    >>> route("w", 0, "onebit", average=True).is_apart
    True
    """
    wide = average and dtype in _HALVES
    if not wide and not codec:
        return Route(name, dtype, False)
    return Route(f"{name}.uneven", _FLOAT32 if wide else dtype, True)


_FINISHED = re.compile(r"it finished after (\d+) steps?")


def explained(reason: str, rank: int, own_rank: int, own_steps: int) -> str:
    """What to say of a rank that has left, given why; nothing if it was not for want of data. Pure.

    >>> explained("it finished after 10 steps", 0, 1, 11)[:72]
    'rank 0 finished after 10 steps, rank 1 wants an 11th: uneven data; give '
    """
    found = _FINISHED.fullmatch(reason)
    if found is None or own_steps <= int(found[1]):
        return ""
    steps = int(found[1])
    return (
        f"rank {rank} finished after {steps} step{'s' * (steps != 1)}, rank {own_rank} wants "
        f"{_ordinal(steps + 1)}: uneven data; give every rank as many batches (DistributedSampler, "
        "drop_last=True), or train inside join_context()"
    )


def _ordinal(number: int) -> str:
    """
    >>> _ordinal(11), _ordinal(8), _ordinal(22), _ordinal(103)
    ('an 11th', 'an 8th', 'a 22nd', 'a 103rd')
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    article = "an" if number in (11, 18) or str(number)[0] == "8" else "a"
    return f"{article} {number}{ending}"


class Joining:
    """What one session knows of uneven data. All ranks begin operations in one order, from one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.active = list(range(session.size))  # ranks with data, as of the last announcement
        self._announced: dict[str, frozenset[str]] = {}  # names that the step of an exchange needs

    # A rank with data

    def push_pull(
        self,
        tensor: Tensor,
        src: int,
        dst: int,
        average: bool,
        priority: int,
        keep: object,
        result: Any,
        finish: Callable[[], object] | None,
    ) -> Handle[Any]:
        """What ``Session.push_pull`` does, over those who have data."""
        session = self._session
        if not any(tensor.name in names for names in self._announced.values()):
            self._announce(["sum", tensor.name, tensor.dtype, tensor.shape, tensor.codec, bool(average)])
        if len(self.active) == session.size:
            return session.begin(tensor, src, dst, average, priority, keep, result, finish)
        return self._over_active(tensor, src, dst, average, priority, keep, result, finish)

    def _over_active(
        self,
        tensor: Tensor,
        src: int,
        dst: int,
        average: bool,
        priority: int,
        keep: object,
        result: Any,
        finish: Callable[[], object] | None,
    ) -> Handle[Any]:
        session, divisor = self._session, len(self.active)
        count = math.prod(tensor.shape)
        travels = route(tensor.name, tensor.dtype, tensor.codec, average)
        if travels.is_apart:
            tensor_there = session.tensor("push_pull", travels.name, travels.dtype, tensor.shape)
        else:
            tensor_there = tensor
        is_wide = travels.dtype != tensor.dtype
        wide = _widened(src, count, tensor.dtype) if is_wide else None
        at, to = (src, dst) if wide is None else (wide.ctypes.data, wide.ctypes.data)

        def land() -> None:
            if average and count:
                from byteps import _core

                _core.reduce_average(travels.dtype, to, count, divisor)
            if wide is not None:
                _narrow(wide, dst, tensor.dtype)
            if finish is not None:
                finish()

        return session.begin(tensor_there, at, to, False, priority, (keep, wide), result, land)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Before a broadcast; its root must have data."""
        self._announce(["broadcast", tensor.name, tensor.dtype, tensor.shape, root])
        if root not in self.active:
            raise ConfigError(
                f"broadcast of {tensor.name}: rank {root}, its root, is out of data; broadcast from a rank "
                f"that has some ({', '.join(map(str, self.active))}), or after join()"
            )

    def barrier(self) -> None:
        """Until every rank is here or out of data."""
        self._announce(["barrier"])

    def lowest_active(self) -> int:
        """The lowest rank that still has data: all ranks with data ask at once, and get the same."""
        self._announce(["who"])
        return self.active[0]

    def begin_step(self, name: str, tensors: Iterable[str]) -> None:
        """The exchange of this name begins: no tensor of it needs an announcement of its own."""
        self._announce(["step", name])
        self._announced[name] = frozenset(tensors)

    def end_step(self, name: str) -> None:
        """All of it is in flight. Only now those without data can know to which tensors they contribute."""
        if self._announced.pop(name, None) is not None and len(self.active) < self._session.size:
            self._announce(["contribute", name])

    def _announce(self, words: list[Any]) -> None:
        found = self._exchange(json.dumps(words).encode())
        if found is None:
            raise BytePSError(
                f"{words[0]} of {words[1] if len(words) > 1 else 'all ranks'}: another rank begins something "
                "else; with uneven data all ranks that have some begin the same operations in the same order"
            )

    def _exchange(self, words: bytes | None) -> bytes | None:
        """One announcement, or with None the part in one of a rank out of data.

        The words of those who have data, which are the same ones; None if they are not.
        """
        import numpy as np

        session = self._session
        table = np.zeros(session.size + 1 + _WORDS, np.int32)
        if words is not None:
            if len(words) > _WORDS:
                raise ConfigError(
                    f"{words[:80].decode(errors='replace')}...: too long a name for uneven data"
                )
            table[session.rank] = 1
            table[session.size] = len(words)
            table[session.size + 1 : session.size + 1 + len(words)] = list(words)
        own = table[session.size :].copy()
        declared = session.tensor("join", NAME, _INT32, table.shape)
        address = table.ctypes.data
        session.begin(declared, address, address, False, _PRIORITY, table, None, None).wait()
        self.active = np.flatnonzero(table[: session.size]).tolist()
        if not self.active:
            return b""
        said, rest = np.divmod(table[session.size :], len(self.active))
        if rest.any() or (words is not None and not np.array_equal(said, own)):
            return None
        return bytes(said[1 : 1 + int(said[0])].astype(np.uint8))

    # A rank without data

    def join(self) -> int:
        """Take part with nothing until all ranks are out of data; the last rank that had some."""
        last = self.active
        while True:
            words = self._exchange(None)
            if not self.active:
                self.active = list(range(self._session.size))
                return max(last)
            if words is None:
                raise BytePSError(
                    "join: the ranks that still have data begin different operations; they must begin the "
                    "same ones in the same order"
                )
            last = self.active
            self._take_part(json.loads(words))

    def _take_part(self, words: list[Any]) -> None:
        kind, rest = words[0], words[1:]
        if kind == "sum":
            name, dtype, shape, codec, average = rest
            self.contribute_nothing(name, dtype, tuple(shape), codec, average, 0)
        elif kind == "broadcast":
            name, dtype, shape, root = rest
            if root in self.active:
                tensor = self._session.tensor("broadcast", name, dtype, tuple(shape))
                memory = _nothing(dtype, math.prod(shape))
                self._session.begin_broadcast(tensor, memory.ctypes.data, root, 0, memory, None, None)
        elif kind in ("step", "contribute"):
            found = self._session.exchanges.get(rest[0], lambda: None)()
            if found is None:
                raise BytePSError(
                    f"join: the others train with {rest[0]}, which this rank does not have; make the same "
                    "optimizers and models on every rank, and keep them until join() returns"
                )
            found(kind == "contribute")

    def contribute_nothing(
        self, name: str, dtype: int, shape: tuple[int, ...], codec: str, average: bool, priority: int
    ) -> None:
        """To one sum that the others have announced; its result is dropped."""
        session = self._session
        travels = route(name, dtype, codec, average)
        tensor = session.tensor("push_pull", travels.name, travels.dtype, shape)
        memory = _nothing(travels.dtype, math.prod(shape))
        session.begin(tensor, memory.ctypes.data, memory.ctypes.data, False, priority, memory, None, None)


def _nothing(dtype: int, count: int) -> Any:
    """What changes no sum: 0, for floating point numbers -0.0, which is a sign bit."""
    import numpy as np

    size = dtypes.ITEM_BYTES[dtype]
    memory = np.zeros(count, f"u{size}")
    if dtype in _FLOATS:
        memory |= np.array(1 << (8 * size - 1), memory.dtype)
    return memory


def _memory(address: int, count: int, kind: str) -> Any:
    import numpy as np

    dtype = np.dtype(kind)
    if not count:
        return np.empty(0, dtype)
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


def _widened(address: int, count: int, dtype: int) -> Any:
    """Half types as float32; exact."""
    import numpy as np

    if dtype == dtypes.NUMBERS["float16"]:
        return _memory(address, count, "f2").astype(np.float32)
    return (_memory(address, count, "u2").astype(np.uint32) << 16).view(np.float32)


def _narrow(wide: Any, address: int, dtype: int) -> None:
    """To the nearest number of a half type, ties to even, as the core rounds."""
    import numpy as np

    if dtype == dtypes.NUMBERS["float16"]:
        with np.errstate(over="ignore"):
            _memory(address, wide.size, "f2")[...] = wide.astype(np.float16)
        return
    bits = wide.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    not_a_number = (bits & 0x7FFFFFFF) > 0x7F800000
    _memory(address, wide.size, "u2")[...] = np.where(not_a_number, (bits >> 16) | 0x40, rounded)
