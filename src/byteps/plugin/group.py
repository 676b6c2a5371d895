"""Tensors that a plugin exchanges together: all are on their way before the first is waited for.

What plugins without hooks on single gradients are built on (TensorFlow, Keras, MXNet, JAX). It knows NumPy
arrays and no framework. Names are given by the plugin; ranks that do not exchange the same tensors are told
which differ (``byteps.plugin.agreement``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from byteps.compress import parse
from byteps.plugin.agreement import Agreement
from byteps.tensor import arrays, dtypes
from byteps.tensor.arrays import Array
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.session import Session
from byteps.worker.tensors import Tensor, codec_of

__all__ = ["Converted", "Group", "Item", "Started", "numbered"]

_LINE_BYTES = 64  # what TensorFlow and XLA want of memory that they shall use without a copy


class Item(NamedTuple):
    """One tensor of a group, as far as it is known before there are values."""

    name: str
    dtype: int  # number of byteps.tensor.dtypes
    shape: tuple[int, ...] | None  # None: known only when there are values

    def __str__(self) -> str:
        shape = "[?]" if self.shape is None else str(list(self.shape))
        return f"{self.name} {dtypes.NAMES[self.dtype]} {shape}"


class Started(NamedTuple):
    """One tensor on its way, and for one of a group the question whether all ranks have the same group."""

    handle: Handle[Array]
    question: Handle[Array] | None


class Group:
    """Named tensors that every rank pushes in each step; ``root`` makes it a broadcast.

    The first tensor of a group is the most urgent. With ``agree`` the ranks compare their groups in each
    step, with one small operation beside the others: a rank may make its group anew at any time, as
    TensorFlow does when it traces a function again, so there is no other moment for it.
    """

    def __init__(
        self,
        verb: str,
        items: Sequence[Item],
        *,
        average: bool = True,
        root: int | None = None,
        priority: int = 0,
        compression_params: Mapping[str, object] | None = None,
        agree: str = "",
    ) -> None:
        self.verb = verb
        self.items = list(items)
        self.average = average
        self.root = root
        self.priority = priority
        # Scripts often pass every key, and none of them set.
        self.codec = codec_of(compression_params) if parse(compression_params).text() else ""
        self.agreement = Agreement(verb, agree, [str(item) for item in items]) if agree else None
        # Some frameworks make a group anew in every step: its names tell which one it is.
        self._step = "\n".join(item.name for item in items) if agree.startswith("gradients") else ""
        self._session: Session | None = None

    def bind(self) -> Session:
        """The membership, in which the tensors are declared with one message for all."""
        session = current.session or current.required(self.verb)
        if session is not self._session:
            session.declare(
                Spec(name, dtype, shape, self.codec) for name, dtype, shape in self.items if shape is not None
            )
            self._session = session
        return session

    def rate(self, lr: float | None, mu: float | None) -> None:
        """What error feedback and momentum in the core go by from now on: of the optimizer, at each step."""
        if self.codec:
            session: Any = self.bind()
            session.set_rates(lr, mu, [item.name for item in self.items])

    def ask(self) -> Handle[Array] | None:
        """Begin to compare the groups of all ranks; once in a step. ``finish`` looks at the answer."""
        session = self.bind()
        return None if self.agreement is None or session.size == 1 else self.agreement.ask(session)

    def start(self, index: int, array: Array) -> Handle[Array]:
        """Begin with one tensor; its result is a new array. ``array`` must not change before."""
        session = self.bind()
        source = array if array.flags.c_contiguous else arrays.contiguous(array)
        declared = self._declared(session, index, source.shape)
        result = _empty(session, source)
        address, priority = arrays.address(result), self.priority - index
        if self.root is None:
            return session.push_pull(
                declared, arrays.address(source), address, self.average, priority, (source, result), result
            )
        if session.rank == self.root:
            np.copyto(result, source)
        return session.broadcast(declared, address, self.root, priority, result, result)

    def start_in_place(
        self,
        index: int,
        address: int,
        shape: tuple[int, ...],
        keep: object,
        finish: Callable[[], object] | None = None,
    ) -> Handle[Any]:
        """Begin with one tensor whose result shall replace it; ``keep`` owns the memory at ``address``."""
        session = self.bind()
        declared = self._declared(session, index, shape)
        priority = self.priority - index
        if self.root is None:
            return session.push_pull(declared, address, address, self.average, priority, keep, keep, finish)
        return session.broadcast(declared, address, self.root, priority, keep, keep, finish)

    def _declared(self, session: Session, index: int, shape: tuple[int, ...]) -> Tensor:
        name, dtype, _ = self.items[index]
        found = session.tensors.get(name)
        if found is None or (found.shape, found.dtype, found.codec) != (shape, dtype, self.codec):
            found = session.tensor(self.verb, name, dtype, shape, self.codec)
        return found

    def finish(self, started: Sequence[Started]) -> list[Array]:
        """Wait for all, and give the results in the order of ``started``."""
        for one in started:
            if one.question is not None and self.agreement is not None:
                self.agreement.check(self.bind(), one.question)
        results = [one.handle.wait() for one in started]
        if self._step:
            self.bind().steps.mark(self._step)
        return results

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Exchange all: the last first, because a backward pass has made it first."""
        handles = self.run_async(arrays)
        return self.finish(handles)

    def run_async(self, arrays: Sequence[Array]) -> list[Started]:
        """Begin with all of them."""
        question = self.ask()
        started = [Started(self.start(i, arrays[i]), None) for i in reversed(range(len(arrays)))][::-1]
        if question is not None and started:
            started[0] = Started(started[0].handle, question)
        return started


def _empty(session: Session, like: Array) -> Array:
    """New memory for a result: shared with the ranks of this machine where there are any."""
    if session.has_arena:
        from byteps.worker.arena import empty

        return empty(like.shape, like.dtype)
    nbytes = like.nbytes
    memory = np.empty(nbytes + _LINE_BYTES, np.uint8)
    start = -arrays.address(memory) % _LINE_BYTES
    result: Array = memory[start : start + nbytes].view(like.dtype).reshape(like.shape)
    return result


class Converted(Handle[Any]):
    """A handle whose result is made from that of another one, once."""

    __slots__ = ("_convert", "_inner")

    def __init__(self, session: Session, inner: Handle[Any], convert: Callable[[Any], Any]) -> None:
        super().__init__(session, None, None, None)
        self._inner: Handle[Any] | None = inner
        self._convert = convert

    def done(self) -> bool:
        return self._inner is None or self._inner.done()

    def wait(self) -> Any:
        if self._inner is not None:
            self._result = self._convert(self._inner.wait())
            self._inner = None
        return self._result


def numbered(names: Sequence[str]) -> list[str]:
    """The names, made different where they are not.

    >>> numbered(["w", "b", "w"])
    ['w', 'b', 'w#2']
    """
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = count = seen.get(name, 0) + 1
        result.append(name if count == 1 else f"{name}#{count}")
    return result
