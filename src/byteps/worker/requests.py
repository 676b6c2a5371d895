"""Questions to the scheduler that wait for their answers, and how declarations are cut into messages."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from byteps.control import tasks
from byteps.control.messages import MAX_BATCH_PARTITIONS, MAX_BATCH_TENSORS, Message, Placed, TensorSpec
from byteps.errors import BytePSError, OperationTimeoutError, ProtocolError
from byteps.tensor.dtypes import ITEM_BYTES
from byteps.tensor.partition import MAX_PARTITIONS, aligned
from byteps.tensor.runs import count, spread
from byteps.worker.interface import Placement, Spec

T = TypeVar("T")


class Requests:
    """Open questions by number. Lives in one asyncio loop; ``fail`` ends all of them, now and later."""

    def __init__(self) -> None:
        self.hint = ""  # what the scheduler last said about a wait
        self._open: dict[int, asyncio.Future[Message]] = {}
        self._numbers = itertools.count(1)
        self._failure: BytePSError | None = None

    async def ask(
        self, what: str, make: Callable[[int], Message], send: Callable[[Message], None], timeout_s: float
    ) -> Message:
        """Send ``make(number)`` and wait for the answer with that number."""
        number, answer = self._begin()
        try:
            self.hint = ""
            if not answer.done():
                send(make(number))
            return await asyncio.wait_for(answer, timeout_s)
        except asyncio.TimeoutError:
            why = self.hint or "the scheduler did not answer"
            raise OperationTimeoutError(
                f"{what} took longer than {timeout_s:g} s (BYTEPS_OP_TIMEOUT_S): {why}"
            ) from None
        finally:
            del self._open[number]

    async def unless_failed(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work``, but give up as soon as a member is lost: it may be the one that is waited for."""
        number, alarm = self._begin()
        task = asyncio.ensure_future(work)
        both: set[asyncio.Future[Any]] = {task, alarm}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                alarm.result()  # raises
            return task.result()
        finally:
            del self._open[number]
            if not task.done():
                await tasks.end(task)
            elif alarm.done():
                alarm.exception()  # seen: asyncio need not complain

    def answer(self, number: int, message: Message) -> None:
        """An answer has come; nobody may be waiting for it any more."""
        waiter = self._open.get(number)
        if waiter is not None and not waiter.done():
            waiter.set_result(message)

    def fail(self, failure: BytePSError) -> None:
        """No answer will ever come. The first failure is the one that counts."""
        self._failure = self._failure or failure
        for waiter in self._open.values():
            if not waiter.done():
                waiter.set_exception(copy.copy(self._failure))

    def _begin(self) -> tuple[int, asyncio.Future[Message]]:
        number = next(self._numbers)
        waiter = self._open[number] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            waiter.set_exception(copy.copy(self._failure))
        return number, waiter


def batches(tensors: Sequence[TensorSpec], partition_bytes: int) -> Iterator[list[TensorSpec]]:
    """Declarations whose answers fit in one control frame; many small tensors go together."""
    batch: list[TensorSpec] = []
    partitions = 0
    for spec in tensors:
        nbytes = ITEM_BYTES[spec.dtype] if 0 <= spec.dtype < len(ITEM_BYTES) else 0
        for extent in spec.shape:
            nbytes *= extent
        count = nbytes // aligned(partition_bytes) + 1
        if batch and (len(batch) == MAX_BATCH_TENSORS or partitions + count > MAX_BATCH_PARTITIONS):
            yield batch
            batch, partitions = [], 0
        batch.append(spec)
        partitions += count
    if batch:
        yield batch


def told_spec(spec: Spec, generation: int) -> TensorSpec:
    """What the scheduler is told of a tensor."""
    return TensorSpec(spec.name, generation, spec.dtype, list(spec.shape), spec.codec, spec.direct)


def placements(placed: Sequence[Placed]) -> list[Placement]:
    """The scheduler's answer written out: the place of every partition."""
    for each in placed:
        if count(each.placement) > MAX_PARTITIONS:
            raise ProtocolError(
                f"the scheduler placed {count(each.placement)} partitions of a tensor, at most "
                f"{MAX_PARTITIONS} are possible"
            )
    return [Placement(each.tensor_id, spread(each.placement), each.partition_bytes) for each in placed]
