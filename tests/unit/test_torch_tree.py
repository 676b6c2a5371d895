"""Objects as bytes and tensors: what is kept, what is refused, what never runs code."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import msgspec  # noqa: E402

from byteps.errors import BytePSError, ProtocolError, UnsupportedTensorError  # noqa: E402
from byteps.torch import tree  # noqa: E402


def cpu(kind: str) -> Any:
    return torch.device("cpu")


def test_small_tensors_travel_inside_and_large_ones_beside() -> None:
    small, large = torch.arange(3.0), torch.arange(20_000.0)
    data, beside = tree.pack({"small": small, "large": large}, "it", allow_pickle=False)
    assert [each.shape for each in beside] == [large.shape] and len(data) < 200
    found = tree.unpack(data, allow_pickle=False, device_of=cpu)
    assert torch.equal(found.value["small"], small)
    assert found.tensors[0].data_ptr() == found.value["large"].data_ptr()


@pytest.mark.parametrize(
    "value",
    [torch.tensor(-0.0), torch.tensor([float("nan")]), torch.tensor([1, 2], dtype=torch.int16).expand(2, 2)],
)
def test_bits_are_kept(value: Any) -> None:
    data, _ = tree.pack(value, "it", allow_pickle=False)
    found = tree.unpack(data, allow_pickle=False, device_of=cpu).value
    assert found.dtype is value.dtype and found.shape == value.shape
    assert found.numpy().tobytes() == value.contiguous().numpy().tobytes()


def test_what_needs_pickle_is_named_by_its_path() -> None:
    with pytest.raises(UnsupportedTensorError, match=r"state\['a'\]\[1\] is a builtins\.set"):
        tree.pack({"a": [1, {2}]}, "state", allow_pickle=False)
    with pytest.raises(UnsupportedTensorError, match="Tensor"):
        tree.pack(torch.eye(2).to_sparse(), "state", allow_pickle=False)


def test_pickle_is_not_read_where_it_is_not_allowed() -> None:
    data = msgspec.msgpack.encode(["pickle", pickle.dumps({1})])
    assert tree.unpack(data, allow_pickle=True, device_of=cpu).value == {1}
    with pytest.raises(UnsupportedTensorError):
        tree.unpack(data, allow_pickle=False, device_of=cpu)
    with pytest.raises(UnsupportedTensorError, match="dtype"):
        tree.unpack(msgspec.msgpack.encode(["dtype", "load"]), allow_pickle=False, device_of=cpu)


NONSENSE = [
    b"\x91" * 5_000 + b"\xc0",
    b"\xc1",
    b"\x92\xa3int\xa1x",
    *(
        msgspec.msgpack.encode(node)
        for node in (
            ["again", 3],
            ["again", "x"],
            ["list", 5],
            ["dict", [[["list", []], ["plain", 1]]]],
            ["numpy", "O", b"12345678"],
            ["numpy", "<f4", b""],
            ["dtype", 5],
            ["tensor", [False, False, "float32", [3], "cpu"], b"1234"],
            ["tensor", [False, False, "float32", [1 << 60], "cpu"], None],
            ["tensor", [], None],
        )
    ),
]


@pytest.mark.parametrize("data", NONSENSE, ids=range(len(NONSENSE)))
def test_bytes_that_nobody_packed_are_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="a received object"):
        tree.unpack(data, allow_pickle=False, device_of=cpu)


def test_changed_bytes_are_an_error_of_ours_or_another_object(seed: int) -> None:
    rng = random.Random(seed)
    value = {"a": [1, 2.5, (None, "x")], "b": torch.arange(6).reshape(2, 3), 3: torch.float16, "n": 1 << 70}
    packed, _ = tree.pack(value, "it", allow_pickle=False)
    for _ in range(2_000):
        data = bytearray(packed[: rng.randrange(len(packed) + 1)] if rng.random() < 0.3 else packed)
        for _ in range(rng.randrange(4) if data else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            tree.unpack(bytes(data), allow_pickle=False, device_of=cpu)
        except BytePSError:
            pass
