"""Train a small network on the digits that ship inside scikit-learn, with JAX and optax.

    python train_digits.py                                            a job of one
    bpslaunch --workers 2 --servers 1 python train_digits.py          two workers and a server on this machine

``bps.distributed`` wraps the optimizer: its update averages the gradients over all workers, inside ``jit``.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import byteps.jax as bps

Params = dict[str, Any]


def network(seed: int) -> Params:
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "w1": jax.random.normal(first, (64, 256)) / 8,
        "b1": jnp.zeros(256),
        "w2": jax.random.normal(second, (256, 10)) / 16,
        "b2": jnp.zeros(10),
    }


def logits(params: Params, images: Any) -> Any:
    hidden = jax.nn.relu(images @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss_of(params: Params, images: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, images), labels).mean()


def train(args: argparse.Namespace) -> float:
    """Train and return the accuracy on images that were never trained on."""
    digits = load_digits()
    images = (digits.data / 16 - 0.5).astype("float32")
    order = np.random.default_rng(args.seed).permutation(len(images))  # the same on every worker
    test, rest = order[:360], order[360:]
    # The seed differs on purpose: the broadcast makes them alike.
    params = bps.broadcast_parameters(network(args.seed + bps.rank()), root_rank=0)
    optimizer = bps.distributed(optax.sgd(args.lr, momentum=0.9))
    state = optimizer.init(params)

    @jax.jit
    def step(params: Params, state: Any, images: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    batch = max(1, args.batch_size // bps.size())  # the job's batch is the same however many share it
    share = len(rest) // bps.size() // batch * batch  # full batches: another shape would be compiled anew
    shuffle = np.random.default_rng(args.seed)
    for epoch in range(1, args.epochs + 1):
        mine = shuffle.permutation(rest)[bps.rank() :: bps.size()][:share]
        losses = []
        for chosen in np.split(mine, range(batch, share, batch)):
            params, state, loss = step(params, state, images[chosen], digits.target[chosen])
            losses.append(loss)
        mean = bps.push_pull(jnp.mean(jnp.stack(losses)), name="loss")
        if bps.rank() == 0:
            print(f"epoch {epoch:3}/{args.epochs}  loss {float(mean):.4f}", flush=True)
    right = np.asarray(logits(params, images[test])).argmax(1) == digits.target[test]
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
