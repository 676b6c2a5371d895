"""What every rank of the pipeline's tests runs: 20 steps of training with each of many codecs.

The gradient of a rank depends on the weights, so that a wrong bit anywhere changes everything after it.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt

from byteps.compress import CodecSpec, parse

Floats = npt.NDArray[np.float32]

STEPS = 20
SEED = 11
ELEMENTS = 700
PARTITION_BYTES = 1200  # 300 elements: two whole partitions and a shorter one

_CODECS: list[dict[str, object]] = [
    {"compressor": "onebit"},
    {"compressor": "onebit", "scaling": True},
    {"compressor": "topk", "k": 0.05},
    {"compressor": "topk", "k": 250},
    {"compressor": "topk", "k": 0.1, "fp16": True},
    {"compressor": "randomk", "k": 0.1},
    {"compressor": "randomk", "k": 0.1, "fp16": True},
    {"compressor": "dithering", "k": 4},
    {"compressor": "dithering", "k": 16, "normalize": "l2"},
    {"compressor": "dithering", "k": 3, "partition": "natural"},
    {"compressor": "dithering", "k": 6, "partition": "natural", "normalize": "l2"},
    {"fp16": True},
    {"compressor": "int8", "rounding": "stochastic"},
    {"compressor": "int8", "rounding": "nearest"},
    {"compressor": "int4", "rounding": "stochastic"},
    {"compressor": "int4", "rounding": "nearest"},
]


def cases() -> dict[str, CodecSpec]:
    """Every codec x error feedback x momentum, by its canonical text; momentum alone, too."""
    found = [{"momentum": "nesterov"}]
    for codec in _CODECS:
        kinds = (None, "vanilla", "corrected", *(("sparse",) if codec.get("compressor") == "randomk" else ()))
        found += [
            {**codec, "ef": ef, "momentum": m, "seed": SEED} for ef in kinds for m in (None, "nesterov")
        ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {spec.text(): spec for spec in map(parse, found)}


def rate(step: int) -> float:
    """A learning rate that changes, and is unknown once."""
    return 0.0 if step == 7 else 0.05 / (1 + step // 4)


def gradient(weights: Floats, rank: int, step: int) -> Floats:
    """Of a quadratic function that is another one on every rank, with noise."""
    rng = np.random.default_rng([rank, step])
    curve = np.linspace(0.5, 2, weights.size, dtype=np.float32)
    target = np.float32(rank + 1) * np.sin(np.arange(weights.size, dtype=np.float32))
    noise: Floats = rng.standard_normal(weights.size).astype(np.float32)
    result: Floats = curve * (weights - target) + noise
    return result


def begin() -> Floats:
    return np.zeros(ELEMENTS, np.float32)


def update(weights: Floats, result: Floats, step: int) -> Floats:
    moved: Floats = weights - np.float32(0.05) * result
    return moved


def worker(folder: str) -> dict[str, int]:
    """Train with each case and save the weights; the counters at the end."""
    import byteps as bps

    bps.init()
    for number, (text, _) in enumerate(cases().items()):
        weights = begin()
        params = dict(part.split("=") for part in text.split(","))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = _typed(params)
            for step in range(STEPS):
                bps.compress.set_rates(lr=rate(step), momentum=0.8)
                g = gradient(weights, bps.rank(), step)
                average = number % 3 != 2
                weights = update(weights, bps.push_pull(g, average, f"case {number}", 0, given), step)
        np.save(Path(folder) / f"{number}.{bps.rank()}.npy", weights)
    bps.barrier()
    return bps.counters()


def _typed(params: dict[str, str]) -> dict[str, object]:
    typed: dict[str, object] = dict(params)
    for key in ("scaling", "fp16"):
        if key in typed:
            typed[key] = True
    if "k" in params:
        typed["k"] = float(params["k"]) if "." in params["k"] else int(params["k"])
    if "seed" in params:
        typed["seed"] = int(params["seed"])
    return typed
