"""Do all ranks exchange the same tensors in a step? If not, every rank is told the first that differs.

A rank whose model has other names would wait for tensors that nobody sends. So each step carries one more
small tensor under a name that all ranks know: a number made from the list of names, dtypes and shapes. If the
sum over the ranks shows a difference, they exchange the lists themselves, and raise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from byteps.errors import DeclarationError
from byteps.observe.text import clean
from byteps.tensor import arrays, dtypes
from byteps.tensor.arrays import Array
from byteps.worker.handle import Handle
from byteps.worker.session import Session

__all__ = ["Agreement"]

_HASH_BYTES = 5  # so that the sum over millions of ranks fits into int64
_INT64 = dtypes.NUMBERS["int64"]
_UINT8 = dtypes.NUMBERS["uint8"]


class Agreement:
    """What one rank exchanges in a step: ``lines`` has a line of text for each tensor."""

    def __init__(self, verb: str, label: str, lines: Sequence[str]) -> None:
        self._verb = verb
        self._label = label  # the same on all ranks
        self._lines = list(lines)
        digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=_HASH_BYTES).digest()
        self._number = int.from_bytes(digest, "little")

    def ask(self, session: Session) -> Handle[Array]:
        """Begin; ``check`` waits for the answer."""
        declared = session.tensor(self._verb, f"{self._label} of all ranks", _INT64, (1,))
        value = np.array([self._number], np.int64)
        address = arrays.address(value)
        return session.push_pull(declared, address, address, False, 1, value, value)

    def check(self, session: Session, answer: Handle[Array]) -> None:
        """Raise DeclarationError if another rank exchanges other tensors than this one."""
        if int(answer.wait()[0]) != session.size * self._number:
            raise DeclarationError(self._explain(session))

    def _explain(self, session: Session) -> str:
        mine = "\n".join(self._lines).encode()
        texts = [
            self._text_of(session, rank, mine) for rank in range(session.size)
        ]  # every rank, all of them
        for rank, text in enumerate(texts):
            theirs = text.decode(errors="replace").split("\n")
            if theirs != self._lines:
                return self._difference(session.rank, rank, theirs)
        return f"{self._verb}: the ranks exchange different {self._label}, and differ in it from step to step"

    def _text_of(self, session: Session, rank: int, mine: bytes) -> bytes:
        length = np.array([len(mine)], np.int64)
        self._broadcast(session, f"{self._label}, length of the list", _INT64, length, rank)
        text = np.zeros(int(length[0]), np.uint8)
        if rank == session.rank:
            text[:] = np.frombuffer(mine, np.uint8)
        self._broadcast(session, f"{self._label}, list", _UINT8, text, rank)
        return text.tobytes()

    def _broadcast(self, session: Session, name: str, dtype: int, array: Array, root: int) -> None:
        declared = session.tensor(self._verb, name, dtype, array.shape)
        session.broadcast(declared, arrays.address(array), root, 1, array, array).wait()

    def _difference(self, rank: int, other: int, theirs: Sequence[str]) -> str:
        """The first place where the lists differ, in words; pure."""
        same = 0
        while self._lines[same : same + 1] == theirs[same : same + 1]:
            same += 1
        here = self._lines[same] if same < len(self._lines) else "nothing"
        there = clean(theirs[same]) if same < len(theirs) else "nothing"
        return (
            f"{self._verb}: the ranks exchange different {self._label}: number {same + 1} of "
            f"{len(self._lines)} is {here} on rank {rank}, and {there} (of {len(theirs)}) on rank {other}; "
            "build the same model, in the same order and under the same names, on all ranks"
        )
