"""Arrays as memory: what is taken, what is refused, and in which words."""

from __future__ import annotations

import array
import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

from byteps.errors import UnsupportedTensorError
from byteps.tensor import arrays, dtypes


@pytest.mark.parametrize("name", [name for name in dtypes.NAMES if name != "bfloat16"])
def test_every_dtype_has_its_number(name: str) -> None:
    data = np.zeros(3, name)
    assert arrays.dtype_number(data, "push_pull", "x") == dtypes.NUMBERS[name]
    assert data.itemsize == dtypes.ITEM_BYTES[dtypes.NUMBERS[name]]


def test_bfloat16_of_an_extension_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Extension:  # what _arrays looks at in the dtype of ml_dtypes
        name, itemsize, isnative = "bfloat16", 2, True

    class Data:
        dtype = Extension()

    monkeypatch.setattr(arrays, "_NUMBERS", {})
    for _ in range(2):  # and is remembered
        assert arrays.dtype_number(Data(), "push_pull", "x") == 7  # type: ignore[arg-type]
    assert list(arrays._NUMBERS.values()) == [7]


@pytest.mark.parametrize(
    "dtype", ["bool", "complex64", "U3", "S2", "int16", "uint32", "datetime64[s]", "object", "f4,i4"]
)
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(UnsupportedTensorError) as caught:
        arrays.dtype_number(np.zeros(2, dtype), "push_pull", "layer.weight")
    for word in ("push_pull of layer.weight", str(np.dtype(dtype)), dtypes.VALID, "astype"):
        assert word in str(caught.value)


def test_foreign_byte_order_is_refused() -> None:
    foreign = np.dtype("float32").newbyteorder()
    with pytest.raises(UnsupportedTensorError, match="float32 in foreign byte order"):
        arrays.dtype_number(np.zeros(2, foreign), "push_pull", None)


BUFFERS: list[tuple[Any, str, list[float]]] = [
    (b"ab", "uint8", [97, 98]),
    (bytearray(b"ab"), "uint8", [97, 98]),
    (memoryview(b"ab"), "uint8", [97, 98]),
    (array.array("f", [1, 2]), "float32", [1, 2]),
    (array.array("q", [1, 2]), "int64", [1, 2]),
    ((ctypes.c_double * 2)(3, 4), "float64", [3, 4]),
    (np.float32(5), "float32", 5),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("data", "dtype", "values"), BUFFERS, ids=lambda value: type(value).__name__)
def test_the_buffer_protocol(data: Any, dtype: str, values: Any) -> None:
    found = arrays.to_array(data)
    assert found.dtype == np.dtype(dtype) and found.tolist() == values


def test_memory_is_shared() -> None:
    with mmap.mmap(-1, 16) as memory:
        found = arrays.to_array(memory)
        found[3] = 7
        assert memory[3] == 7
        del found


def test_dlpack() -> None:
    class OnlyDlpack:
        def __init__(self) -> None:
            self.data = np.arange(4, dtype=np.float32)

        def __dlpack__(self, **options: Any) -> Any:
            return self.data.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.data.__dlpack_device__()  # type: ignore[return-value]

    assert arrays.to_array(OnlyDlpack()).tolist() == [0, 1, 2, 3]


def test_dlpack_that_numpy_cannot_read() -> None:
    torch = pytest.importorskip("torch")
    assert arrays.to_array(torch.ones(2)).tolist() == [1, 1]
    for tensor in (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, requires_grad=True)):
        with pytest.raises(UnsupportedTensorError, match=r"Tensor cannot be read.*byteps\.torch"):
            arrays.to_array(tensor)


@pytest.mark.parametrize("data", [3, 2.5, [1, 2], None, "text", {"a": 1}])
def test_what_is_no_array_is_refused(data: object) -> None:
    with pytest.raises(
        UnsupportedTensorError, match=rf"{type(data).__name__} is not an array.*numpy\.asarray"
    ):
        arrays.to_array(data)


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(UnsupportedTensorError, match="mask"):
        arrays.to_array(np.ma.masked_array([1.0, 2.0], mask=[0, 1]))


def test_subclasses_become_plain_arrays() -> None:
    class Special(np.ndarray[Any, Any]):
        pass

    assert type(arrays.to_array(np.zeros(3).view(Special))) is np.ndarray


@pytest.mark.parametrize(
    "make", [lambda a: a, lambda a: a[::2], lambda a: a.reshape(2, 3).T, lambda a: a[0:1].reshape(())]
)
def test_contiguous_keeps_shape_and_values(make: Any) -> None:
    data = make(np.arange(6.0))
    found = arrays.contiguous(data)
    assert found.flags.c_contiguous and found.shape == data.shape and (found == data).all()


def test_the_address_of_arrays_of_every_kind() -> None:
    writable = np.zeros(4)
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    for data in (writable, read_only, np.zeros(0), np.zeros(()), writable[1:]):
        assert arrays.address(data) == data.ctypes.data
