"""The gradients of two well-known networks as names and shapes, made from their architecture.

ResNet-50 as in the paper of He and others (2015), BERT-base (uncased, with its pooler) as in the one of
Devlin and others (2018); names as their PyTorch versions have them, in the order of the forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

__all__ = ["SETS", "Tensors", "backward", "bert_base", "buckets", "nbytes", "resnet50"]

Tensors = dict[str, tuple[int, ...]]

_FLOAT32_BYTES = 4


def resnet50() -> Tensors:
    """161 tensors: 53 convolutions, each followed by a batch normalisation of two, and the last layer."""
    found: Tensors = {}

    def convolution(name: str, norm: str, inputs: int, outputs: int, kernel: int) -> None:
        found[f"{name}.weight"] = (outputs, inputs, kernel, kernel)
        found[f"{norm}.weight"] = found[f"{norm}.bias"] = (outputs,)

    convolution("conv1", "bn1", 3, 64, 7)
    inputs = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for index in range(blocks):
            block = f"layer{stage}.{index}"
            convolution(f"{block}.conv1", f"{block}.bn1", inputs, width, 1)
            convolution(f"{block}.conv2", f"{block}.bn2", width, width, 3)
            convolution(f"{block}.conv3", f"{block}.bn3", width, 4 * width, 1)
            if index == 0:
                convolution(f"{block}.downsample.0", f"{block}.downsample.1", inputs, 4 * width, 1)
            inputs = 4 * width
    found["fc.weight"], found["fc.bias"] = (1000, inputs), (1000,)
    return found


def bert_base() -> Tensors:
    """199 tensors: the embeddings, 12 layers of 16 tensors each, and the pooler."""
    hidden, inner, layers = 768, 3072, 12
    found: Tensors = {
        "embeddings.word_embeddings.weight": (30522, hidden),
        "embeddings.position_embeddings.weight": (512, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }

    def norm(name: str) -> None:
        found[f"{name}.weight"] = found[f"{name}.bias"] = (hidden,)

    def dense(name: str, inputs: int, outputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (outputs, inputs), (outputs,)

    norm("embeddings.LayerNorm")
    for index in range(layers):
        layer = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{part}", hidden, hidden)
        dense(f"{layer}.attention.output.dense", hidden, hidden)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", hidden, inner)
        dense(f"{layer}.output.dense", inner, hidden)
        norm(f"{layer}.output.LayerNorm")
    dense("pooler.dense", hidden, hidden)
    return found


SETS: dict[str, Callable[[], Tensors]] = {"resnet50": resnet50, "bert-base": bert_base}


def nbytes(tensors: Tensors) -> int:
    """Bytes of all of them as float32."""
    return sum(math.prod(shape) for shape in tensors.values()) * _FLOAT32_BYTES


def backward(tensors: Tensors) -> Tensors:
    """In the order in which a backward pass makes them: the last layer first."""
    return dict(reversed(tensors.items()))


def buckets(total_bytes: int, bucket_bytes: int) -> Tensors:
    """The same bytes in flat tensors of one size, the last one smaller, as DistributedDataParallel has them.

    >>> buckets(40, 16)
    {'bucket.0': (4,), 'bucket.1': (4,), 'bucket.2': (2,)}
    """

    def sizes() -> Iterator[int]:
        for at in range(0, total_bytes, bucket_bytes):
            yield min(bucket_bytes, total_bytes - at)

    return {f"bucket.{index}": (size // _FLOAT32_BYTES,) for index, size in enumerate(sizes())}
