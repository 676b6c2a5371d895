"""Gradient compression: its parameters, and a readable NumPy reference of every codec.

What travels is made by the native core (``native/compress``); ``reference`` says what it must make, bit for
bit. docs/compression.md says which codec is for what.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from byteps.compress.params import CodecSpec, parse

if TYPE_CHECKING:
    from byteps.compress.custom import register

__all__ = ["CodecSpec", "parse", "register", "set_rates"]


def __getattr__(name: str) -> Any:
    if name == "register":  # needs NumPy, which the parameters alone do not
        from byteps.compress.custom import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def set_rates(
    lr: float | None = None, momentum: float | None = None, names: Iterable[str] | None = None
) -> None:
    """Tell codecs the learning rate and the momentum, for all tensors or for those of these names.

        byteps.compress.set_rates(lr=0.1, momentum=0.9)  # before each push_pull where they change

    ``DistributedOptimizer`` reads both from the optimizer by itself; ``push_pull`` on arrays, our
    DistributedDataParallel and the communication hook cannot know them. The learning rate is for "corrected"
    and "sparse" error feedback (unknown, it corrects nothing), the momentum for "nesterov" (0.9 if nobody
    says). They hold from the next operation on, until they are set again, for this membership.
    """
    from byteps.worker import current

    for key, value in (("lr", lr), ("momentum", momentum)):
        if value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"set_rates: {key}={value!r}, expected a finite number that is not negative")
    current.required("set_rates").set_rates(lr, momentum, None if names is None else list(names))
