"""The learning rate and the momentum that codecs go by: ``set_rates`` hands them to the session.

A session needs codecs, so this folder must not look for sessions: ``init()`` says here how to find the one
that there is (``find_session``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from byteps.errors import NotInitializedError

__all__ = ["find_session", "set_rates"]


class Rated(Protocol):
    """What a session has for this."""

    def set_rates(self, lr: float | None, mu: float | None, names: Iterable[str] | None = None) -> None: ...


def _before_the_first_init(operation: str) -> Rated:
    raise NotInitializedError(f"{operation}: this process is not a member of a job; call byteps.init() first")


# The session, or an error that says why there is none; replaced by the first init().
find_session: Callable[[str], Rated] = _before_the_first_init


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
    for key, value in (("lr", lr), ("momentum", momentum)):
        if value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"set_rates: {key}={value!r}, expected a finite number that is not negative")
    find_session("set_rates").set_rates(lr, momentum, None if names is None else list(names))
