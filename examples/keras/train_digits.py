"""Train a small network on the digits that ship inside scikit-learn, with Keras 3 on any of its backends.

    python train_digits.py                                            a job of one
    KERAS_BACKEND=torch bpslaunch --nproc 2 python train_digits.py    two ranks on this machine

What differs from a program for one process: init(), the wrapped optimizer, the callbacks, and each worker's
own part of the data.
"""

from __future__ import annotations

import argparse
import sys

import keras
import numpy as np
from sklearn.datasets import load_digits

import byteps.keras as bps


def train(args: argparse.Namespace) -> float:
    """Train and return the accuracy on images that were never trained on."""
    digits = load_digits()
    images = (digits.data / 16 - 0.5).astype("float32")
    order = np.random.default_rng(args.seed).permutation(len(images))  # the same on every worker
    test, rest = order[:360], order[360:]
    share = len(rest) // bps.size()
    mine = rest[bps.rank() :: bps.size()][:share]
    keras.utils.set_random_seed(args.seed + bps.rank())  # differs on purpose: the callback makes them alike
    layers = [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9))
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        images[mine],
        digits.target[mine],
        batch_size=max(1, args.batch_size // bps.size()),
        epochs=args.epochs,
        verbose=2 if bps.rank() == 0 else 0,
        callbacks=[
            bps.callbacks.BroadcastGlobalVariablesCallback(0),
            bps.callbacks.MetricAverageCallback(),
            bps.callbacks.LearningRateWarmupCallback(args.lr, warmup_epochs=2),
        ],
    )
    _, accuracy = model.evaluate(images[test], digits.target[test], verbose=0)
    return float(accuracy)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per step of the whole job")
    parser.add_argument("--lr", type=float, default=0.05)
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
