"""How many images per second do all workers train together? Random data, so that nothing is read from disk.

python benchmark.py --model resnet50                               a job of one
bpslaunch --nproc 2 python benchmark.py --model vgg16              two ranks on this machine
bpslaunch --workers 2 --servers 1 python benchmark.py --method ddp
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import models
import torch
from torch.nn import functional

import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", choices=models.NAMES, default="resnet50")
    add("--method", choices=("optimizer", "ddp", "cross-barrier"), default="optimizer")
    add("--batch-size", type=int, default=32, help="of each worker (%(default)s)")
    add("--image-size", type=int, default=224, help="pixels (%(default)s)")
    add("--classes", type=int, default=1000)
    add("--width", type=float, default=1.0, help="below 1: narrower layers, for a quick try")
    add("--fp16-pushpull", action="store_true", help="gradients travel as float16")
    add("--num-warmup-batches", type=int, default=10)
    add("--num-batches-per-iter", type=int, default=10)
    add("--num-iters", type=int, default=10)
    return parser.parse_args()


def training(args: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    """One step of training, as a function."""
    torch.manual_seed(1)
    model = models.build(args.model, args.classes, args.width).to(device)
    compression = bps.Compression.fp16 if args.fp16_pushpull else bps.Compression.none
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if args.method == "ddp":
        model = DistributedDataParallel(model, compression=compression)
    else:
        optimizer = bps.DistributedOptimizer(optimizer, model.named_parameters(), compression)
        bps.broadcast_parameters(model.state_dict(), root_rank=0)
        bps.broadcast_optimizer_state(optimizer, root_rank=0)
    if args.method == "cross-barrier":
        steps = args.num_warmup_batches + args.num_batches_per_iter * args.num_iters
        optimizer = CrossBarrier(model, optimizer, num_steps=steps)
    inputs, labels = models.synthetic(args.model, args.batch_size, args.image_size, args.classes)
    inputs, labels = inputs.to(device), labels.to(device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def say(text: str) -> None:
    if bps.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = arguments()
    bps.init()
    device = torch.device("cuda", bps.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    step = training(args, device)
    unit = "Seq" if args.model == "bert" else "Img"
    say(f"Model: {args.model}, method: {args.method}")
    say(f"Batch size: {args.batch_size} per worker, workers: {bps.size()}, device: {device.type}")
    for _ in range(args.num_warmup_batches):
        step()
    rates = []
    for number in range(args.num_iters):
        started = time.perf_counter()
        for _ in range(args.num_batches_per_iter):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        rates.append(args.batch_size * args.num_batches_per_iter / (time.perf_counter() - started))
        say(f"Iter #{number}: {rates[-1]:.1f} {unit.lower()}/sec per worker")
    workers = bps.size()
    mean, spread = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    say(f"{unit}/sec per worker: {mean:.1f} +-{spread:.1f}")
    total, spread = workers * mean, workers * spread
    say(f"Total {unit.lower()}/sec on {workers} worker(s): {total:.1f} +-{spread:.1f}")


if __name__ == "__main__":
    main()
