"""Train a network of Gluon's model zoo on ImageNet, or measure how fast that goes.

    bpslaunch --nproc 2 python train_imagenet.py --benchmark 1 --batch-size 32

    bpslaunch --workers 2 --servers 1 python train_imagenet.py --model resnet50_v2 --mode hybrid --use-rec \\
        --rec-train train.rec --rec-train-idx train.idx --rec-val val.rec --rec-val-idx val.idx \\
        --batch-size 64 --num-epochs 120 -j 2 --warmup-epochs 5 --warmup-lr 0.1 --lr 0.1 --lr-mode cosine \\
        --compressor onebit --onebit-scaling --ef vanilla --compress-momentum nesterov --logging-file log

The options are those of the reproduction guide. With --benchmark 1 the data is random and nothing is read
from disk; else the RecordIO files are those that im2rec.py of MXNet makes.
"""

from __future__ import annotations

import argparse
import logging
import math
import statistics
import time
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import byteps.mxnet as bps


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--benchmark", type=int, default=0, help="1: random data, and images per second")
    add("--model", "--network", default="resnet50_v2", help="of mxnet.gluon.model_zoo.vision (%(default)s)")
    add("--mode", default="hybrid", help="hybrid compiles the network, anything else does not")
    add("--use-rec", action="store_true", help="accepted: data is always read from RecordIO files")
    add("--rec-train", "--data-train", type=Path, help="RecordIO file to train on")
    add("--rec-train-idx", type=Path, help="its index (the same name with .idx)")
    add("--rec-val", type=Path, help="RecordIO file to test on after each epoch")
    add("--rec-val-idx", type=Path, help="its index (the same name with .idx)")
    add("--batch-size", type=int, default=32, help="of each worker (%(default)s)")
    add("--image-size", type=int, default=224, help="pixels (%(default)s)")
    add("--num-classes", type=int, default=1000)
    add("--num-gpus", type=int, default=0, help="of each worker; this example runs on the CPU")
    add("--num-epochs", type=int, default=1)
    add("-j", "--num-data-workers", type=int, default=2, help="threads that decode pictures (%(default)s)")
    add("--warmup-epochs", type=int, default=0)
    add("--warmup-lr", type=float, default=0.0, help="where the warmup begins (%(default)s)")
    add("--lr", type=float, default=0.1, help="(%(default)s)")
    add("--lr-mode", choices=("step", "cosine"), default="step")
    add("--lr-decay", type=float, default=0.1, help="of step, at each of --lr-decay-epoch (%(default)s)")
    add("--lr-decay-epoch", default="40,60")
    add("--momentum", type=float, default=0.9)
    add("--wd", type=float, default=1e-4)
    add("--compressor", default="", help="onebit, topk, randomk or dithering; none if left out")
    add("--onebit-scaling", action="store_true")
    add("--k", type=float, help="of topk, randomk and dithering")
    add("--ef", default="", help="error feedback: vanilla, corrected, sparse")
    add("--compress-momentum", default="", help="nesterov")
    add("--fp16-pushpull", action="store_true", help="gradients travel as float16")
    add("--logging-file", default="", help="where rank 0 logs besides the terminal")
    add("--num-warmup-batches", type=int, default=5)
    add("--num-batches", type=int, default=50, help="that a benchmark measures (%(default)s)")
    args = parser.parse_args()
    if not args.benchmark and not args.rec_train:
        parser.error("give --rec-train FILE, or --benchmark 1 for a run without data")
    for name in ("train", "val"):
        file, index = getattr(args, f"rec_{name}"), getattr(args, f"rec_{name}_idx")
        if file is not None and index is None:
            setattr(args, f"rec_{name}_idx", file.with_suffix(".idx"))
        for path in (file, getattr(args, f"rec_{name}_idx")):
            if path is not None and not path.expanduser().is_file():
                parser.error(f"{path} is not there: im2rec.py of MXNet makes a .rec file and its .idx")
    return args


def rate(args: argparse.Namespace, epoch: float) -> float:
    """Of the learning rate: linear warmup, then a cosine or steps."""
    if epoch < args.warmup_epochs:
        return float(args.warmup_lr + (args.lr - args.warmup_lr) * epoch / args.warmup_epochs)
    if args.lr_mode == "cosine":
        done = (epoch - args.warmup_epochs) / max(args.num_epochs - args.warmup_epochs, 1)
        return float(args.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))
    passed = sum(epoch >= int(edge) for edge in args.lr_decay_epoch.split(","))
    return float(args.lr * args.lr_decay**passed)


def records(args: argparse.Namespace, file: Path, index: Path, train: bool) -> tuple[Any, int]:
    """A reader of this worker's part, and how many batches every worker has: as many as all can make."""
    count = len(index.expanduser().read_text().splitlines())
    reader = mx.io.ImageRecordIter(
        path_imgrec=str(file.expanduser()),
        path_imgidx=str(index.expanduser()),
        data_shape=(3, args.image_size, args.image_size),
        batch_size=args.batch_size,
        resize=-1 if train else args.image_size,
        shuffle=train,
        seed=1,
        rand_mirror=train,
        rand_crop=train,
        preprocess_threads=max(args.num_data_workers, 1),
        num_parts=bps.size(),
        part_index=bps.rank(),
    )
    return reader, max(count // (args.batch_size * bps.size()), 1)


def batches(reader: Any, steps: int) -> Any:
    """So many batches, from the start again where a part has fewer."""
    reader.reset()
    for _ in range(steps):
        try:
            batch = reader.next()
        except StopIteration:
            reader.reset()
            batch = reader.next()
        yield batch.data[0] / 128 - 1, batch.label[0]


def accuracy(net: Any, reader: Any) -> float:
    """Each worker tests its part; the counts are summed."""
    right = total = 0
    reader.reset()
    for batch in reader:
        kept = len(batch.label[0]) - batch.pad
        guesses = net(batch.data[0] / 128 - 1).asnumpy().argmax(1)[:kept]
        right += int((guesses == batch.label[0].asnumpy()[:kept]).sum())
        total += kept
    counts = bps.push_pull(mx.nd.array([right, total]), average=False, name="accuracy").asnumpy()
    return float(counts[0] / max(counts[1], 1))


class Training:
    """A network and its trainer; ``step`` is one batch."""

    def __init__(self, args: argparse.Namespace) -> None:
        mx.random.seed(1)
        self.net = gluon.model_zoo.vision.get_model(args.model, classes=args.num_classes)
        self.net.initialize(mx.init.Xavier(magnitude=2))
        if args.mode.startswith("hybri"):
            self.net.hybridize(static_alloc=True)
        options = {"learning_rate": args.lr, "momentum": args.momentum, "wd": args.wd}
        compression_params = {
            "compressor": args.compressor,
            "ef": args.ef,
            "momentum": args.compress_momentum,
            "scaling": args.onebit_scaling,
            "k": args.k,
            "fp16": args.fp16_pushpull,
        }
        self.trainer = bps.DistributedTrainer(
            self.net.collect_params(), "nag", options, compression_params=compression_params
        )
        self._criterion = gluon.loss.SoftmaxCrossEntropyLoss()

    def step(self, images: Any, labels: Any, lr: float) -> Any:
        self.trainer.set_learning_rate(lr)
        with autograd.record():
            loss = self._criterion(self.net(images), labels)
        loss.backward()
        self.trainer.step(len(labels))
        return loss.mean()


def train(args: argparse.Namespace, training: Training, log: logging.Logger) -> None:
    reader, steps = records(args, args.rec_train, args.rec_train_idx, train=True)
    test = records(args, args.rec_val, args.rec_val_idx, train=False)[0] if args.rec_val else None
    started = time.perf_counter()
    for epoch in range(args.num_epochs):
        losses = [
            training.step(images, labels, rate(args, epoch + number / steps))
            for number, (images, labels) in enumerate(batches(reader, steps))
        ]
        mean = float(mx.nd.stack(*losses).mean().asscalar())
        found = "" if test is None else f"  accuracy {accuracy(training.net, test):.4f}"
        seconds = time.perf_counter() - started
        log.info("epoch %d/%d  loss %.4f%s  %.1f s", epoch + 1, args.num_epochs, mean, found, seconds)


def benchmark(args: argparse.Namespace, training: Training, log: logging.Logger) -> None:
    """The same random batch again and again."""
    images = mx.nd.random.uniform(-1, 1, (args.batch_size, 3, args.image_size, args.image_size))
    labels = mx.nd.array(np.arange(args.batch_size) % args.num_classes)
    speeds = []
    for number in range(args.num_warmup_batches + args.num_batches):
        started = time.perf_counter()
        training.step(images, labels, args.lr)
        mx.nd.waitall()
        if number >= args.num_warmup_batches:
            speeds.append(args.batch_size / (time.perf_counter() - started))
        if number % 10 == 9:
            log.info("batch %d: %.1f images/s per worker", number + 1, speeds[-1] if speeds else 0.0)
    mean, spread = statistics.mean(speeds), 1.96 * statistics.pstdev(speeds)
    total = float(bps.push_pull(mx.nd.array([mean]), average=False, name="speed").asscalar())
    log.info("Img/sec per worker: %.1f +-%.1f", mean, spread)
    log.info("Total img/sec on %d worker(s): %.1f", bps.size(), total)


def main() -> None:
    args = arguments()
    bps.init()
    log = logging.getLogger("train_imagenet")
    if bps.rank() == 0:
        log.setLevel(logging.INFO)
        log.addHandler(logging.StreamHandler())
        if args.logging_file:
            log.addHandler(logging.FileHandler(args.logging_file))
    training = Training(args)
    (benchmark if args.benchmark else train)(args, training, log)


if __name__ == "__main__":
    main()
