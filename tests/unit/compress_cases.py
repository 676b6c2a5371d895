"""What tests of codecs share: every spec, arrays of every kind, and equality that forgives only NaNs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from byteps.compress import CodecSpec

Floats = npt.NDArray[np.float32]

TEXTS = [
    "compressor=onebit",
    "compressor=onebit,scaling=true",
    "compressor=topk,k=0.001",
    "compressor=topk,k=0.3",
    "compressor=topk,k=0.999",
    "compressor=topk,k=1",
    "compressor=topk,k=50",
    "compressor=topk,k=268435456",
    "compressor=randomk,k=0.001",
    "compressor=randomk,k=0.3,ef=vanilla",
    "compressor=randomk,k=7",
    "compressor=topk,k=0.1,fp16=true",
    "compressor=topk,k=50,ef=vanilla,fp16=true",
    "compressor=randomk,k=0.1,fp16=true",
    "compressor=randomk,k=0.1,ef=vanilla,fp16=true",
    "compressor=randomk,k=268435456",
    "compressor=dithering,k=1,normalize=max,partition=linear",
    "compressor=dithering,k=2,normalize=max,partition=linear",
    "compressor=dithering,k=2,normalize=l2,partition=linear",
    "compressor=dithering,k=300,normalize=max,partition=linear",
    "compressor=dithering,k=1048576,normalize=l2,partition=linear",
    "compressor=dithering,k=1,normalize=max,partition=natural",
    "compressor=dithering,k=2,normalize=max,partition=natural",
    "compressor=dithering,k=4,normalize=l2,partition=natural",
    "compressor=dithering,k=127,normalize=max,partition=natural",
    "fp16=true",
    "compressor=int8,rounding=nearest",
    "compressor=int8,rounding=stochastic",
    "compressor=int4,rounding=nearest",
    "compressor=int4,rounding=stochastic",
]
SPECS = [CodecSpec.from_text(text) for text in TEXTS]
KERNELS = ("best", "generic")

TINY = np.float32(1e-45)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, TINY, -TINY, 1e-38, 65504, 65520, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan],
    np.float32,
)
FINITE = SPECIAL[np.isfinite(SPECIAL)]


def filled(kind: str, n: int, rng: np.random.Generator) -> Floats:
    """n elements of a kind of data that gradients have, or must survive."""
    if kind == "normal":
        return rng.standard_normal(n).astype(np.float32)
    if kind == "heavy":  # a few large ones above many small ones
        return (rng.standard_normal(n) ** 7 * 1e-3).astype(np.float32)
    if kind == "sparse":
        return np.where(rng.random(n) < 0.01, rng.standard_normal(n), 0).astype(np.float32)
    if kind == "denormal":
        return (rng.integers(-9, 10, n) * TINY).astype(np.float32)
    if kind == "ties":
        return rng.integers(-2, 3, n).astype(np.float32)
    if kind == "special":
        return rng.choice(SPECIAL, n)
    if kind == "finite":
        return rng.choice(FINITE, n)
    value = {"zero": 0.0, "minus zero": -0.0, "constant": -0.1, "inf": np.inf, "nan": np.nan}[kind]
    return np.full(n, value, np.float32)


KINDS = [
    "normal",
    "heavy",
    "sparse",
    "denormal",
    "ties",
    "special",
    "finite",
    "zero",
    "minus zero",
    "constant",
]
KINDS += ["inf", "nan"]

sizes = st.one_of(
    st.integers(1, 70),
    st.integers(1, 700),
    st.sampled_from([255, 256, 257, 2047, 2048, 4095, 4096, 4097, 9000]),
)


@st.composite
def arrays(draw: st.DrawFn) -> Floats:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return filled(draw(st.sampled_from(KINDS)), draw(sizes), rng)


def assert_same(actual: Floats, expected: Floats) -> None:
    """Equal bits, or a NaN in both places (which NaN it is, no processor promises)."""
    assert actual.shape == expected.shape
    same = (actual.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(actual) & np.isnan(expected))
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, f"{wrong.size} differ, first {wrong[0]}: {actual[wrong[0]]} {expected[wrong[0]]}"
