"""Compressed tensors: every codec gives, bit for bit, what its NumPy reference gives for the whole job."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from suite import Context, check

import byteps.compress
from byteps.compress import CodecSpec, parse
from byteps.tensor.partition import aligned
from byteps.tensor.tuning import USUAL_BYTES
from byteps.worker import current

HAS_CODECS = importlib.util.find_spec("byteps.worker.codecs") is not None
SEED = 11
ELEMENTS = 1500
STEPS = 3
CODECS: list[dict[str, Any]] = [
    {"momentum": "nesterov"},
    {"fp16": True, "ef": "corrected"},
    {"compressor": "onebit"},
    {"compressor": "onebit", "scaling": True, "ef": "vanilla", "momentum": "nesterov"},
    {"compressor": "topk", "k": 0.05, "ef": "corrected"},
    {"compressor": "randomk", "k": 0.1},
    {"compressor": "randomk", "k": 20, "ef": "sparse", "momentum": "nesterov"},
    {"compressor": "dithering", "k": 4},
    {"compressor": "int8"},
    {"compressor": "int8", "ef": "vanilla", "momentum": "nesterov"},
    {"compressor": "int4", "ef": "corrected", "rounding": "stochastic"},
    {"compressor": "dithering", "k": 6, "partition": "natural", "normalize": "l2", "ef": "vanilla"},
]


@check
def every_codec(c: Context) -> None:
    if not HAS_CODECS:
        return  # this version sends tensors as they are
    from byteps.compress.reference.pipeline import Pipeline

    machines = _machines(c)
    partition = aligned(current.required("test").config.partition_bytes or USUAL_BYTES) // 4
    for number, codec in enumerate(CODECS):
        params = {**codec, "seed": SEED}
        name = c.name(number)
        oracle = Pipeline(_in_force(parse(params)), name, ELEMENTS, machines, partition, SEED)
        for step in range(STEPS):
            rate = 0.1 / (1 + step)
            byteps.compress.set_rates(lr=rate, momentum=0.8)
            gradients = [_gradient(rank, step) for rank in range(c.size)]
            mine = c.api.from_bits(gradients[c.rank].view(np.uint32), "float32")
            got = c.bps.push_pull(mine, name=name, compression_params=params)
            wanted = oracle.push_pull(gradients, lr=rate, mu=0.8)
            np.testing.assert_array_equal(c.api.bits(got), wanted.view(np.uint32), str((params, step)))


def _gradient(rank: int, step: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([SEED, rank, step]).standard_normal(ELEMENTS).astype(np.float32)


def _in_force(spec: CodecSpec) -> CodecSpec:
    """What becomes of a codec here: between the ranks of one machine nothing is compressed."""
    from byteps.worker.codecs import plan

    chosen = plan(spec.text(), 0, 4 * ELEMENTS, current.required("test").config)
    return spec if chosen.codec is not None else CodecSpec(momentum=spec.momentum)


def _machines(c: Context) -> list[list[int]]:
    """The ranks of each machine: one begins wherever a local rank is 0."""
    own = np.zeros(c.size, np.int32)
    own[c.rank] = c.bps.local_rank()
    found = c.api.values(c.bps.push_pull(c.api.make(own, "int32"), average=False, name=c.name("ranks")))
    machines: list[list[int]] = []
    for rank, local in enumerate(found):
        if local == 0:
            machines.append([])
        machines[-1].append(rank)
    return machines
