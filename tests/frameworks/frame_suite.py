"""What the checks of the plugins share. A check runs on two ranks at once; all of a suite run in one job."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

from byteps.testing.checks import Checks

# Codecs are not on the wire in every version of the core.
HAS_CODECS = importlib.util.find_spec("byteps.worker.codecs") is not None

check = Checks()  # they run on two ranks, which enter each together
check_before_init = Checks()  # the same, before init()

# As in the guides: everything a script passes, most of it not set.
COMPRESSION: list[dict[str, Any]] = [
    {
        "compressor": "onebit",
        "ef": "vanilla",
        "momentum": "nesterov",
        "scaling": True,
        "k": None,
        "fp16": False,
    },
    {"compressor": "dithering", "k": 16, "normalize": "max", "partition": "linear"},
    {"fp16": True},
]

Array = np.ndarray[Any, Any]


@contextlib.contextmanager
def raises(kind: Any, *words: str) -> Iterator[None]:
    """Like pytest.raises, which a worker need not load."""
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError(f"expected {kind} with {words}, but nothing was raised")


def close(got: Any, wanted: Any, tolerance: float = 2e-6) -> None:
    """Equal but for the order of sums in float32."""
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance)


def data(seed: int = 0, samples: int = 64) -> tuple[Array, Array]:
    """Samples of eight numbers in three classes; the same on all ranks."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((samples, 8)).astype("float32"), rng.integers(0, 3, samples)
