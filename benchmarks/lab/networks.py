"""Four well-known networks as lists of layers: the gradients of each and the work of a forward pass. Pure.

Sizes follow from the architectures: VGG-16 (Simonyan and Zisserman 2014, configuration D), ResNet-50 (He and
others 2015), AlexNet in one tower (Krizhevsky 2014), BERT-large (Devlin and others 2018, with its pooler).

Times are an assumption, not a measurement: the multiplications and additions of convolutions and matrix
products over ``SPEED``, 10 TFLOP/s, which is what a V100 reaches of its 15.7 in float32 on such layers.
Everything else (normalisation, activations, the optimizer) takes no time. A backward pass takes twice as long
as the forward pass: it makes the gradient of the input and that of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["NETWORKS", "SPEED", "Layer", "Network"]

SPEED = 10e12  # floating point operations in a second
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """What one layer needs: elements of its tensors, operations of a forward pass of one sample."""

    name: str
    elements: tuple[int, ...]
    flops: float = 0.0

    @property
    def nbytes(self) -> int:
        return sum(self.elements) * FLOAT32_BYTES


@dataclass
class Network:
    """Layers in the order of the forward pass, and the samples that one machine has in a step."""

    batch: int
    layers: list[Layer] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def forward_s(self, layer: Layer) -> float:
        return layer.flops * self.batch / SPEED

    @property
    def compute_s(self) -> float:
        """Of a whole step."""
        return 3 * sum(map(self.forward_s, self.layers))

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, pixels: int, bias: bool = True
    ) -> None:
        """To an image of ``pixels`` in square; without a bias a normalisation follows, which has two."""
        weights = inputs * outputs * kernel * kernel
        self.layers.append(Layer(name, (weights, outputs) if bias else (weights,), 2.0 * weights * pixels**2))
        if not bias:
            self.layers.append(Layer(f"{name}.norm", (outputs, outputs)))

    def dense(self, name: str, inputs: int, outputs: int, rows: int = 1, more_flops: float = 0.0) -> None:
        weights = inputs * outputs
        self.layers.append(Layer(name, (weights, outputs), 2.0 * weights * rows + more_flops))


def vgg16() -> Network:
    """138.4 million parameters, 32 pictures of 224 x 224."""
    made, inputs, pixels = Network(32), 3, 224
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for index in range(count):
            made.convolution(f"conv{block}.{index}", inputs, outputs, 3, pixels)
            inputs = outputs
        pixels //= 2
    for name, rows, columns in (("fc0", 512 * 49, 4096), ("fc1", 4096, 4096), ("fc2", 4096, 1000)):
        made.dense(name, rows, columns)
    return made


def alexnet() -> Network:
    """61.1 million parameters, 128 pictures of 224 x 224."""
    made = Network(128)
    shapes = ((3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13))
    for index, (inputs, outputs, kernel, pixels) in enumerate(shapes):
        made.convolution(f"conv{index}", inputs, outputs, kernel, pixels)
    for name, rows, columns in (("fc0", 256 * 36, 4096), ("fc1", 4096, 4096), ("fc2", 4096, 1000)):
        made.dense(name, rows, columns)
    return made


def resnet50() -> Network:
    """25.6 million parameters, 32 pictures of 224 x 224."""
    made = Network(32)
    made.convolution("stem", 3, 64, 7, 112, bias=False)
    inputs = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        pixels = 56 >> stage
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            before = pixels * 2 if stage and not block else pixels  # the second convolution has the stride
            made.convolution(f"{name}.a", inputs, width, 1, before, bias=False)
            made.convolution(f"{name}.b", width, width, 3, pixels, bias=False)
            made.convolution(f"{name}.c", width, 4 * width, 1, pixels, bias=False)
            if block == 0:
                made.convolution(f"{name}.shortcut", inputs, 4 * width, 1, pixels, bias=False)
            inputs = 4 * width
    made.dense("fc", inputs, 1000)
    return made


def bert_large() -> Network:
    """335 million parameters, 8 texts of 512 tokens."""
    hidden, inner, tokens = 1024, 4096, 512
    made = Network(8)
    made.layers.append(Layer("embeddings", (30522 * hidden, 512 * hidden, 2 * hidden, hidden, hidden)))
    for index in range(24):
        name = f"layer{index}"
        for part in ("query", "key", "value"):
            made.dense(f"{name}.{part}", hidden, hidden, tokens)
        # Scores and their sums: two products of tokens x tokens x hidden.
        made.dense(f"{name}.attention", hidden, hidden, tokens, more_flops=4.0 * tokens**2 * hidden)
        made.layers.append(Layer(f"{name}.norm0", (hidden, hidden)))
        made.dense(f"{name}.inner", hidden, inner, tokens)
        made.dense(f"{name}.outer", inner, hidden, tokens)
        made.layers.append(Layer(f"{name}.norm1", (hidden, hidden)))
    made.dense("pooler", hidden, hidden)
    return made


NETWORKS: dict[str, Callable[[], Network]] = {
    "vgg16": vgg16,
    "alexnet": alexnet,
    "resnet50": resnet50,
    "bert-large": bert_large,
}
