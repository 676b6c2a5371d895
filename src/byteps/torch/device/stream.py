"""When the work of a device begins and ends, for the thread that asks for it; nothing to do on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.cuda

__all__ = ["Stream"]

cuda: Any = torch.cuda  # without types


class Stream:
    """A stream of our own: our copies and collectives do not wait for the model's work, nor it for them."""

    def __init__(self, device: torch.device) -> None:
        self._stream = cuda.Stream(device) if device.type == "cuda" else None

    def mark(self) -> Any:
        """What the calling thread has asked the device for until now."""
        if self._stream is None:
            return None
        event = cuda.Event()
        event.record()
        return event

    @contextmanager
    def after(self, mark: Any) -> Iterator[None]:
        """Work inside begins after ``mark``, and has ended when the block has."""
        if self._stream is None:
            yield
            return
        with cuda.stream(self._stream):
            if mark is not None:
                self._stream.wait_event(mark)
            yield
            self._stream.synchronize()
