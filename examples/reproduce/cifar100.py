"""CIFAR-100 from either form in which it is given away, and the usual random shifts and mirror images."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

RECORD_BYTES = 2 + 3 * 32 * 32  # coarse label, fine label, then red, green and blue
MEAN = torch.tensor([0.507, 0.487, 0.441]).view(3, 1, 1)
SPREAD = torch.tensor([0.267, 0.256, 0.276]).view(3, 1, 1)
SHIFT = 4  # pixels, each way


class Cifar100(Dataset[tuple[Tensor, int]]):
    """``part`` is "train" or "test"; the folder has files of that name, or with .bin."""

    def __init__(self, folder: Path, part: str) -> None:
        self.training = part == "train"
        if (folder / f"{part}.bin").exists():
            content = bytearray((folder / f"{part}.bin").read_bytes())
            records = torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD_BYTES)
            images, labels = records[:, 2:], records[:, 1]
        elif (folder / part).exists():
            with (folder / part).open("rb") as stream:  # a pickle can run any code: know where it is from
                batch = pickle.load(stream, encoding="bytes")
            images, labels = torch.as_tensor(batch[b"data"]), torch.tensor(batch[b"fine_labels"])
        else:
            raise SystemExit(f"--data {folder}: expected {part} or {part}.bin in it")
        self.images = images.reshape(-1, 3, 32, 32)
        self.labels = labels.long().tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = (self.images[index].float() / 255 - MEAN) / SPREAD
        if self.training:
            image = torch.nn.functional.pad(image, (SHIFT,) * 4)
            top, left = torch.randint(2 * SHIFT + 1, (2,)).tolist()
            image = image[:, top : top + 32, left : left + 32]
            if torch.rand(()) < 0.5:
                image = image.flip(2)
        return image, self.labels[index]
