"""Train a small network on the digits that ship inside scikit-learn, with TensorFlow.

    python train_digits.py                                            a job of one
    bpslaunch --workers 2 --servers 1 python train_digits.py          two workers and a server on this machine

DistributedGradientTape averages the gradients over all workers inside the compiled step: each travels as soon
as it is computed.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import byteps.tensorflow as bps


def network() -> list[tf.Variable]:
    shapes = {"w1": (64, 256), "b1": (256,), "w2": (256, 10), "b2": (10,)}
    return [
        tf.Variable(tf.random.normal(shape, stddev=shape[0] ** -0.5 if len(shape) > 1 else 0.0), name=name)
        for name, shape in shapes.items()
    ]


def logits(weights: list[tf.Variable], images: tf.Tensor) -> tf.Tensor:
    w1, b1, w2, b2 = weights
    return tf.nn.relu(images @ w1 + b1) @ w2 + b2


def train(args: argparse.Namespace) -> float:
    """Train and return the accuracy on images that were never trained on."""
    digits = load_digits()
    images = (digits.data / 16 - 0.5).astype("float32")
    order = np.random.default_rng(args.seed).permutation(len(images))  # the same on every worker
    test, rest = order[:360], order[360:]
    tf.random.set_seed(args.seed + bps.rank())  # differs on purpose: the broadcast makes them alike
    weights = network()
    bps.broadcast_variables(weights, root_rank=0)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(weights, images))
            loss = tf.reduce_mean(losses)
        tape = bps.DistributedGradientTape(tape)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(args.lr * gradient)
        return loss

    share = len(rest) // bps.size()
    batch = max(1, args.batch_size // bps.size())  # the job's batch is the same however many share it
    shuffle = np.random.default_rng(args.seed)
    for epoch in range(1, args.epochs + 1):
        mine = shuffle.permutation(rest)[bps.rank() :: bps.size()][:share]
        losses = [
            step(tf.constant(images[chosen]), tf.constant(digits.target[chosen]))
            for chosen in np.split(mine, range(batch, share, batch))
        ]
        mean = bps.push_pull(tf.reduce_mean(losses), name="loss")
        if bps.rank() == 0:
            print(f"epoch {epoch:3}/{args.epochs}  loss {float(mean):.4f}", flush=True)
    right = tf.argmax(logits(weights, tf.constant(images[test])), 1).numpy() == digits.target[test]
    return float(right.mean())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per step of the whole job")
    parser.add_argument("--lr", type=float, default=0.3)
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
