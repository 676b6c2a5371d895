"""A control plane and a data plane that tests drive by hand: operations are done when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from byteps import config
from byteps.worker.interface import Place, Placement, Spec
from byteps.worker.session import Session

PARTITION_BYTES = 96


class FakeOpError(Exception):
    """Stands for ``_core.OpError``."""


class FakeHandle:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.event.is_set()

    def wait(self) -> None:
        assert self.event.wait(10.0), "the test never completed this operation"
        if self.error is not None:
            raise self.error

    def complete(self, error: Exception | None = None) -> None:
        self.error = error
        self.event.set()


class FakeClient:
    def __init__(self) -> None:
        self.declared: list[tuple[int, str, int, int, int, list[tuple[int, int]]]] = []
        self.options: list[dict[str, Any]] = []  # what each tensor was declared with besides
        self.handles: list[FakeHandle] = []
        self.calls: list[tuple[Any, ...]] = []
        self.failures: list[tuple[Any, ...]] = []
        self.closed = False
        self.refuse_with: Exception | None = None
        self.stuck: list[FakeHandle] = []  # another rank may be writing to their memory: never done

    def declare(self, *arguments: Any, **options: Any) -> str:
        self.declared.append(arguments)  # type: ignore[arg-type]
        self.options.append(options)
        return f"native {arguments[0]}"

    def push_pull(self, tensor: Any, src: int, dst: int, priority: int, average: bool) -> FakeHandle:
        return self._start("push_pull", tensor, src, dst, priority, average)

    def broadcast(self, tensor: Any, address: int, root: int, priority: int) -> FakeHandle:
        return self._start("broadcast", tensor, address, root, priority)

    def _start(self, *call: Any) -> FakeHandle:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.calls.append(call)
        self.handles.append(FakeHandle())
        return self.handles[-1]

    def fail(self, *arguments: Any) -> None:
        self.failures.append(arguments)

    def forget(self, tensor_id: int) -> None:
        self.forgotten = [*getattr(self, "forgotten", []), tensor_id]

    def fail_tensor(self, *arguments: Any) -> None:
        self.failures.append(arguments)

    def counters(self) -> dict[str, int]:
        return {"operations": len(self.calls)}

    def speed_bytes_per_s(self) -> float:
        return 5e6

    def close(self) -> None:
        self.closed = True
        for handle in self.handles:
            if handle not in self.stuck:
                handle.complete(handle.error)


class FakeControl:
    def __init__(self) -> None:
        self.messages: list[list[tuple[Spec, int]]] = []
        self.left: list[dict[str, Any]] = []
        self.barriers = 0
        self.lacks: list[tuple[int, str]] = []
        self.on_declare: Callable[[Sequence[tuple[Spec, int]]], None] = lambda specs: None
        self._next_id = 0

    def declare(self, specs: Sequence[tuple[Spec, int]]) -> list[Placement]:
        self.messages.append(list(specs))
        self.on_declare(specs)
        first, self._next_id = self._next_id, self._next_id + len(specs)
        return [Placement(tensor_id, [(0, 0)], PARTITION_BYTES) for tensor_id in range(first, self._next_id)]

    def lack(self, tensor_id: int, reason: str) -> None:
        self.lacks.append((tensor_id, reason))

    def barrier(self, timeout_s: float) -> None:
        self.barriers += 1

    def leave(self, **arguments: Any) -> None:
        self.left.append(arguments)

    def inherited_fds(self) -> list[int]:
        return []


def session(environ: dict[str, str] | None = None, place: Place | None = None) -> Session:
    """A session of rank 1 of 2 over fresh fakes, to be found in ``_client`` and ``_control``."""
    return Session(config.load(environ or {}), place or Place(1, 2, 0, 1), FakeControl(), FakeClient())
