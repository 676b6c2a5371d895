"""The networks of the examples, written out so that nothing but PyTorch has to be installed.

    model = models.build("resnet50", classes=1000)
    inputs, labels = models.synthetic("resnet50", batch=32, image=224, classes=1000)

``width`` makes every layer narrower, for a quick try; 1.0 is the network of the paper. They take images of
any size from 32 pixels on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NAMES = ("resnet50", "vgg16", "alexnet", "bert")
VOCABULARY = 30522
SEQUENCE = 128


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around which the input is added: He et al., 2015."""

    EXPANSION = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        out = channels * self.EXPANSION
        self.body = nn.Sequential(
            *_convolution(channels_in, channels, 1),
            nn.ReLU(inplace=True),
            *_convolution(channels, channels, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(channels, out, 1),
        )
        same = stride == 1 and channels_in == out
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(channels_in, out, 1, stride))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.body(inputs) + self.shortcut(inputs))


class Bert(nn.Module):
    """The encoder of Devlin et al., 2018 with a classifier on its first token."""

    def __init__(self, classes: int, width: float, layers: int = 12) -> None:
        super().__init__()
        heads = max(1, round(12 * width))
        size = 64 * heads
        self.tokens = nn.Embedding(VOCABULARY, size)
        self.positions = nn.Embedding(512, size)
        self.norm = nn.LayerNorm(size)
        layer = nn.TransformerEncoderLayer(size, heads, 4 * size, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(size, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.encoder(self.norm(self.tokens(tokens) + self.positions(places)))
        logits: Tensor = self.classifier(hidden[:, 0])
        return logits


def _convolution(channels_in: int, channels: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels)]


def resnet50(classes: int = 1000, width: float = 1.0) -> nn.Module:
    """ResNet-50: 25.6 million parameters."""
    channels = max(1, round(64 * width))
    layers = [*_convolution(3, channels, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels_in = channels
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(channels_in, channels << stage, stride))
            channels_in = (channels << stage) * Bottleneck.EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, classes))


def vgg16(classes: int = 1000, width: float = 1.0) -> nn.Module:
    """VGG-16: 138 million parameters, most of them in its first linear layer."""
    layers: list[nn.Module] = []
    channels_in = 3
    for blocks, full in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        channels = max(1, round(full * width))
        for _ in range(blocks):
            layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(inplace=True)]
            channels_in = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), *_head(channels_in * 49, classes, width))


def alexnet(classes: int = 1000, width: float = 1.0) -> nn.Module:
    """AlexNet in one tower: 61 million parameters."""
    a, b, c, d = (max(1, round(full * width)) for full in (64, 192, 384, 256))
    features = nn.Sequential(
        nn.Conv2d(3, a, 11, 4, 5),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(a, b, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(b, c, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(c, d, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(d, d, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveMaxPool2d(6),
    )
    return nn.Sequential(*features, *_head(d * 36, classes, width))


def _head(features: int, classes: int, width: float) -> list[nn.Module]:
    hidden = max(1, round(4096 * width))
    return [
        nn.Flatten(),
        nn.Linear(features, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(hidden, classes),
    ]


def build(name: str, classes: int = 1000, width: float = 1.0) -> nn.Module:
    """One of ``NAMES``, with random weights."""
    builders = {"resnet50": resnet50, "vgg16": vgg16, "alexnet": alexnet, "bert": Bert}
    return builders[name](classes, width)


def synthetic(name: str, batch: int, image: int, classes: int) -> tuple[Tensor, Tensor]:
    """Random inputs of the right kind, and labels."""
    labels = torch.randint(classes, (batch,))
    if name == "bert":
        return torch.randint(VOCABULARY, (batch, SEQUENCE)), labels
    return torch.randn(batch, 3, image, image), labels
