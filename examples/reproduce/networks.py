"""The networks of the reproduction guide that ``examples/torch/models.py`` does not have: ResNets, version 2.

In version 2 normalisation and activation come before a convolution (He and others, 2016, arXiv 1603.05027).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "torch"))
import models

NAMES = ("resnet18_v2", "resnet50_v2", "vgg16")


class Block(nn.Module):
    """Convolutions of these sizes, around which the input is added."""

    def __init__(self, channels_in: int, plan: list[tuple[int, int]], stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(channels_in), nn.ReLU(inplace=True))
        channels_out = plan[-1][0]
        layers: list[nn.Module] = []
        channels, at = channels_in, len(plan) // 2 if len(plan) == 3 else 0  # which one has the stride
        for index, (width, kernel) in enumerate(plan):
            if index:
                layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            step = stride if index == at else 1
            layers.append(nn.Conv2d(channels, width, kernel, step, kernel // 2, bias=False))
            channels = width
        self.body = nn.Sequential(*layers)
        same = stride == 1 and channels_in == channels_out
        self.shortcut = None if same else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        ready = self.first(inputs)
        result: Tensor = self.body(ready)
        return result + (inputs if self.shortcut is None else self.shortcut(ready))


def resnet_v2(
    blocks: tuple[int, ...], bottleneck: bool, classes: int, width: float, small: bool
) -> nn.Module:
    """``small``: for pictures of 32 x 32, which are not made smaller at the start."""
    channels = max(1, round(64 * width))
    stem = (
        [nn.Conv2d(3, channels, 3, 1, 1, bias=False)]
        if small
        else [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1)]
    )
    layers: list[nn.Module] = list(stem)
    channels_in = channels
    for stage, count in enumerate(blocks):
        inner = channels << stage
        plan = [(inner, 1), (inner, 3), (4 * inner, 1)] if bottleneck else [(inner, 3), (inner, 3)]
        for index in range(count):
            layers.append(Block(channels_in, plan, 2 if stage and not index else 1))
            channels_in = plan[-1][0]
    layers += [nn.BatchNorm2d(channels_in), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels_in, classes))


def build(name: str, classes: int, width: float, small: bool) -> nn.Module:
    """One of ``NAMES`` with random weights."""
    if name == "vgg16":
        return models.vgg16(classes, width)
    if name == "resnet18_v2":
        return resnet_v2((2, 2, 2, 2), False, classes, width, small)
    return resnet_v2((3, 4, 6, 3), True, classes, width, small)


def parameters(model: nn.Module) -> int:
    return sum(torch.numel(each) for each in model.parameters())
