"""The steps of every push-pull on a device, carried out by two threads.

    caller's thread       the operation is ready to reduce
    collectives' thread   [reduce], copy to the host, begin the push
    network's thread      the push is done: ready to gather
    collectives' thread   copy back, [gather]: done

Steps in brackets are collectives of the machine. ``order`` puts both kinds into one order that all ranks
follow, so one communicator is enough (several at once can block each other with NCCL). Any number of tensors
may be between their two steps: with a limit, two machines that begin in different orders would wait for each
other, each with its places full of what the other one has not begun. Priorities order the pushes between
machines, not the steps inside one.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter

import torch
from torch import Tensor

from byteps.errors import BytePSError, DeclarationError, NotInitializedError, OperationTimeoutError
from byteps.torch.device.group import LEADER, Group
from byteps.torch.device.operation import Operation
from byteps.torch.device.order import Order
from byteps.torch.device.route import Route, chunk
from byteps.torch.device.staging import Staging
from byteps.torch.device.stream import Stream
from byteps.worker import tensors
from byteps.worker.failures import again
from byteps.worker.handle import Handle
from byteps.worker.session import Session

__all__ = ["Pipeline"]

NEWS_OF_LOSS_S = 3.0  # a collective breaks before the news comes whose death broke it


class Pipeline:
    """One for each membership; the session tells it of losses, refusals and the end."""

    def __init__(
        self,
        session: Session,
        group: Group,
        order: Order,
        route: Route,
        device: torch.device,
        store: object = None,
    ) -> None:
        self.route = route
        self.device = device
        self.group = group
        self.stream = Stream(device)
        self._session = session
        self._order = order
        self._store = store  # the leader's: it lives as long as the pipeline
        self._staging = Staging(pinned=device.type == "cuda")
        self._open: dict[str, Operation] = {}
        self._rounds: Counter[tuple[str, int]] = Counter()
        self._pushed: queue.SimpleQueue[tuple[Operation, Handle[None]] | None] = queue.SimpleQueue()
        self._failed: BytePSError | None = None
        self._changed = threading.Condition()
        for name, body in (("collectives", self._collect), ("network", self._follow_pushes)):
            threading.Thread(target=body, name=f"byteps-device-{name}", daemon=True).start()

    # From the user's threads, and from the session's

    def key(self, tensor: tensors.Tensor) -> str:
        """Name, generation and round: ranks count their own calls, so the same call has the same key."""
        with self._changed:
            number = tensor.name, tensor.generation
            self._rounds[number] += 1
            return f"{tensor.name} {tensor.generation} {self._rounds[number]}"

    def submit(self, operation: Operation) -> None:
        """Begin; the operation ends by itself."""
        operation.mark = self.stream.mark()
        with self._changed:
            if self._failed is not None:
                raise again(self._failed)
            self._open[operation.key] = operation
            self._changed.notify_all()
        self._ready("reduce", operation)

    def fail(self, error: BytePSError) -> None:
        """Nothing can go on: a member is lost, or a collective broke. The first reason counts."""
        with self._changed:
            if self._failed is not None:
                return
            self._failed = error
            left, self._open = list(self._open.values()), {}
            self._changed.notify_all()
        self._pushed.put(None)
        for operation in left:
            operation.end(again(error))

    def refuse(self, name: str, text: str) -> None:
        """Ranks disagree on a tensor: perhaps not all of this machine will ever be ready for it."""
        with self._changed:
            refused = [each for each in self._open.values() if each.name == name]
        for operation in refused:
            operation.end(DeclarationError(text))
            if operation.rail is not None:  # other machines may never push theirs
                self._session.refuse(operation.rail.name, operation.rail.tensor_id, text)

    def close(self) -> None:
        """The membership ends."""
        # A thread that waits for the others in a step ends when they go or at its deadline; it is a daemon.
        self.fail(NotInitializedError("this rank has left the job before its push_pull was done"))

    # The thread of the collectives

    def _collect(self) -> None:
        while (wanted := self._wanted()) is not None:
            try:
                kind, _, key = self._order.next(wanted.step).partition(" ")
                with self._changed:
                    operation = self._open.get(key)
                if operation is None:
                    return  # failed meanwhile
                self._carry_out(kind, operation)
                if self.group.rank == LEADER:
                    self._order.forget()
            except OperationTimeoutError as error:
                if not wanted.done():  # for what was refused meanwhile nobody waits any more
                    self.fail(error)
            except Exception as error:
                self._broken(wanted.step, error)

    def _wanted(self) -> Operation | None:
        """An operation whose next step this rank waits for; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or self._waiting() is not None)
            operation = self._waiting()
            if self._failed is not None or operation is None:
                return None
            return operation

    def _waiting(self) -> Operation | None:
        return next((each for each in self._open.values() if not each.done()), None)

    def _carry_out(self, kind: str, operation: Operation) -> None:
        if kind == "gather":
            self._gather(operation)
        elif self.route is Route.MACHINE:
            self._reduce_here(operation)
        else:
            self._reduce(operation)

    def _reduce_here(self, operation: Operation) -> None:
        with self.stream.after(operation.mark):
            self.group.sum(operation.work)
            if operation.average:
                divide(operation.work, self._session.size)
        self._end(operation)

    def _reduce(self, operation: Operation) -> None:
        work, ranks = operation.work, self.group.ranks
        with self.stream.after(operation.mark):
            if self.route is Route.LEADER:
                operation.whole = operation.mine = work
                self.group.sum_to_leader(work)
            else:
                size = chunk(work.numel(), ranks)
                operation.whole = padded(work, size * ranks)
                operation.mine = work.new_empty(size)
                self.group.scatter_sums(operation.mine, operation.whole)
            if operation.rail is not None:
                values = operation.mine[: operation.rail.shape[0]]
                operation.host = self._staging.take(values)
                operation.host.copy_(values, non_blocking=True)
        if operation.host is None or operation.rail is None:
            self._ready("gather", operation)
            return
        address = operation.host.data_ptr()
        try:
            handle = self._session.push_pull(
                operation.rail, address, address, operation.average, operation.priority, operation.host, None
            )
        except Exception as error:
            self._not_pushed(operation, error)
        else:
            self._pushed.put((operation, handle))

    def _gather(self, operation: Operation) -> None:
        whole, mine = operation.whole, operation.mine
        assert whole is not None and mine is not None
        with self.stream.after(None):
            if operation.host is not None:
                mine[: operation.host.numel()].copy_(operation.host, non_blocking=True)
            if self.route is Route.LEADER:
                self.group.copy_from_leader(whole)
            else:
                self.group.gather(whole, mine)
                if whole is not operation.work:
                    operation.work.copy_(whole[: operation.work.numel()])
        if operation.host is not None:
            self._staging.give(operation.host)
        self._end(operation)

    def _end(self, operation: Operation) -> None:
        with self._changed:
            self._open.pop(operation.key, None)
        operation.whole = operation.mine = operation.host = None
        operation.end()

    def _broken(self, step: str, error: Exception) -> None:
        """A step failed. Whose death did it is better news than a broken connection, and comes soon."""
        if not isinstance(error, BytePSError):
            with self._changed:
                self._changed.wait_for(lambda: self._failed is not None, NEWS_OF_LOSS_S)
            error = BytePSError(
                f"push_pull: step {step!r} among the ranks of this machine failed: "
                f"{type(error).__name__}: {error}; look at the output of the other ranks"
            )
        self.fail(error)

    # The thread of the network

    def _follow_pushes(self) -> None:
        """In the order of the pushes: one that is done early waits a little, and needs no thread."""
        while (pushed := self._pushed.get()) is not None:
            operation, handle = pushed
            try:
                handle.wait()
            except Exception as error:
                self._not_pushed(operation, error)
            else:
                self._ready("gather", operation)

    # Both

    def _not_pushed(self, operation: Operation, error: Exception) -> None:
        """The others of this machine may have their parts and wait for ours: gather, then raise."""
        operation.error = error
        self._ready("gather", operation)

    def _ready(self, kind: str, operation: Operation) -> None:
        operation.step = f"{kind} {operation.key}"
        try:
            self._order.ready(operation.step)
        except RuntimeError as error:
            self._broken(operation.step, error)


def divide(tensor: Tensor, divisor: int) -> None:
    """In place; averages of integers are rounded toward zero, as everywhere here."""
    if tensor.is_floating_point():
        tensor.div_(divisor)
    else:
        tensor.div_(divisor, rounding_mode="trunc")


def padded(flat: Tensor, elements: int) -> Tensor:
    """``flat`` itself, or a copy with zeros behind it, which add nothing."""
    if flat.numel() == elements:
        return flat
    whole = flat.new_zeros(elements)
    whole[: flat.numel()].copy_(flat)
    return whole
