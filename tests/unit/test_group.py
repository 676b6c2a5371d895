"""Tensors that travel together: names, results, and what is said when ranks have different ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import byteps
from byteps.errors import NotInitializedError
from byteps.plugin.agreement import Agreement
from byteps.plugin.group import Group, Item, numbered
from byteps.tensor import dtypes

FLOAT32 = dtypes.NUMBERS["float32"]


@pytest.fixture
def alone() -> Iterator[None]:
    byteps.init()
    yield
    byteps.shutdown()


def test_names_are_made_different() -> None:
    assert numbered(["w", "b", "w", "w"]) == ["w", "b", "w#2", "w#3"]


def test_an_item_says_what_it_is() -> None:
    assert str(Item("w", FLOAT32, (2, 3))) == "w float32 [2, 3]"
    assert str(Item("w", FLOAT32, None)) == "w float32 [?]"


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4)])
def test_results_are_new_and_aligned(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    array = np.asarray(rng.standard_normal(shape), np.float32)
    group = Group("push_pull", [Item("x", FLOAT32, shape), Item("y", FLOAT32, None)], agree="things")
    one, two = group.run([array, array.T])
    np.testing.assert_array_equal(one, array)
    np.testing.assert_array_equal(two, array.T)
    assert not np.shares_memory(one, array)
    assert not one.size or one.ctypes.data % 64 == 0  # or frameworks would copy it


@pytest.mark.usefixtures("alone")
def test_keys_that_are_not_set_are_no_codec() -> None:
    unset = {"compressor": "", "k": None, "ef": "", "scaling": False, "fp16": False}
    assert Group("push_pull", [], compression_params=unset).codec == ""
    with pytest.raises(ValueError, match="nonsense"):
        Group("push_pull", [], compression_params={"compressor": "nonsense"})


def test_before_init() -> None:
    group = Group("push_pull", [Item("x", FLOAT32, (1,))])
    with pytest.raises(NotInitializedError, match="push_pull"):
        group.run([np.ones(1, np.float32)])


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (["a", "b"], ["a", "c"], ["number 2 of 2 is b on rank 0", "c (of 2) on rank 1"]),
        (["a"], ["a", "b"], ["number 2 of 1 is nothing on rank 0", "b (of 2) on rank 1"]),
        (["a", "b"], ["a"], ["number 2 of 2 is b on rank 0", "nothing (of 1) on rank 1"]),
    ],
)
def test_the_first_difference_is_named(mine: list[str], theirs: list[str], words: list[str]) -> None:
    text = Agreement("push_pull", "gradients", mine)._difference(0, 1, theirs)
    assert all(word in text for word in words), text
