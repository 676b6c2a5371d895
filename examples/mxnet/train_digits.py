"""Train a small network on the digits that ship inside scikit-learn, with MXNet and Gluon.

    python train_digits.py                                            a job of one
    bpslaunch --workers 2 --servers 1 python train_digits.py          two workers and a server on this machine

DistributedTrainer pushes the gradients of the last layer while MXNet still computes those of the first.
"""

from __future__ import annotations

import argparse
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from sklearn.datasets import load_digits

import byteps.mxnet as bps


def train(args: argparse.Namespace) -> float:
    """Train and return the accuracy on images that were never trained on."""
    digits = load_digits()
    images = (digits.data / 16 - 0.5).astype("float32")
    order = np.random.default_rng(args.seed).permutation(len(images))  # the same on every worker
    test, rest = order[:360], order[360:]
    mx.random.seed(args.seed + bps.rank())  # differs on purpose: the trainer makes them alike
    net = gluon.nn.HybridSequential(prefix="digits_")
    with net.name_scope():
        net.add(gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = bps.DistributedTrainer(
        net.collect_params(), "sgd", {"learning_rate": args.lr, "momentum": 0.9}, root_rank=0
    )
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    share = len(rest) // bps.size()
    batch = max(1, args.batch_size // bps.size())  # the job's batch is the same however many share it
    shuffle = np.random.default_rng(args.seed)
    for epoch in range(1, args.epochs + 1):
        mine = shuffle.permutation(rest)[bps.rank() :: bps.size()][:share]
        losses = []
        for chosen in np.split(mine, range(batch, share, batch)):
            with autograd.record():
                loss = criterion(net(mx.nd.array(images[chosen])), mx.nd.array(digits.target[chosen]))
            loss.backward()
            trainer.step(len(chosen))
            losses.append(loss.mean())
        mean = bps.push_pull(mx.nd.stack(*losses).mean(), name="loss").asscalar()
        if bps.rank() == 0:
            print(f"epoch {epoch:3}/{args.epochs}  loss {mean:.4f}", flush=True)
    right = net(mx.nd.array(images[test])).asnumpy().argmax(1) == digits.target[test]
    return float(right.mean())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per step of the whole job")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--min-accuracy", type=float, default=0.95, help="end with an error below it")
    args = parser.parse_args()
    bps.init()
    accuracy = train(args)
    if bps.rank() == 0:
        print(f"workers {bps.size()}  test accuracy {accuracy:.4f}", flush=True)
    return 0 if accuracy >= args.min_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
