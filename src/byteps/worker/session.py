"""A membership in a job: this rank's place, its declared tensors, and the operations on them.

A session is made by ``connect.become_member()`` from a control plane and a data plane (``interface.py``) and
ends with ``leave()``. It works on names, dtype numbers, shapes and addresses; turning arrays and framework
tensors into those is the business of ``byteps.tensor.arrays`` and of the plugins.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from byteps.config import Config
from byteps.errors import (
    BytePSError,
    ConfigError,
    OperationTimeoutError,
    OutOfMemoryError,
    PeerLostError,
)
from byteps.worker import codec_state
from byteps.worker.failures import again, translate
from byteps.worker.handle import Handle
from byteps.worker.interface import Client, Control, Follower, NativeHandle, Place, Spec
from byteps.worker.steps import Steps
from byteps.worker.tensors import Tensor, Tensors

if TYPE_CHECKING:
    from byteps.observe.flight import FlightRecorder
    from byteps.worker.joining import Joining

__all__ = ["Session"]

T = TypeVar("T")
F = TypeVar("F", bound=Follower)

logger = logging.getLogger("byteps.worker")

VERDICT_S = 1.0  # a scheduler that has given this process up says why: its words may still be unread

_kept_for_ever: list[object] = []


class Session:
    """One membership. Thread-safe: hooks of a framework may call from any thread."""

    def __init__(
        self,
        config: Config,
        place: Place,
        control: Control,
        client: Client,
        *,
        shares_memory: bool = False,
        on_step: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.config = config
        self.has_arena = shares_memory  # memory of the arena is worth allocating: no copy to reduce it
        self.rank, self.size, self.local_rank, self.local_size = place
        self._control = control
        self._client = client
        self._tensors = Tensors(control, client, config)
        self.tensors = self._tensors.by_name  # read by the plugins on their fast path
        self.steps = Steps(on_step)
        self.flight: FlightRecorder | None = None  # of a job of more than one
        self._followers: list[Follower] = []
        self._followers_lock = threading.Lock()
        self._orphans: dict[int, tuple[NativeHandle, object]] = {}
        self._failed: BytePSError | None = None
        self._loss_known = threading.Event()
        self._names = ""
        self._left = False
        self._lock = threading.Lock()
        self._departures: dict[int, str] = {}  # what ranks have said when they left
        self._departure_known = threading.Event()
        # By name, how a rank that is out of data takes part in an exchange of gradients; weak.
        self.exchanges: dict[str, Callable[[], Callable[[bool], object] | None]] = {}
        self.joining: Joining | None = None  # while uneven data is expected
        if config.join and self.size > 1:
            self.expect_uneven_data(True)

    # Tensors

    def declare(self, specs: Iterable[Spec]) -> None:
        """Declare many tensors with one message; those already declared alike cost nothing."""
        self._check()
        try:
            self._tensors.declare(specs)
        except Exception as error:
            raise self.failure(error) from None

    def tensor(
        self,
        verb: str,
        name: str | None,
        dtype: int,
        shape: tuple[int, ...],
        codec: str = "",
        *,
        direct: bool = False,
        generation: int | None = None,
    ) -> Tensor:
        """The declared tensor for an operation; declares it first where that is needed."""
        if name is None:
            if self.config.enable_async:
                raise ConfigError(
                    f"{verb} without a name: it would be made from the order of calls, which differs between "
                    "ranks with BYTEPS_ENABLE_ASYNC=1; pass name=..."
                )
            name = self._tensors.automatic_name(verb, dtype, shape, codec)
        spec = Spec(name, dtype, shape, codec, direct, generation)
        known = self.tensors.get(name)
        if known is None or not known.is_like(spec):
            self.declare([spec])
            known = self.tensors[name]
        return known

    def set_rates(self, lr: float | None, mu: float | None, names: Iterable[str] | None = None) -> None:
        """What codecs and momentum in the core go by, for all tensors or for some; None changes nothing."""
        self._tensors.set_rates(names, lr, mu)

    # Operations. ``keep`` owns the memory at the addresses; ``result`` is what synchronize() returns.

    def push_pull(
        self,
        tensor: Tensor,
        src: int,
        dst: int,
        average: bool,
        priority: int,
        keep: object,
        result: T,
        finish: Callable[[], object] | None = None,
    ) -> Handle[T]:
        """Start a push-pull from ``src`` to ``dst``, which may be the same address."""
        if self.joining is not None:
            return self.joining.push_pull(tensor, src, dst, average, priority, keep, result, finish)
        return self.begin(tensor, src, dst, average, priority, keep, result, finish)

    def begin(
        self,
        tensor: Tensor,
        src: int,
        dst: int,
        average: bool,
        priority: int,
        keep: object,
        result: T,
        finish: Callable[[], object] | None = None,
    ) -> Handle[T]:
        """``push_pull`` over all ranks, whoever has data."""
        if self._orphans:
            self._sweep()
        if tensor.native is None:
            return self._nothing_to_move(tensor, result)
        try:
            if tensor.is_rated:
                native = self._client.push_pull(
                    tensor.native, src, dst, priority, bool(average), tensor.lr, tensor.mu
                )
            else:
                native = self._client.push_pull(tensor.native, src, dst, priority, bool(average))
        except Exception as error:
            raise self._refusal(error, "push_pull", tensor, priority) from None
        tensor.track(native)
        return Handle(self, native, result, keep, finish)

    def broadcast(
        self,
        tensor: Tensor,
        address: int,
        root: int,
        priority: int,
        keep: object,
        result: T,
        finish: Callable[[], object] | None = None,
    ) -> Handle[T]:
        """Start a broadcast in place: the bits at ``address`` of the root land everywhere."""
        if root not in range(self.size):
            raise ConfigError(
                f"broadcast of {tensor.name}: root_rank={root!r} is not a rank of this job; "
                f"expected 0 to {self.size - 1}"
            )
        if self.joining is not None:
            self.joining.broadcast(tensor, root)
        return self.begin_broadcast(tensor, address, root, priority, keep, result, finish)

    def begin_broadcast(
        self,
        tensor: Tensor,
        address: int,
        root: int,
        priority: int,
        keep: object,
        result: T,
        finish: Callable[[], object] | None,
    ) -> Handle[T]:
        """``broadcast`` from a rank that has data."""
        if self._orphans:
            self._sweep()
        if tensor.native is None:
            return self._nothing_to_move(tensor, result)
        try:
            native = self._client.broadcast(tensor.native, address, int(root), priority)
        except Exception as error:
            raise self._refusal(error, "broadcast", tensor, priority) from None
        tensor.track(native)
        return Handle(self, native, result, keep, finish)

    def _refusal(self, error: Exception, verb: str, tensor: Tensor, priority: object) -> Exception:
        """The core takes few types. What it said about an argument is for engineers; this is for users."""
        if isinstance(priority, int) and -(1 << 31) <= priority < 1 << 31:
            return self.failure(error)
        return ConfigError(
            f"{verb} of {tensor.name}: priority={priority!r}, expected a whole number of 32 bits"
        )

    def _nothing_to_move(self, tensor: Tensor, result: T) -> Handle[T]:
        """A tensor of zero elements is declared and compared like any other, and done at once."""
        self._check()
        tensor.check()
        return Handle(self, None, result, None)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self._check()
        if self.joining is not None:
            self.joining.barrier()
            return
        try:
            self._control.barrier(self.config.op_timeout_s)
        except Exception as error:
            raise self.failure(error) from None

    # Memory of operations whose handles were dropped

    def adopt(self, native: NativeHandle, keep: object) -> None:
        """Own the memory of an operation nobody waits for, until the core is done with it."""
        self._orphans[id(native)] = (native, keep)

    def _sweep(self) -> None:
        # One entry at a time: the garbage collector may drop a handle, in any thread, while this runs.
        for key, (native, _) in list(self._orphans.items()):
            if native.done():
                self._orphans.pop(key, None)

    # Uneven data

    def expect_uneven_data(self, expect: bool) -> None:
        """From now on ranks may run out of data, or no more; on all ranks at the same point."""
        if expect and self.config.enable_async:
            raise ConfigError(
                "join_context: with BYTEPS_ENABLE_ASYNC=1 ranks wait for nobody: uneven data needs no join"
            )
        from byteps.worker.joining import Joining  # few jobs need it

        self.joining = Joining(self) if expect and self.size > 1 else None

    @property
    def contributors(self) -> int:
        """How many ranks contribute to what is exchanged now."""
        return self.size if self.joining is None else len(self.joining.active)

    # Numbers

    def counters(self) -> dict[str, int]:
        """Bytes and operations since the start of this membership."""
        return self._client.counters()

    def speed_bytes_per_s(self) -> float:
        """Bytes pushed and pulled per second, lately."""
        return self._client.speed_bytes_per_s() if self.config.telemetry_on else 0.0

    # Parts of plugins

    def follower(self, kind: type[F], make: Callable[[], F]) -> F:
        """The one follower of this kind; the first who asks makes it, the others wait for that."""
        with self._followers_lock:
            for found in self._followers:
                if isinstance(found, kind):
                    return found
            made = make()
            self._followers.append(made)
        if self._failed is not None:  # the news may have come before there was anybody to tell
            made.fail(again(self._failed))
        return made

    # Failure and end

    def failure(self, error: Exception) -> Exception:
        """The exception to raise for ``error``. The loss of a peer is final: it is remembered."""
        failure = self._failure(error)
        if self.flight is not None and isinstance(failure, BytePSError) and hasattr(failure, "add_note"):
            path = self.flight.last
            if isinstance(failure, (OperationTimeoutError, PeerLostError)):
                path = self.flight.write(str(failure), final=isinstance(failure, PeerLostError))
            if path:  # tracebacks show it below the message; Python 3.10 has the line of the log
                failure.add_note(f"the last seconds of this process are in {path}")
        return failure

    def _failure(self, error: Exception) -> Exception:
        translated = translate(error)
        if isinstance(translated, PeerLostError):
            if (translated.role, translated.rank) == ("worker", self.rank):
                # The others went on without this process while it was stopped, and their board says so first.
                self._loss_known.wait(VERDICT_S)
                translated.args = (f"this process was given up by the others: {translated}",)
            elif self._failed is None and translated.role == "worker" and self.steps.number:
                self._look_for_uneven_data(translated)
            elif self._failed is None and translated.role in ("scheduler", "server"):
                from byteps.worker import autopsy  # a job of one has neither

                autopsy.look(translated.role, self.config)
            self.lost(translated)
        if self._failed is not None and isinstance(translated, BytePSError):
            return again(self._failed)  # what the loss led to is no news
        if self._names and isinstance(translated, OperationTimeoutError):
            return OperationTimeoutError(f"{translated}; {self._names}")
        return translated

    def _look_for_uneven_data(self, error: PeerLostError) -> None:
        """A rank that has left in peace said how many steps it had made; its words may still be unread."""
        if not str(error).endswith("has left the job"):
            return
        from byteps.worker.joining import explained

        if error.rank not in self._departures:
            self._departure_known.wait(VERDICT_S)
        said = self._departures.get(error.rank, "")
        if why := explained(said, error.rank, self.rank, self.steps.number + 1):
            error.args = (f"{why} ({error})",)

    def departed(self, rank: int, reason: str) -> None:
        """A rank has said goodbye. Control thread."""
        self._departures[rank] = reason
        self._departure_known.set()

    def names_differ(self, text: str) -> None:
        """Which names only some ranks have declared: why operations may wait in vain. Control thread."""
        self._names = text

    def _check(self) -> None:
        if self._failed is not None:
            raise again(self._failed)

    @property
    def has_failed(self) -> bool:
        """A member was lost, or memory ran out: no operation will succeed any more."""
        return self._failed is not None

    def lost(self, error: PeerLostError) -> None:
        """A member is gone: everything in flight and later raises. Any thread; the first loss counts."""
        self._end(error, "LOST", error.role, error.rank, error.host)

    def run_out(self, why: str) -> None:
        """This process has no memory to go on: everything in flight and later raises."""
        text = f"worker {self.rank} ran out of memory: {why}; give it more, or make the model smaller"
        self._end(OutOfMemoryError(text), "MEMORY")

    def _end(self, error: BytePSError, kind: str, role: str = "", rank: int = -1, host: str = "") -> None:
        with self._lock:
            if self._left or self._failed is not None:
                return
            self._failed = again(error)
            self._loss_known.set()
        from byteps._core import FailureKind  # a job of one never needs these two
        from byteps.control import blame

        who = blame.Whom("worker", self.rank, pid=os.getpid())
        blame.tell(self.config.blame, blame.words(who, error))
        logger.error("%s", error)
        self._client.fail(FailureKind[kind], str(error), role, rank, host)
        for follower in list(self._followers):
            follower.fail(again(error))

    def refuse(self, name: str, tensor_id: int, text: str, lack: bool = False) -> None:
        """Ranks disagree on a tensor, or one has no memory for it. Called by the control thread."""
        logger.info("%s", text)  # whoever uses the tensor gets it as an exception
        self._tensors.refuse(name, tensor_id, text, lack)
        for follower in list(self._followers):
            follower.refuse(name, text)

    def leave(
        self, *, suspend: bool = False, for_good: bool = False, failed: bool = False, reason: str = ""
    ) -> None:
        """End this membership; bounded, and fine to call twice.

        Unless it leaves ``for_good``, the process stays connected: scheduler and servers live on for as long
        as it may join again. ``suspend`` keeps what codecs have accumulated, too.
        """
        with self._lock:
            if self._left:
                return
            self._left = True
        for follower in list(self._followers):
            follower.close()
        if suspend and self._failed is None:
            codec_state.kept.keep(self.tensors.values())
        else:
            codec_state.kept.clear()
        because = self._failed if failed and isinstance(self._failed, PeerLostError) else None
        if not reason:
            reason = self._farewell()
        try:
            stays = not (for_good or failed)
            self._control.leave(suspend=stays, failed=failed, reason=reason, because=because)
        except Exception as error:  # we go all the same, and the others will notice
            logger.warning("could not say goodbye to the scheduler: %s: %s", type(error).__name__, error)
        finally:
            self._client.close()
            # What another rank may still be writing to is never freed; see Operation::given_up in the core.
            _kept_for_ever.extend(keep for native, keep in self._orphans.values() if not native.done())
            self._orphans.clear()

    def _farewell(self) -> str:
        steps = self.steps.number
        if steps:
            return f"it finished after {steps} step{'s' * (steps != 1)}"
        done = self._client.counters()["operations"]
        return f"it left after {done} operation{'s' * (done != 1)}"

    def inherited_fds(self) -> list[int]:
        """Descriptors that a forked child must let go of."""
        return self._control.inherited_fds()
