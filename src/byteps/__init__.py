"""Distributed training over ordinary networks: workers push gradients, servers sum them.

    import byteps as bps

    bps.init()
    mean = bps.push_pull(array, name="gradient")  # the same on every rank

The operations work on NumPy arrays and anything with the buffer protocol or DLPack; ``byteps.torch`` has
the same verbs on tensors. Without a launcher a script is a job of one, and everything works.

Importing this package is cheap: NumPy is loaded by the first operation on an array, the network by
``init()``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from byteps.errors import (
    BytePSError,
    ConfigError,
    DeclarationError,
    HandshakeError,
    JoinError,
    JoinTimeoutError,
    NotInitializedError,
    OperationTimeoutError,
    OutOfMemoryError,
    PeerLostError,
    ProtocolError,
    UnsupportedTensorError,
)
from byteps.version import __version__
from byteps.worker import current as _current
from byteps.worker.handle import Handle, ensure

if TYPE_CHECKING:
    from byteps.plugin.verbs import broadcast, declare, push_pull, push_pull_async
    from byteps.worker.arena import empty

__all__ = [
    "BytePSError",
    "ConfigError",
    "DeclarationError",
    "Handle",
    "HandshakeError",
    "JoinError",
    "JoinTimeoutError",
    "NotInitializedError",
    "OperationTimeoutError",
    "OutOfMemoryError",
    "PeerLostError",
    "ProtocolError",
    "UnsupportedTensorError",
    "__version__",
    "barrier",
    "broadcast",
    "counters",
    "declare",
    "empty",
    "get_pushpull_speed",
    "init",
    "is_initialized",
    "join",
    "join_context",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "push_pull_async",
    "rank",
    "resume",
    "shutdown",
    "size",
    "step",
    "suspend",
    "synchronize",
]

T = TypeVar("T")

_VERBS = ("broadcast", "declare", "push_pull", "push_pull_async")  # on arrays: they need NumPy


def __getattr__(name: str) -> Any:
    if name == "compress":  # set_rates(), register(): for those who want them
        import byteps.compress

        return byteps.compress
    if name == "empty":  # needs the native core, but neither NumPy nor a job
        from byteps.worker.arena import empty

        return globals().setdefault("empty", empty)
    if name not in _VERBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from byteps.plugin import verbs

    globals().update((verb, getattr(verbs, verb)) for verb in _VERBS)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_VERBS, "empty"})


def init() -> None:
    """Become a member of the job that the environment describes; a second call changes nothing.

    Waits until every member is there. Raises ConfigError for settings that do not fit, JoinTimeoutError
    naming who is missing after BYTEPS_CONNECT_TIMEOUT_S. Everything is released at exit without being
    asked.
    """
    _current.init()


def shutdown() -> None:
    """Leave the job. Operations in flight fail; a second call does nothing; ``init()`` joins again.

    Scheduler and servers stay for that until the processes of all workers have ended.
    """
    _current.shutdown()


def suspend() -> None:
    """Leave the job for a while, on every rank, and keep what codecs have accumulated for the next one.

    Continue with ``resume()``, perhaps as a job of another size.
    """
    _current.suspend()


def resume(num_workers: int, num_servers: int, global_rank: int | None = None) -> None:
    """Join again after ``suspend()``, perhaps as a job of another size or with another rank.

    Tensors are declared anew by their next operation.
    """
    _current.resume(num_workers, num_servers, global_rank)


def is_initialized() -> bool:
    """True between ``init()`` and ``shutdown()``."""
    return _current.session is not None


def rank() -> int:
    """This process's number in the job, from 0 to ``size() - 1``."""
    return _current.required("rank").rank


def size() -> int:
    """The number of ranks in the job."""
    return _current.required("size").size


def local_rank() -> int:
    """This process's number among the ranks of its machine."""
    return _current.required("local_rank").local_rank


def local_size() -> int:
    """The number of ranks on this machine."""
    return _current.required("local_size").local_size


def poll(handle: Handle[Any]) -> bool:
    """True when ``synchronize(handle)`` would not block."""
    return ensure(handle).done()


def synchronize(handle: Handle[T]) -> T:
    """Wait for an operation and return its result, or raise what went wrong; fine to call twice."""
    ensure(handle)
    return handle.wait()


def barrier() -> None:
    """Wait until every rank has come to its barrier. Raises PeerLostError, or OperationTimeoutError."""
    _current.required("barrier").barrier()


def join() -> int:
    """This rank is out of data: take part with nothing until all ranks are. Returns the last that had some.

    Averages of the others are over those who still have data. Inside ``join_context()``, or anywhere in a
    job with BYTEPS_JOIN=1; every rank calls it.
    """
    session = _current.required("join")
    if session.size == 1:
        return 0
    if session.joining is None:
        raise ConfigError(
            "join: the other ranks do not expect it, and would wait for this one; train inside "
            "join_context(), or set BYTEPS_JOIN=1 for the whole job"
        )
    return session.joining.join()


@contextlib.contextmanager
def join_context() -> Iterator[None]:
    """Ranks inside may run out of data at different times; the end of it is a ``join()``.

        with byteps.join_context():
            for array in my_arrays:          # another number on each rank
                mean = byteps.push_pull(array, name="mean")   # over those who still have one

    Every rank enters it, and begins the same operations in the same order as the others that have data, from
    one thread. Each is announced by a small sum. After an exception nobody is waited for.
    """
    session = _current.required("join_context")
    before = session.joining
    if before is None:
        session.expect_uneven_data(True)
    try:
        yield
        join()
    finally:
        if before is None:
            session.expect_uneven_data(False)


def step() -> None:
    """Say that a step of the training has ended, for traces and figures per step.

    Only for loops that use neither a ``DistributedOptimizer``, nor ``DistributedDataParallel``, nor another
    of this package's parts that end a step: those say it themselves. Once it has been called, only it counts.
    """
    _current.required("step").steps.mark_by_script()


def get_pushpull_speed() -> tuple[float, float]:
    """(milliseconds since the epoch, megabytes per second pushed and pulled lately); 0 in a job of one."""
    speed = _current.required("get_pushpull_speed").speed_bytes_per_s()
    return time.time() * 1e3, speed / 1e6


def counters() -> dict[str, int]:
    """What this rank has moved since it joined, by name.

    ``pushed_bytes`` and ``pulled_bytes`` count elements, ``pushed_wire_bytes`` and ``pulled_wire_bytes`` what
    travelled for them: less, where tensors are compressed. ``wire_sent_bytes`` and ``wire_received_bytes``
    are all bytes on the sockets, headers and control frames included, without what processes of one machine
    read out of each other's memory.
    """
    return _current.required("counters").counters()
