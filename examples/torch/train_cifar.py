"""Train a small convolutional network on CIFAR-10 with DistributedDataParallel.

    bpslaunch --nproc 2 python train_cifar.py --data cifar-10-batches-py      the files for Python
    bpslaunch --nproc 2 python train_cifar.py --data cifar-10-batches-bin     the binary files
    bpslaunch --nproc 2 python train_cifar.py --synthetic                     no data needed

What differs from a program for one process: init(), the wrapped model, and each worker's own part of the
data.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import byteps.torch as bps
from byteps.torch.parallel import DistributedDataParallel

CLASSES = 10
RECORD_BYTES = 1 + 3 * 32 * 32  # label, then red, green and blue

Data = tuple[Tensor, Tensor]


def load(folder: Path) -> tuple[Data, Data]:
    """Images for training and for testing, from either form in which the data set is given away."""
    if (folder / "data_batch_1.bin").exists():
        return _binary(sorted(folder.glob("data_batch_*.bin"))), _binary([folder / "test_batch.bin"])
    if (folder / "data_batch_1").exists():
        return _pickled(sorted(folder.glob("data_batch_?"))), _pickled([folder / "test_batch"])
    raise SystemExit(f"--data {folder}: expected data_batch_1 or data_batch_1.bin in it")


def _binary(files: list[Path]) -> Data:
    content = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)
    records = content.view(-1, RECORD_BYTES)
    return _prepared(records[:, 1:], records[:, 0])


def _pickled(files: list[Path]) -> Data:
    batches = []
    for file in files:
        with file.open("rb") as stream:  # a pickle can run any code: take these files from who you trust
            batches.append(pickle.load(stream, encoding="bytes"))
    images = torch.cat([torch.as_tensor(batch[b"data"]) for batch in batches])
    return _prepared(images, torch.tensor([label for batch in batches for label in batch[b"labels"]]))


def _prepared(images: Tensor, labels: Tensor) -> Data:
    return (images.view(-1, 3, 32, 32).float() / 255 - 0.47) / 0.25, labels.long()


def synthetic(count: int) -> tuple[Data, Data]:
    """Noise around one pattern for each class: easy, but not to be learned without learning."""
    source = torch.Generator().manual_seed(1)
    patterns = torch.randn(CLASSES, 3, 32, 32, generator=source)
    labels = torch.randint(CLASSES, (count,), generator=source)
    images = patterns[labels] + torch.randn(count, 3, 32, 32, generator=source)
    held_out = max(1, count // 5)
    return (images[held_out:], labels[held_out:]), (images[:held_out], labels[:held_out])


def network() -> nn.Module:
    layers: list[nn.Module] = []
    channels_in = 3
    for channels in (32, 64, 128):
        layers += [nn.Conv2d(channels_in, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        channels_in = channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, CLASSES))


def accuracy(model: nn.Module, data: Data, batch: int) -> float:
    """Each worker tests its part; the counts are summed."""
    images, labels = (part[bps.rank() :: bps.size()] for part in data)
    model.eval()
    with torch.no_grad():
        pieces = zip(images.split(batch), labels.split(batch), strict=True)
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in pieces)
    model.train()
    counts = torch.tensor([float(right), float(len(labels))], dtype=torch.float64)
    correct, seen = bps.push_pull(counts, average=False, name="accuracy").tolist()
    return float(correct / seen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder of CIFAR-10, for Python or binary")
    source.add_argument("--synthetic", action="store_true", help="train on made-up images")
    parser.add_argument("--synthetic-images", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of each worker")
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    bps.init()
    torch.manual_seed(1)
    train, test = synthetic(args.synthetic_images) if args.synthetic else load(args.data)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    share = len(train[1]) // bps.size()  # equal parts, so that all workers make the same number of steps
    for epoch in range(1, args.epochs + 1):
        order = torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(epoch))
        for chosen in order[bps.rank() :: bps.size()][:share].split(args.batch_size):
            images = train[0][chosen]
            if args.data and epoch % 2:  # half of the epochs see the mirror images
                images = images.flip(3)
            optimizer.zero_grad()
            functional.cross_entropy(model(images), train[1][chosen]).backward()
            optimizer.step()
        result = accuracy(model, test, args.batch_size)
        if bps.rank() == 0:
            print(f"epoch {epoch:3}/{args.epochs}  test accuracy {result:.4f}", flush=True)


if __name__ == "__main__":
    main()
