"""What ranks of torch.distributed take out of their store, to which anybody may have written."""

from __future__ import annotations

import json
import os

import pytest

pytest.importorskip("torch")

from byteps.errors import ProtocolError
from byteps.torch.process_group import agree

JOB = {"DMLC_PS_ROOT_URI": "::1", "DMLC_PS_ROOT_PORT": "9", "BYTEPS_JOB_ID": "x", "BYTEPS_JOB_SECRET": "y"}


class Store(dict[str, bytes]):
    def set(self, name: str, text: str) -> None:
        self[name] = text.encode()

    def get(self, name: str) -> bytes:  # type: ignore[override]
        return self[name]


def test_rank_0_tells_the_others_one_job() -> None:
    store = Store()
    first = agree._new_job(store, 0)
    os.close(int(first.pop("BYTEPS_LISTEN_FD")))
    assert agree._new_job(store, 1) == first and set(first) == set(JOB)
    assert len(first["BYTEPS_JOB_SECRET"]) == 64


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(JOB | {"LD_PRELOAD": "/x.so"}),
        json.dumps({**JOB, "BYTEPS_JOB_ID": 5}),
        json.dumps({"BYTEPS_JOB_ID": "x"}),
        "[" * 5_000,
        '{"BYTEPS_JOB_ID": "\ud83d"',
        "",
    ],
    ids=["another name", "no text", "too few", "nested", "cut", "nothing"],
)
def test_what_is_no_job_gets_nowhere_near_the_environment(written: str) -> None:
    store = Store({"byteps/job": written.encode(errors="surrogatepass")})
    with pytest.raises(ProtocolError, match=r"the store of torch\.distributed"):
        agree._new_job(store, 1)
