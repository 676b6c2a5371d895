"""The native codecs equal their NumPy reference, bit for bit: payloads, decoded values, sums and errors."""

from __future__ import annotations

import numpy as np
import pytest
from compress_cases import KERNELS, KINDS, SPECS, Floats, arrays, assert_same, filled
from hypothesis import given, settings
from hypothesis import strategies as st

from byteps import _core
from byteps.compress import CodecSpec, reference
from byteps.compress.native import NativeCodec
from byteps.compress.reference.error_feedback import encode_with_feedback, factor
from byteps.compress.reference.momentum import nesterov

rounds = st.integers(0, 2**32 - 1)
numbers = st.integers(0, 2**63 - 1)


def finite_codec(spec: CodecSpec) -> CodecSpec:
    """The same codec with error feedback."""
    return CodecSpec(**{**spec.__dict__, "ef": spec.ef or "vanilla"})


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(SPECS), arrays(), rounds, numbers, numbers, st.sampled_from(KERNELS))
def test_payloads_and_what_they_decode_to(
    spec: CodecSpec, x: Floats, round: int, seed: int, key: int, kernels: str
) -> None:
    native = NativeCodec(spec, x.size, seed, key, kernels)
    expected = reference.make(spec, x.size, seed, key)
    payload = expected.encode(x, round)
    assert native.encode(x, round) == payload
    assert len(payload) <= native.core.max_bytes
    decoded = expected.decode(payload, round)
    assert_same(native.decode(payload, round), decoded)
    acc = np.arange(x.size, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        total = acc + decoded
    native.decode_add(payload, round, acc)
    if spec.codec in ("topk", "randomk"):  # what is not sent is not touched
        total = np.where(decoded == 0, np.arange(x.size, dtype=np.float32), total)
    assert_same(acc, total)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SPECS), arrays(), rounds, st.sampled_from([1.0, 0.5, 1.1]), st.sampled_from(KERNELS))
def test_error_feedback(spec: CodecSpec, g: Floats, round: int, c: float, kernels: str) -> None:
    spec = finite_codec(spec)
    native, expected = NativeCodec(spec, g.size, 3, 4, kernels), reference.make(spec, g.size, 3, 4)
    error = expected_error = np.zeros_like(g)
    error = error.copy()
    for step in range(3):
        now = (round + step) % 2**32
        payload, expected_error = encode_with_feedback(expected, g, c, expected_error, now)
        ours = native.encode_with_feedback(g, c, error, now)
        if np.isfinite(error).all():
            assert ours == payload
        assert_same(error, expected_error)
        if not np.isfinite(error).all():
            return  # which NaN goes on, no processor promises


LARGE = [(20_000, kind) for kind in KINDS] + [
    (2_000_000, kind) for kind in ("normal", "heavy", "zero", "special")
]


@pytest.mark.parametrize(("n", "kind"), LARGE)
def test_large_partitions(n: int, kind: str, rng: np.random.Generator) -> None:
    x = filled(kind, n, rng)
    for spec in SPECS:
        if n > 20_000 and spec.k in (0.999, 127, 300, 1 << 20, 1 << 28):
            continue  # slow in NumPy, and nothing that smaller ones do not have
        native = NativeCodec(spec, n, 5, 6)
        assert native.encode(x, 9) == reference.make(spec, n, 5, 6).encode(x, 9), spec


@pytest.mark.parametrize("spec", SPECS, ids=CodecSpec.text)
def test_what_is_sent_and_what_is_kept_are_what_there_was(spec: CodecSpec, rng: np.random.Generator) -> None:
    """p = decode(C(p)) + e: exactly for the sparse ones, to a rounding for the others."""
    spec = finite_codec(spec)
    g, error = filled("normal", 5000, rng), np.zeros(5000, np.float32)
    codec = NativeCodec(spec, g.size)
    for round in range(5):
        p = g + error
        decoded = codec.decode(codec.encode_with_feedback(g, 1.0, error, round), round)
        assert_same(error, p - decoded)
        if spec.codec in ("topk", "randomk"):
            assert_same(decoded + error, p)


def test_zeros_and_nan_are_not_negative() -> None:
    x = np.array([0.0, -0.0, np.nan, -np.nan, -1e-45], np.float32)
    payload = NativeCodec(CodecSpec("onebit"), 5).encode(x, 0)
    assert payload == np.float32(1).tobytes() + bytes([0b10000])


@pytest.mark.parametrize("text", ["compressor=onebit,scaling=true", "compressor=topk,k=2", "fp16=true"])
def test_a_nan_is_never_hidden(text: str) -> None:
    x = np.array([1, 2, 3, np.nan, 5, 6, 7, 8, 9], np.float32)
    codec = NativeCodec(CodecSpec.from_text(text), x.size)
    assert np.isnan(codec.decode(codec.encode(x, 0), 0)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_dithering_shows_an_overflow(bad: float) -> None:
    x = np.array([1, bad, 3], np.float32)
    for normalize in ("max", "l2"):
        codec = NativeCodec(CodecSpec("dithering", k=2, normalize=normalize, partition="linear"), 3)
        assert np.isnan(codec.decode(codec.encode(x, 0), 0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("compressor", ["int8", "int4"])
def test_blocks_show_an_overflow_where_it_is(compressor: str, bad: float) -> None:
    x = np.ones(700, np.float32)
    x[300] = bad
    codec = NativeCodec(CodecSpec(compressor, rounding="nearest"), x.size)
    decoded = codec.decode(codec.encode(x, 0), 0)
    assert np.isnan(decoded[256:512]).all()
    np.testing.assert_allclose(np.delete(decoded, np.s_[256:512]), 1, rtol=1e-6)


@pytest.mark.parametrize(("compressor", "most"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_how_far_a_code_may_be_off(
    compressor: str, most: int, rounding: str, rng: np.random.Generator
) -> None:
    """Half a step of the element's own block, or a whole one; what lies on a code stays there."""
    codec = NativeCodec(CodecSpec(compressor, rounding=rounding), 5000)
    for kind in ("normal", "heavy", "sparse", "ties"):
        x = filled(kind, 5000, rng)
        for round in range(3):
            off = np.abs(codec.decode(codec.encode(x, round), round) - x)
            for begin in range(0, 5000, 256):
                step = np.abs(x[begin : begin + 256]).max() / most
                allowed = step * (0.5 if rounding == "nearest" else 1.0) * (1 + 1e-5)
                assert off[begin : begin + 256].max() <= allowed
    whole = rng.integers(-most, most + 1, 5000).astype(np.float32)
    whole[::256] = most
    for round in range(20):
        assert_same(codec.decode(codec.encode(whole, round), round), whole)


@pytest.mark.parametrize(("compressor", "most"), [("int8", 127), ("int4", 7)])
def test_stochastic_rounding_is_right_in_the_mean(compressor: str, most: int) -> None:
    """Over many rounds, keys and elements: within five standard errors of nothing, in every lane of 16."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 4096).astype(np.float32)
    x[::256] = 1
    rounds = 400
    total = np.zeros(x.size)
    for round in range(rounds):
        codec = NativeCodec(CodecSpec(compressor, rounding="stochastic"), x.size, 7, round % 5)
        total += codec.decode(codec.encode(x, round), round)
    off = (total / rounds - x).reshape(-1, 16) * most  # in steps
    error = 0.5 / np.sqrt(rounds)
    assert np.abs(off).max() < 5.5 * error
    assert np.abs(off.mean(axis=0)).max() < 5 * error / np.sqrt(x.size / 16)


def test_bytes_of_indices() -> None:
    """The specification wants about 2 bytes for an index at k = 0.001."""
    n = 1_024_000
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    payload = NativeCodec(CodecSpec("topk", k=0.001), n).encode(x, 0)
    assert (len(payload) - 4 - 4 * 1024) / 1024 < 1.55


def test_an_array_may_lie_at_any_float(rng: np.random.Generator) -> None:
    room = filled("normal", 10_010, rng)
    for spec in SPECS:
        for offset in (1, 3):
            x = room[offset : offset + 10_001]
            expected = reference.make(spec, x.size).encode(x, 1)
            assert NativeCodec(spec, x.size).encode(x, 1) == expected


@settings(deadline=None)
@given(arrays(), st.sampled_from([0.0, 0.9, 1.0]))
def test_nesterov_momentum(g: Floats, mu: float) -> None:
    m = np.linspace(-1, 1, g.size, dtype=np.float32)
    expected_m, expected_g = nesterov(m, g, mu)
    g = g.copy()
    _core.nesterov(m.ctypes.data, g.ctypes.data, mu, g.size)
    assert_same(m, expected_m)
    assert_same(g, expected_g)


@pytest.mark.parametrize(
    ("ef", "previous", "now", "c"),
    [
        ("vanilla", 0.1, 0.05, 1.0),
        ("corrected", 0.1, 0.05, 2.0),
        ("sparse", 0.1, 0.2, 0.5),
        ("corrected", 0.1, 0.0, 1.0),
        ("corrected", None, 0.1, 1.0),
        ("corrected", 0.1, None, 1.0),
    ],
)
def test_factors_of_error_feedback(ef: str, previous: float | None, now: float | None, c: float) -> None:
    assert factor(ef, previous, now) == c


@pytest.mark.parametrize(
    ("name", "elements", "k"),
    [
        ("twobit", 1, 1),
        ("int16", 1, 0),
        ("onebit", 0, 0),
        ("onebit", 2**28 + 1, 0),
        ("topk", 5, 0),
        ("dithering", 5, 0),
    ],
)
def test_a_codec_that_cannot_be(name: str, elements: int, k: float) -> None:
    with pytest.raises(ValueError):
        _core.Codec(name, elements, k=k)
