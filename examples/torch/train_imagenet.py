"""Train ResNet-50 on ImageNet, or on any folder of pictures that has one folder per class.

    bpslaunch --nproc 4 python train_imagenet.py --data /data/imagenet        with train/CLASS/*.JPEG and val/
    bpslaunch --nproc 2 python train_imagenet.py --synthetic --epochs 1       no data needed

Pictures are read with Pillow (pip install pillow). The recipe is that of Goyal et al., 2017: the learning
rate grows with the number of workers, is warmed up for five epochs and divided by ten at epochs 30, 60, 80.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import models
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import byteps.torch as bps

SUFFIXES = {".jpeg", ".jpg", ".png", ".webp"}
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
SPREAD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Pictures(Dataset[tuple[Tensor, int]]):
    """``folder/CLASS/picture.jpg``; for training a random part of it, half of the time mirrored."""

    def __init__(self, folder: Path, pixels: int, training: bool) -> None:
        classes = sorted(each.name for each in folder.iterdir() if each.is_dir())
        self.files = [
            (file, number)
            for number, name in enumerate(classes)
            for file in sorted((folder / name).iterdir())
            if file.suffix.lower() in SUFFIXES
        ]
        if not self.files:
            raise SystemExit(f"{folder}: no pictures found, expected {folder}/CLASS/*.jpg")
        self.pixels = pixels
        self.training = training

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        file, label = self.files[index]
        with Image.open(file) as picture:
            small = picture.convert("RGB").resize(
                (self.pixels, self.pixels), Image.Resampling.BILINEAR, box=self._part(*picture.size)
            )
            values = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
        image = values.view(self.pixels, self.pixels, 3).permute(2, 0, 1).float() / 255
        if self.training and torch.rand(()) < 0.5:
            image = image.flip(2)
        return (image - MEAN) / SPREAD, label

    def _part(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom: a random part for training, the middle for testing."""
        if self.training:
            share, ratio = torch.empty(2).uniform_(0, 1).tolist()
            area = width * height * (0.08 + 0.92 * share)
            ratio = (3 / 4) * (16 / 9) ** ratio
            wide = min(width, (area * ratio) ** 0.5)
            high = min(height, (area / ratio) ** 0.5)
            left, top = (torch.rand(2) * torch.tensor([width - wide, height - high])).tolist()
        else:
            wide = high = 0.875 * min(width, height)
            left, top = (width - wide) / 2, (height - high) / 2
        return left, top, left + wide, top + high


class Noise(Dataset[tuple[Tensor, int]]):
    """Random pictures, for a run without data."""

    def __init__(self, count: int, pixels: int, classes: int) -> None:
        self.count, self.pixels, self.classes = count, pixels, classes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        source = torch.Generator().manual_seed(index)
        return torch.randn(3, self.pixels, self.pixels, generator=source), index % self.classes


def loader(args: argparse.Namespace, part: str) -> DataLoader[Any]:
    """This worker's share of one part of the data, ``train`` or ``val``."""
    training = part == "train"
    data: Dataset[Any] = (
        Noise(args.synthetic_images, args.image_size, args.classes)
        if args.synthetic
        else Pictures(args.data / part, args.image_size, training)
    )
    sampler: DistributedSampler[Any] = DistributedSampler(data, bps.size(), bps.rank(), shuffle=training)
    return DataLoader(data, args.batch_size, sampler=sampler, num_workers=args.loaders, drop_last=training)


def factor(epoch: float) -> float:
    """What the learning rate is multiplied by: from 1/size to 1 in five epochs, then in steps."""
    if epoch < 5:
        return (1 + epoch / 5 * (bps.size() - 1)) / bps.size()
    return float(0.1 ** sum(epoch >= edge for edge in (30, 60, 80)))


def measure(model: nn.Module, batches: DataLoader[Any], device: torch.device) -> tuple[float, float]:
    """Loss and accuracy over all workers."""
    totals = torch.zeros(3, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for images, labels in batches:
            output = model(images.to(device)).cpu()
            loss = functional.cross_entropy(output, labels, reduction="sum")
            totals += torch.tensor([loss, (output.argmax(1) == labels).sum(), len(labels)])
    model.train()
    loss, right, seen = bps.push_pull(totals, average=False, name="measure").tolist()
    return loss / seen, right / seen


def train(args: argparse.Namespace) -> None:
    device = torch.device("cuda", bps.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    batches, tests = loader(args, "train"), loader(args, "val")
    model = models.resnet50(args.classes, args.width).to(device)
    inner = torch.optim.SGD(model.parameters(), lr=args.base_lr * bps.size(), momentum=0.9, weight_decay=5e-5)
    compression = bps.Compression.fp16 if args.fp16_pushpull else bps.Compression.none
    optimizer = bps.DistributedOptimizer(inner, model.named_parameters(), compression)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(step / len(batches)))
    start = 0
    if args.checkpoint and args.checkpoint.exists() and bps.rank() == 0:
        saved = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        start = saved["epoch"]
    # Rank 0 alone has read the file; now all ranks go on from there.
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    start, state = bps.broadcast_object((start, schedule.state_dict()), root_rank=0)
    schedule.load_state_dict(state)
    for epoch in range(start, args.epochs):
        batches.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        seen, started = 0, time.perf_counter()
        for images, labels in batches:
            optimizer.zero_grad()
            functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
            schedule.step()
            seen += len(labels)
        rate = seen * bps.size() / (time.perf_counter() - started)
        loss, accuracy = measure(model, tests, device)
        if bps.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  ", end="")
            print(f"{rate:.1f} images/s", flush=True)
            if args.checkpoint:
                parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
                states = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**states, "epoch": epoch + 1}, args.checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder with train/CLASS/ and val/CLASS/")
    add("--synthetic", action="store_true", help="train on noise")
    add("--synthetic-images", type=int, default=1024)
    add("--checkpoint", type=Path, help="file to go on from, and to write after every epoch")
    add("--epochs", type=int, default=90)
    add("--batch-size", type=int, default=32, help="of each worker (%(default)s)")
    add("--base-lr", type=float, default=0.0125, help="for one worker (%(default)s)")
    add("--image-size", type=int, default=224, help="pixels (%(default)s)")
    add("--classes", type=int, default=1000)
    add("--width", type=float, default=1.0, help="below 1: narrower layers, for a quick try")
    add("--loaders", type=int, default=0, help="processes that read pictures, for each worker")
    add("--fp16-pushpull", action="store_true", help="gradients travel as float16")
    args = parser.parse_args()
    if not args.synthetic and args.data is None:
        parser.error("give --data FOLDER, or --synthetic for a run without data")
    bps.init()
    torch.manual_seed(1)
    train(args)


if __name__ == "__main__":
    main()
