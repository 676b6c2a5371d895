"""What looks at a session of this rank from beside: it marks steps, writes traces and the last seconds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from byteps import _core
from byteps.config import Config
from byteps.control.messages import Dump, Report, Tracing
from byteps.errors import BytePSError
from byteps.observe import metrics, signals
from byteps.observe.flight import FlightRecorder
from byteps.observe.recorder import Self
from byteps.observe.reporter import Reporter, Watching
from byteps.tensor.partition import aligned
from byteps.tensor.tuning import USUAL_BYTES
from byteps.worker.tracing import Tracer

if TYPE_CHECKING:
    from byteps.worker.control import ControlClient
    from byteps.worker.session import Session

__all__ = ["Observer"]

CLOCK_QUESTIONS = 5  # the quickest answer tells most


class Observer:
    """Follows one session. Any thread."""

    def __init__(self, config: Config, session: Session, control: ControlClient) -> None:
        def names() -> dict[int, str]:
            return {each.tensor_id: each.name for each in list(session.tensors.values())}

        credit_bytes = config.scheduling_credit * aligned(config.partition_bytes or USUAL_BYTES)
        self.who = Self("worker", session.rank, session.local_rank, credit_bytes, names, control.clock)
        self._control = control
        self.flight = FlightRecorder(config, lambda: self.who)
        self._tracer: Tracer | None = None
        if config.trace_on:
            self._tracer = Tracer(config, self.who, self._tell_tracing)
        port = config.metrics_port + 1 + session.rank if config.metrics_port else None

        def reporter(port: int | None = None) -> Reporter:
            return Reporter(
                "worker",
                session.rank,
                port,
                lambda: metrics.of_worker(session.counters()),
                lambda samples: control.report(Report(list(samples))),
            )

        self._reporter = None if port is None else reporter(port)
        self.watching = Watching(reporter)
        signals.on_dump_signal(lambda: self.flight.write_soon("this process got SIGUSR2"))

    def on_step(self, number: int) -> None:
        """A step has ended."""
        _core.record_step(number)
        if self._tracer is not None:
            self._tracer.on_step(number)

    def _tell_tracing(self, begins: bool) -> None:
        for _ in range(CLOCK_QUESTIONS):
            self._control.ask_clock()
        self._control.report(Tracing(begins))

    def watch(self, for_s: float) -> None:
        """Somebody looks at the job."""
        if self._reporter is None:
            self.watching.watch(for_s)

    # The flight recorder

    def stalled(self, text: str) -> None:
        """An operation waits for long: everybody writes what they know of it. Does not wait for the disk."""

        def write() -> None:
            if self.flight.write(text):
                self._control.report(Dump(text[:1_000]))

        threading.Thread(target=write, name="byteps-flight", daemon=True).start()

    def fail(self, error: BytePSError) -> None:
        """A member is lost."""
        self.flight.write(str(error), final=True)
        if self._tracer is not None:
            self._tracer.fail(error)

    def refuse(self, name: str, text: str) -> None:
        """Ranks disagree on a tensor: whoever uses it hears of it."""

    def close(self) -> None:
        """The membership ends."""
        self.watching.close()
        if self._reporter is not None:
            self._reporter.close()
        signals.on_dump_signal(None)
        if self._tracer is not None:
            self._tracer.close()
