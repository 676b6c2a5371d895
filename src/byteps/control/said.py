"""What peers send as MessagePack: how it is read, and which texts in it are for people.

A ``Text`` ends up in logs, errors and terminals. A message that is ``Said`` cleans its texts as it is made,
so on both ends and before anybody can show them. Every other string stays as the peer wrote it, because it
names something exactly; it is shown with ``!r``.
"""

from __future__ import annotations

import functools
import typing
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from byteps.errors import ProtocolError
from byteps.observe.text import clean

__all__ = ["Said", "Text", "TextTable", "unpack"]

Text = Annotated[str, Meta(extra={"for": "people"})]
TextTable = Annotated[dict[str, str], Meta(max_length=64, extra={"for": "people"})]

T = TypeVar("T")


class Said(Struct, frozen=True):
    """A message, or a part of one, that has texts."""

    def __post_init__(self) -> None:
        for name in texts_of(type(self)):
            given: Any = getattr(self, name)
            if isinstance(given, str):
                shown: Any = clean(given)
            else:
                shown = {clean(key): clean(value) for key, value in given.items()}
            if shown != given:
                msgspec.structs.force_setattr(self, name, shown)


@functools.cache
def texts_of(kind: type[Struct]) -> tuple[str, ...]:
    """The fields that are for people."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(name for name, hint in hints.items() if hint in (Text, TextTable))


def unpack(decoder: msgspec.msgpack.Decoder[T] | msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    """The message in ``data``; ProtocolError says what is wrong with it.

    Values that are nested too deeply for the decoder are the peer's doing, too, although Python calls that a
    RecursionError; its stack is unwound by the time it gets here.
    """
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = clean(str(error), 300)
        raise ProtocolError(f"{what} of {len(data)} bytes does not decode: {why}") from None
