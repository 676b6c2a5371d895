"""The random codecs in distribution, with fixed seeds: unbiased, variance as it should be, fair positions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from byteps.compress import CodecSpec, reference
from byteps.compress.native import NativeCodec
from byteps.compress.reference.random import Stream, positions

ROUNDS = 4000
SIGMAS = 5.5  # of several hundred numbers none is farther off by chance, and the seeds are fixed


def decoded(spec: CodecSpec, x: np.ndarray, seed: int = 11) -> np.ndarray:
    """What each round decodes to, one row per round."""
    codec = NativeCodec(spec, x.size, seed, 5)
    return np.stack([codec.decode(codec.encode(x, round), round) for round in range(ROUNDS)]).astype(
        np.float64
    )


def gradient(n: int) -> np.ndarray:
    """No element is so small that 4000 rounds show nothing of it."""
    x = np.random.default_rng(3).standard_normal(n)
    return (x + np.copysign(0.3, x)).astype(np.float32)


UNBIASED = [
    CodecSpec("dithering", k=k, normalize=normalize, partition=partition)
    for k in (1, 2, 5)
    for normalize in ("max", "l2")
    for partition in ("linear", "natural")
] + [CodecSpec("randomk", k=k) for k in (1, 7, 0.5)]


@pytest.mark.parametrize("spec", UNBIASED, ids=CodecSpec.text)
def test_unbiased(spec: CodecSpec) -> None:
    x = gradient(100)
    rows = decoded(spec, x)
    noise = rows.std(axis=0) / math.sqrt(ROUNDS)
    assert (np.abs(rows.mean(axis=0) - x) <= SIGMAS * noise + 1e-6).all()


@pytest.mark.parametrize("s", [1, 2, 8])
def test_the_variance_of_linear_l2_dithering_is_that_of_qsgd(s: int) -> None:
    """E |Q(x) - x|^2 <= min(n / s^2, sqrt(n) / s) |x|^2 (QSGD, lemma 3.1)."""
    x = gradient(256)
    rows = decoded(CodecSpec("dithering", k=s, normalize="l2", partition="linear"), x)
    norm = float(np.square(x.astype(np.float64)).sum())
    assert np.square(rows - x).sum(axis=1).mean() <= min(x.size / s**2, math.sqrt(x.size) / s) * norm


@pytest.mark.parametrize("partition", ["linear", "natural"])
@pytest.mark.parametrize("s", [1, 2, 5])
def test_the_variance_of_each_element_is_that_of_a_coin(partition: str, s: int) -> None:
    """Between neighbouring levels l and u an element has variance (u - r)(r - l), exactly."""
    x = gradient(64)
    rows = decoded(CodecSpec("dithering", k=s, normalize="max", partition=partition), x)
    scale = float(np.abs(x).max())
    r = np.abs(x.astype(np.float64)) / scale
    levels = np.arange(s + 1) / s if partition == "linear" else np.array([0.0, *2.0 ** np.arange(1 - s, 1)])
    below = np.clip(np.searchsorted(levels, r, side="right") - 1, 0, s - 1)
    expected = (levels[below + 1] - r) * (r - levels[below]) * scale**2
    spread = np.square(rows - x)
    noise = spread.std(axis=0) / math.sqrt(ROUNDS)
    assert (np.abs(spread.mean(axis=0) - expected) <= SIGMAS * noise + 1e-6).all()


def test_the_variance_of_randomk() -> None:
    """E |C(x) - x|^2 = (n / k - 1) |x|^2 without error feedback."""
    x = gradient(120)
    rows = decoded(CodecSpec("randomk", k=30), x)
    spread = np.square(rows - x).sum(axis=1)
    expected = (120 / 30 - 1) * float(np.square(x.astype(np.float64)).sum())
    assert abs(spread.mean() - expected) <= SIGMAS * spread.std() / math.sqrt(ROUNDS)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 2), (5, 4), (37, 5), (128, 16), (1000, 10)])
def test_each_position_is_drawn_equally_often(n: int, k: int) -> None:
    times = np.zeros(n)
    for round in range(ROUNDS):
        drawn = positions(Stream(7, 8, round), n, k)
        assert len(set(drawn.tolist())) == k and drawn.min() >= 0 and drawn.max() < n
        times[drawn] += 1
    chance = k / n
    noise = math.sqrt(ROUNDS * chance * (1 - chance))
    assert (np.abs(times - ROUNDS * chance) <= SIGMAS * noise).all()


def test_pairs_of_positions_are_drawn_equally_often() -> None:
    n, together = 6, np.zeros((6, 6))
    for round in range(ROUNDS * 3):
        a, b = positions(Stream(9, 1, round), n, 2)
        together[a, b] += 1
    off = together[~np.eye(n, dtype=bool)]
    expected = ROUNDS * 3 / (n * (n - 1))
    # Not promised to the last digit as single positions are: within a fifth.
    assert (np.abs(off - expected) <= 0.2 * expected).all()


def test_every_argument_changes_what_is_drawn() -> None:
    base = Stream(1, 2, 3).uniform(64)
    for other in (
        Stream(2, 2, 3),
        Stream(1, 3, 3),
        Stream(1, 2, 4),
        Stream(2, 1, 3),
        Stream(1, 2 + 2**32, 3),
    ):
        assert (other.uniform(64) != base).mean() > 0.9


def test_uniform_numbers_are_uniform_and_not_correlated() -> None:
    u = Stream(5, 6, 7).uniform(1 << 20).astype(np.float64)
    n = u.size
    assert u.min() >= 0 and u.max() < 1
    counts = np.histogram(u, 256, (0, 1))[0]
    chi2 = float(np.square(counts - n / 256).sum() / (n / 256))
    assert abs(chi2 - 255) <= 5 * math.sqrt(2 * 255)
    centred = u - 0.5
    for lag in (1, 2, 8, 4096):
        assert abs((centred[:-lag] * centred[lag:]).mean()) <= 5 / 12 / math.sqrt(n)
    after = Stream(5, 6, 8).uniform(n).astype(np.float64) - 0.5
    assert abs((centred * after).mean()) <= 5 / 12 / math.sqrt(n)


def test_a_replay_draws_the_same_and_members_agree() -> None:
    x = gradient(5000)
    for spec in UNBIASED:
        one, two = NativeCodec(spec, x.size, 3, 4), NativeCodec(spec, x.size, 3, 4)
        first = one.encode(x, 17)
        assert one.encode(x, 18) != first
        assert one.encode(x, 17) == first == two.encode(x, 17)


def test_the_reference_decodes_what_the_native_codec_sends() -> None:
    x = gradient(9000)
    for spec in UNBIASED:
        payload = NativeCodec(spec, x.size, 3, 4).encode(x, 2)
        native = NativeCodec(spec, x.size, 3, 4).decode(payload, 2)
        np.testing.assert_array_equal(native, reference.make(spec, x.size, 3, 4).decode(payload, 2))
