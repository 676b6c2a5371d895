"""Train a small network on the digits that ship inside scikit-learn, on any number of workers.

    python train_digits.py                                            a job of one
    bpslaunch --workers 2 --servers 1 python train_digits.py          two workers and a server on this machine
    bpslaunch -n 2 python train_digits.py --compress onebit           two ranks; one bit for each number

Every worker trains on its own part of the data. DistributedOptimizer pushes a layer's gradient the moment it
is ready, and it is averaged while the backward pass goes on with the layers before. Only the step waits for
the results.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

import byteps.torch as bps

COMPRESS: dict[str, dict[str, Any]] = {
    "onebit": {"compressor": "onebit", "scaling": True, "ef": "vanilla"},
    "topk": {"compressor": "topk", "k": 0.05, "ef": "vanilla"},
    "randomk": {"compressor": "randomk", "k": 0.05, "ef": "vanilla"},
    "dithering": {"compressor": "dithering", "k": 16},
    "fp16": {"fp16": True},
}


class Display:
    """Progress on rank 0: a bar on a terminal, one line per epoch elsewhere, silence on other ranks."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self._accuracies: list[float] = []
        self._bar: Any = None
        if bps.rank() == 0 and sys.stdout.isatty():
            try:
                from rich import progress
            except ImportError:
                return
            columns = ("epoch", progress.MofNCompleteColumn(), progress.BarColumn(), "{task.fields[state]}")
            self._bar = progress.Progress(*columns, progress.TimeElapsedColumn())
            self._task = self._bar.add_task("training", total=epochs, state="")
            self._bar.start()

    def epoch(self, number: int, loss: float, accuracy: float, samples_per_s: float) -> None:
        """One more epoch is done."""
        self._accuracies.append(accuracy)
        state = f"loss {loss:.4f}  accuracy {accuracy:.4f}  {samples_per_s:,.0f} samples/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=number, state=state)
        elif bps.rank() == 0:
            done = round(20 * number / self.epochs)
            print(f"epoch {number:3}/{self.epochs} [{'#' * done}{'.' * (20 - done)}] {state}", flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            print("\n".join(plot(self._accuracies)), flush=True)


def plot(values: list[float], height: int = 8) -> list[str]:
    """A column for each value from its least to 1, in characters: for whoever looks at a terminal."""
    low = min(values, default=0.0)
    eighths = [round((value - low) / max(1 - low, 1e-9) * height * 8) for value in values]
    blocks = " ▁▂▃▄▅▆▇█"
    rows = [
        "".join(blocks[min(8, max(0, size - 8 * row))] * 2 for size in eighths)
        for row in reversed(range(height))
    ]
    scale = ["1.000", *[""] * (height - 2), f"{low:.3f}"]
    return [f"{mark:>7} ┤{row}" for mark, row in zip(scale, rows, strict=True)] + [
        f"{'':>7} └{'─' * 2 * len(values)} accuracy by epoch"
    ]


def load(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images and labels, for training and for the test; the same split on every worker."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16 - 0.5
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    held_out = len(labels) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def total(*values: float) -> list[float]:
    """Sums over all workers."""
    mine = torch.tensor(values, dtype=torch.float64)
    sums = bps.push_pull(mine, average=False, name=f"total of {len(values)}")
    return [float(value) for value in sums]


def accuracy_on(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Each worker tests its part; the counts are summed."""
    mine = slice(bps.rank(), None, bps.size())
    with torch.no_grad():
        right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    correct, seen = total(float(right), len(labels[mine]))
    return correct / seen


def train(args: argparse.Namespace) -> float:
    """Train and return the accuracy on images that were never trained on."""
    torch.set_num_threads(1)  # so small a network gains nothing from more
    train_images, train_labels, test_images, test_labels = load(args.seed)
    torch.manual_seed(args.seed + bps.rank())  # differs on purpose: the broadcast makes them alike
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = bps.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression_params=COMPRESS[args.compress] if args.compress else None,
    )
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    display = Display(args.epochs)
    batch = max(1, args.batch_size // bps.size())  # the job's batch is the same however many share it
    share = len(train_labels) // bps.size()
    shuffle = torch.Generator().manual_seed(args.seed)  # one order for all; each worker takes every size()-th
    accuracy, trained, started = 0.0, 0, time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        mine = torch.randperm(len(train_labels), generator=shuffle)[bps.rank() :: bps.size()][:share]
        losses = []
        for chosen in mine.split(batch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(train_images[chosen]), train_labels[chosen])
            loss.backward()  # gradients are pushed as they appear
            optimizer.step()  # with those of all workers
            losses.append(loss.item())
        trained += share * bps.size()
        accuracy = accuracy_on(model, test_images, test_labels)
        (mean_loss,) = total(sum(losses) / len(losses) / bps.size())
        display.epoch(epoch, mean_loss, accuracy, trained / (time.perf_counter() - started))
    display.close()
    summarize(accuracy, trained / (time.perf_counter() - started))
    return accuracy


def summarize(accuracy: float, samples_per_s: float) -> None:
    """What the job achieved, in numbers over all workers."""
    counters = bps.counters()
    _, own_speed = bps.get_pushpull_speed()
    kinds = ("pushed_bytes", "pulled_bytes", "local_bytes")  # the last one in shared memory
    moved, speed = total(sum(counters[kind] for kind in kinds), own_speed)
    if bps.rank() == 0:
        print(f"workers          {bps.size()}")
        print(f"test accuracy    {accuracy:.4f}")
        print(f"samples/s        {samples_per_s:,.0f}")
        print(f"bytes moved      {moved / 1e6:,.1f} MB")
        print(f"push-pull speed  {speed:,.1f} MB/s", flush=True)


def verdict(accuracy: float, goal: float, seconds: float) -> str:
    """What a reader in a hurry wants to know."""
    who = "one process" if bps.size() == 1 else f"{bps.size()} workers as one"
    if accuracy < goal:
        return f"failed: {accuracy:.1%} of the digits it had never seen were right, less than {goal:.0%}"
    return f"it works: {who} learned to read {accuracy:.1%} of digits never seen before, in {seconds:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per step of the whole job")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--min-accuracy", type=float, default=0.95, help="end with an error below it")
    parser.add_argument("--compress", choices=COMPRESS, help="send less of each gradient")
    args = parser.parse_args()
    bps.init()
    started = time.perf_counter()
    accuracy = train(args)
    if bps.rank() == 0:
        print(verdict(accuracy, args.min_accuracy, time.perf_counter() - started), flush=True)
    return 0 if accuracy >= args.min_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
