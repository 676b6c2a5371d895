"""Train on CIFAR-100 with compressed gradients: the options are those of the reproduction guide.

    bpslaunch --workers 2 --servers 1 python train_cifar100.py --model resnet18_v2 --compressor onebit \\
        --onebit-scaling --ef vanilla --compress-momentum nesterov --logging-file onebit.log

--data names the folder with CIFAR-100 in its binary form (train.bin, test.bin); without it they are made up.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import byteps.mxnet as bps

CLASSES = 100
RECORD_BYTES = 2 + 3 * 32 * 32  # coarse label, fine label, pixels
Data = tuple[Any, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="resnet18_v2", help="of mxnet.gluon.model_zoo.vision (%(default)s)")
    add("--mode", default="hybrid", help="hybrid compiles the network, anything else does not")
    add("--batch-size", type=int, default=32, help="of each worker (%(default)s)")
    add("--num-gpus", type=int, default=0, help="of each worker; this example runs on the CPU")
    add("--num-epochs", type=int, default=200)
    add("-j", "--num-data-workers", type=int, default=0, help="accepted; the data fits into memory")
    add("--warmup-epochs", type=int, default=10)
    add("--warmup-lr", type=float, default=0.0, help="where the warmup begins (%(default)s)")
    add("--lr", type=float, default=0.1, help="(%(default)s)")
    add("--lr-decay", type=float, default=0.1)
    add("--lr-decay-epoch", default="100,150")
    add("--momentum", type=float, default=0.9)
    add("--wd", type=float, default=5e-4)
    add("--compressor", default="", help="onebit, topk, randomk, dithering, int8 or int4; none if left out")
    add("--onebit-scaling", action="store_true")
    add("--k", type=float, help="of topk, randomk and dithering")
    add("--ef", default="", help="error feedback: vanilla, corrected, sparse")
    add("--compress-momentum", default="", help="nesterov")
    add("--normalize", default="", help="of dithering: max or l2")
    add("--partition", default="", help="of dithering: linear or natural")
    add("--fp16-pushpull", action="store_true")
    add("--logging-file", default="", help="where rank 0 logs besides the terminal")
    add("--data", type=Path, help="folder with train.bin and test.bin")
    add("--synthetic-images", type=int, default=512)
    add("--image-size", type=int, default=32, help="of made-up images")
    return parser.parse_args()


def load(file: Path) -> Data:
    content = np.frombuffer(file.read_bytes(), np.uint8).reshape(-1, RECORD_BYTES)
    return content[:, 2:].reshape(-1, 3, 32, 32).astype("float32") / 128 - 1, content[:, 1].astype("float32")


def made_up(count: int, size: int, seed: int) -> Data:
    """Noise around one picture for each class."""
    means = np.random.default_rng(0).standard_normal((CLASSES, 3, size, size)).astype("float32")
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    return means[labels] + rng.standard_normal((count, 3, size, size)).astype("float32"), labels.astype(
        "float32"
    )


def rate(args: argparse.Namespace, epoch: float) -> float:
    """Of the learning rate: linear warmup, then steps."""
    if epoch < args.warmup_epochs:
        return float(args.warmup_lr + (args.lr - args.warmup_lr) * epoch / args.warmup_epochs)
    passed = sum(epoch >= int(edge) for edge in args.lr_decay_epoch.split(","))
    return float(args.lr * args.lr_decay**passed)


def accuracy(net: Any, data: Data, batch: int) -> float:
    """Each worker tests its part; the counts are summed."""
    images, labels = (part[bps.rank() :: bps.size()] for part in data)
    right = sum(
        int((net(mx.nd.array(images[i : i + batch])).asnumpy().argmax(1) == labels[i : i + batch]).sum())
        for i in range(0, len(labels), batch)
    )
    counts = bps.push_pull(mx.nd.array([right, len(labels)]), average=False, name="accuracy").asnumpy()
    return float(counts[0] / counts[1])


def train(args: argparse.Namespace, log: logging.Logger) -> None:
    mx.random.seed(1 + bps.rank())
    if args.data:
        training, test = load(args.data / "train.bin"), load(args.data / "test.bin")
    else:
        training = made_up(args.synthetic_images, args.image_size, 1)
        test = made_up(max(CLASSES, args.synthetic_images // 5), args.image_size, 2)
    net = gluon.model_zoo.vision.get_model(args.model, classes=CLASSES)
    net.initialize(mx.init.Xavier())
    if args.mode.startswith("hybri"):
        net.hybridize(static_alloc=True)
    compression_params = {
        "compressor": args.compressor,
        "ef": args.ef,
        "momentum": args.compress_momentum,
        "scaling": args.onebit_scaling,
        "k": args.k,
        "normalize": args.normalize,
        "partition": args.partition,
        "fp16": args.fp16_pushpull,
    }
    options = {"learning_rate": args.lr, "momentum": args.momentum, "wd": args.wd}
    trainer = bps.DistributedTrainer(
        net.collect_params(), "nag", options, compression_params=compression_params
    )
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    shuffle = np.random.default_rng(1)
    share = len(training[1]) // bps.size()
    started = time.perf_counter()
    for epoch in range(args.num_epochs):
        mine = shuffle.permutation(len(training[1]))[bps.rank() :: bps.size()][:share]
        losses = []
        for start in range(0, share, args.batch_size):
            chosen = mine[start : start + args.batch_size]
            trainer.set_learning_rate(rate(args, epoch + start / share))
            with autograd.record():
                loss = criterion(net(mx.nd.array(training[0][chosen])), mx.nd.array(training[1][chosen]))
            loss.backward()
            trainer.step(len(chosen))
            losses.append(loss.mean())
        mean = float(mx.nd.stack(*losses).mean().asscalar())
        log.info(
            "epoch %d/%d  loss %.4f  accuracy %.4f  %.1f s",
            *(epoch + 1, args.num_epochs, mean, accuracy(net, test, args.batch_size)),
            time.perf_counter() - started,
        )


def main() -> None:
    args = arguments()
    bps.init()
    log = logging.getLogger("train_cifar100")
    if bps.rank() == 0:
        log.setLevel(logging.INFO)
        log.addHandler(logging.StreamHandler())
        if args.logging_file:
            log.addHandler(logging.FileHandler(args.logging_file))
    log.info("%s", args)
    train(args, log)


if __name__ == "__main__":
    main()
