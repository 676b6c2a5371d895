"""An object that is compared and printed by what it holds, as the scheduler's whole state is."""

from __future__ import annotations

__all__ = ["Value"]


class Value:
    """Two of one kind with equal attributes are equal; not hashable, since it changes.

    >>> class Point(Value):
    ...     def __init__(self, x: int) -> None:
    ...         self.x = x
    >>> Point(1) == Point(1), Point(1) == Point(2), Point(1)
    (True, False, Point(x=1))
    """

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        held = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({held})"
