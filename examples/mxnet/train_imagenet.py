"""Train a network of Gluon's model zoo on ImageNet's shapes, or measure how fast that goes.

    bpslaunch --nproc 2 python train_imagenet.py --benchmark 1 --batch-size 32

With --benchmark 1 the data is random and nothing is read from disk; else --data-train names a RecordIO file,
as im2rec.py of MXNet makes it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon

import byteps.mxnet as bps


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--benchmark", type=int, default=0, help="1: random data, and images per second")
    add("--network", default="resnet50_v2", help="of mxnet.gluon.model_zoo.vision (%(default)s)")
    add("--batch-size", type=int, default=32, help="of each worker (%(default)s)")
    add("--image-size", type=int, default=224, help="pixels (%(default)s)")
    add("--num-classes", type=int, default=1000)
    add("--lr", type=float, default=0.0125, help="for one worker (%(default)s)")
    add("--num-epochs", type=int, default=1)
    add("--data-train", help="a RecordIO file")
    add("--num-warmup-batches", type=int, default=5)
    add("--num-batches", type=int, default=50, help="that a benchmark measures (%(default)s)")
    add("--fp16-pushpull", action="store_true", help="gradients travel as float16")
    args = parser.parse_args()
    if not args.benchmark and not args.data_train:
        parser.error("give --data-train FILE, or --benchmark 1 for a run without data")
    return args


def noise(args: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    """The same random batch again and again."""
    images = mx.nd.random.uniform(-1, 1, (args.batch_size, 3, args.image_size, args.image_size))
    labels = mx.nd.array([number % args.num_classes for number in range(args.batch_size)])
    for _ in range(args.num_warmup_batches + args.num_batches):
        yield images, labels


def records(args: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    """Every worker its part of a RecordIO file."""
    reader = mx.io.ImageRecordIter(
        path_imgrec=args.data_train,
        data_shape=(3, args.image_size, args.image_size),
        batch_size=args.batch_size,
        shuffle=True,
        rand_mirror=True,
        num_parts=bps.size(),
        part_index=bps.rank(),
    )
    for _ in range(args.num_epochs):
        reader.reset()
        for batch in reader:
            yield batch.data[0] / 128 - 1, batch.label[0]


def main() -> None:
    args = arguments()
    bps.init()
    mx.random.seed(1)
    net = gluon.model_zoo.vision.get_model(args.network, classes=args.num_classes)
    net.initialize(mx.init.Xavier(magnitude=2))
    net.hybridize(static_alloc=True)
    options = {"learning_rate": args.lr * bps.size(), "momentum": 0.9, "wd": 1e-4}
    codec = {"fp16": True} if args.fp16_pushpull else None
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", options, compression_params=codec)
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    speeds = []
    started = time.perf_counter()
    for number, (images, labels) in enumerate(noise(args) if args.benchmark else records(args), 1):
        with autograd.record():
            loss = criterion(net(images), labels)
        loss.backward()
        trainer.step(args.batch_size)
        mx.nd.waitall()
        took, started = time.perf_counter() - started, time.perf_counter()
        if number > args.num_warmup_batches:
            speeds.append(args.batch_size / took)
        if bps.rank() == 0 and number % 10 == 0:
            print(f"batch {number}: {args.batch_size / took:.1f} images/s per worker", flush=True)
    mean, spread = statistics.mean(speeds), 1.96 * statistics.pstdev(speeds)
    total = float(bps.push_pull(mx.nd.array([mean]), average=False, name="speed").asscalar())
    if bps.rank() == 0:
        print(f"Img/sec per worker: {mean:.1f} +-{spread:.1f}")
        print(f"Total img/sec on {bps.size()} worker(s): {total:.1f}", flush=True)


if __name__ == "__main__":
    main()
