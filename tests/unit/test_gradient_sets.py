"""The gradients of the benchmark: as many tensors and bytes as the networks have."""

from __future__ import annotations

import math

import pytest

from byteps.tools.bench.gradient_sets import SETS, backward, bert_base, buckets, nbytes, resnet50


def test_resnet50() -> None:
    tensors = resnet50()
    assert len(tensors) == 161
    assert nbytes(tensors) == 25_557_032 * 4  # the number of its parameters, as published
    assert tensors["conv1.weight"] == (64, 3, 7, 7)
    assert tensors["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert tensors["layer4.2.conv2.weight"] == (512, 512, 3, 3)
    assert tensors["fc.weight"] == (1000, 2048)


def test_bert_base() -> None:
    tensors = bert_base()
    assert len(tensors) == 199
    assert nbytes(tensors) == 109_482_240 * 4  # as published
    assert tensors["encoder.layer.11.intermediate.dense.weight"] == (3072, 768)
    assert tensors["pooler.dense.bias"] == (768,)


@pytest.mark.parametrize("name", SETS)
def test_backward_order_is_the_same_set_from_the_end(name: str) -> None:
    tensors = SETS[name]()
    assert list(backward(tensors)) == list(tensors)[::-1]
    assert backward(tensors) == tensors


@pytest.mark.parametrize("total", [4, 96, 100, 104])
def test_buckets_hold_every_byte_once(total: int) -> None:
    found = buckets(total, 100)
    assert sum(math.prod(shape) for shape in found.values()) * 4 == total
    assert all(math.prod(shape) == 25 for shape in list(found.values())[:-1])
