"""A process finds a word in its own memory, and nothing where there is none."""

from __future__ import annotations

import os

import msgspec
import pytest

from byteps import _core
from byteps.control.hello import NO_MEMORY, Memory
from byteps.control.memory import own_memory, readable, return_probe


def test_a_process_can_read_itself() -> None:
    own = own_memory()
    assert own == Memory(os.getpid(), *_core.memory_nonce()) and own == own_memory()
    assert readable(own)
    assert return_probe(own) == own


@pytest.mark.parametrize(
    "theirs",
    [
        NO_MEMORY,
        msgspec.structs.replace(own_memory(), value=1),
        msgspec.structs.replace(own_memory(), address=8),
        msgspec.structs.replace(own_memory(), pid=(1 << 22) + 1),
        msgspec.structs.replace(own_memory(), address=1 << 62),
    ],
)
def test_what_is_not_there_is_not_found(theirs: Memory) -> None:
    assert not readable(theirs)
    assert return_probe(theirs) == NO_MEMORY
