"""Training as in the reproduction guide: CIFAR-100 and ImageNet, with every compressor. worker.sh starts it.

    bpslaunch --nproc 2 python train.py --dataset cifar100 --data cifar-100-python --compressor topk --k 0.001
    bpslaunch --nproc 2 python train.py --dataset cifar100 --synthetic 64 --epochs 1 --width 0.1

Rank 0 prints accuracy and time after each epoch, and writes them to --log as CSV.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import networks  # first: it finds the examples beside this folder
import torch
import train_imagenet
from cifar100 import Cifar100
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import byteps.torch as bps

CLASSES = {"cifar100": 100, "imagenet": 1000}
PIXELS = {"cifar100": 32, "imagenet": 224}


def compression_params(args: argparse.Namespace) -> dict[str, Any] | None:
    """What the options say, in the words of ``compression_params``."""
    if args.fp16_pushpull and args.compressor is None:
        return {"fp16": True}
    if args.compressor is None:
        return None
    found: dict[str, Any] = {"compressor": args.compressor}
    if args.k is not None:
        found["k"] = int(args.k) if args.k >= 1 else args.k
    if args.onebit_scaling:
        found["scaling"] = True
    names = {"ef": args.ef, "momentum": args.compress_momentum, "normalize": args.normalize}
    found |= {key: value for key, value in names.items() if value}
    return found


def loader(args: argparse.Namespace, training: bool) -> DataLoader[Any]:
    """This rank's share of the data."""
    data: Dataset[Any]
    if args.synthetic:
        data = train_imagenet.Noise(args.synthetic, PIXELS[args.dataset], CLASSES[args.dataset])
    elif args.dataset == "cifar100":
        data = Cifar100(args.data, "train" if training else "test")
    else:
        data = train_imagenet.Pictures(args.data / ("train" if training else "val"), 224, training)
    sampler: DistributedSampler[Any] = DistributedSampler(data, bps.size(), bps.rank(), shuffle=training)
    return DataLoader(data, args.batch_size, sampler=sampler, num_workers=args.loaders, drop_last=training)


def factor(args: argparse.Namespace, epoch: float) -> float:
    """What the learning rate is multiplied by: warmed up, then in steps or along a cosine."""
    if epoch < args.warmup_epochs:
        return max(epoch / float(args.warmup_epochs), 1e-3)
    if args.lr_mode == "cosine":
        part = (epoch - args.warmup_epochs) / max(1e-9, args.epochs - args.warmup_epochs)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, part)))
    return float(0.1 ** sum(epoch >= edge for edge in args.lr_decay_epoch))


def accuracy(model: nn.Module, batches: DataLoader[Any], device: torch.device) -> float:
    """Over all ranks."""
    counts = torch.zeros(2, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for images, labels in batches:
            right = (model(images.to(device)).argmax(1).cpu() == labels).sum()
            counts += torch.tensor([float(right), float(len(labels))])
    model.train()
    right, seen = bps.push_pull(counts, average=False, name="accuracy").tolist()
    return float(right / seen)


def train(args: argparse.Namespace) -> None:
    device = torch.device("cuda", bps.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    batches, tests = loader(args, True), loader(args, False)
    model = networks.build(args.model, CLASSES[args.dataset], args.width, args.dataset == "cifar100").to(
        device
    )
    inner = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=args.wd)
    optimizer = bps.DistributedOptimizer(
        inner, model.named_parameters(), compression_params=compression_params(args)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: factor(args, step / len(batches)))
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    log = args.log.open("w") if args.log and bps.rank() == 0 else None
    if log:
        print("epoch,accuracy,seconds", file=log, flush=True)
    spent = 0.0
    for epoch in range(args.epochs):
        batches.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        begun = time.perf_counter()
        for images, labels in batches:
            optimizer.zero_grad()
            functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
            schedule.step()
        spent += time.perf_counter() - begun
        result = accuracy(model, tests, device)
        if bps.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}  accuracy {result:.4f}  {spent:.1f} s", flush=True)
        if log:
            print(f"{epoch + 1},{result:.4f},{spent:.1f}", file=log, flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dataset", choices=sorted(CLASSES), required=True)
    add("--data", type=Path, help="folder of CIFAR-100, or one with train/CLASS/ and val/CLASS/")
    add("--synthetic", type=int, default=0, metavar="N", help="train on so many pictures of noise instead")
    add("--model", choices=networks.NAMES, default="resnet18_v2")
    add("--width", type=float, default=1.0, help="below 1: narrower layers, for a quick try")
    add("--batch-size", type=int, default=32, help="of each rank (%(default)s)")
    add("--epochs", type=int, default=200)
    add("--warmup-epochs", type=float, default=0.0)
    add("--lr", type=float, default=0.1)
    add("--lr-mode", choices=("step", "cosine"), default="step")
    add("--lr-decay-epoch", type=numbers, default=[], help="such as 50,80")
    add("--wd", type=float, default=1e-4, help="weight decay (%(default)s)")
    add("--loaders", "-j", type=int, default=2, help="processes that read pictures, for each rank")
    add("--compressor", choices=("onebit", "topk", "randomk", "dithering", "int8", "int4"))
    add("--onebit-scaling", action="store_true")
    add("--k", type=float, help="of topk, randomk and dithering")
    add("--ef", choices=("vanilla", "corrected", "sparse"))
    add("--compress-momentum", choices=("nesterov",))
    add("--normalize", choices=("max", "l2"))
    add("--fp16-pushpull", action="store_true", help="gradients travel as 16-bit floats")
    add("--log", type=Path, help="CSV of epoch, accuracy, seconds")
    args = parser.parse_args()
    if not args.synthetic and args.data is None:
        parser.error("give --data FOLDER, or --synthetic N for a run without data")
    bps.init()
    torch.manual_seed(1)
    train(args)


if __name__ == "__main__":
    main()
