"""An asyncio loop in a daemon thread of its own, for code that blocks elsewhere."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from byteps.control.shortage import LOOP, ensure
from byteps.errors import NotInitializedError, OperationTimeoutError

T = TypeVar("T")

STOP_S = 2.0
RUN_S = 30.0  # for work that takes no time: only somebody who holds the GIL can delay it


class LoopThread:
    """Runs coroutines and callbacks for other threads. A daemon: it never keeps the process alive."""

    def __init__(self, name: str) -> None:
        ensure(LOOP)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=STOP_S))
            self.loop.close()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine there and wait for it here. Ctrl-C and the time-out cancel it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise NotInitializedError("the control thread has ended; call byteps.init() again") from None
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise NotInitializedError("the control thread ended during the operation") from None
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # the coroutine's own: in new Pythons all time-outs are of one kind
            future.cancel()
            raise OperationTimeoutError(f"the control thread could not run for {timeout_s:g} s") from None
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[[], T], timeout_s: float = RUN_S) -> T:
        """Run a function there and wait for its result here; in the thread itself, just run it."""
        if threading.current_thread() is self._thread:
            return function()

        async def work() -> T:
            return function()

        return self.call(work(), timeout_s)

    def stop(self) -> None:
        """End the loop and the thread; fine to call twice."""
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_S)
