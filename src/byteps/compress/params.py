"""The dictionary ``compression_params``: what is valid, and the canonical text that ranks compare.

Scripts often pass every key, most of them unset: None and "" mean that a key was not given, and so does
False for ``scaling`` and ``fp16``, whose default it is.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["COMPRESSORS", "MAX_LEVELS", "CodecSpec", "parse"]

COMPRESSORS = ("onebit", "topk", "randomk", "dithering", "int8", "int4")
BLOCKS = ("int8", "int4")
CUSTOM: set[str] = set()  # registered by users; see custom.py
EF = ("vanilla", "corrected", "sparse")
# A level must be exact in float32 arithmetic: linear levels are counted, natural ones are powers of two.
MAX_LEVELS = {"linear": 1 << 20, "natural": 127}
MAX_COUNT = 1 << 28  # elements of the largest partition
MAX_SEED = (1 << 63) - 1
MISSPELLINGS = {"partiton": "partition"}  # as one document has it


@dataclass(frozen=True)
class CodecSpec:
    """Valid parameters of one tensor; two ranks mean the same exactly when their specs are equal.

    >>> CodecSpec("topk", k=0.001, ef="vanilla").text()
    'compressor=topk,k=0.001,ef=vanilla'
    """

    compressor: str | None = None
    k: int | float | None = None
    scaling: bool = False
    ef: str | None = None
    momentum: str | None = None
    normalize: str | None = None  # of dithering always set
    partition: str | None = None  # of dithering always set
    rounding: str | None = None  # of int8 and int4 always set
    seed: int | None = None  # None: derived from the job
    fp16: bool = False

    @property
    def codec(self) -> str | None:
        """The codec that runs, if any: fp16 beside a compressor does not make a second one."""
        return self.compressor or ("fp16" if self.fp16 else None)

    @property
    def is_custom(self) -> bool:
        """True for a codec that a user has registered."""
        return self.compressor is not None and self.compressor not in COMPRESSORS

    def count(self, elements: int) -> int:
        """How many elements topk and randomk send of a partition.

        >>> CodecSpec("topk", k=0.001).count(500), CodecSpec("topk", k=8).count(5)
        (1, 5)
        """
        if self.k is None or self.compressor not in ("topk", "randomk"):
            raise TypeError(f"{self.codec} has no count of elements")
        wanted = int(self.k) if self.k >= 1 else max(1, int(self.k * elements))
        return min(wanted, elements)

    def text(self) -> str:
        """The canonical text: only what differs from the default, in the order of the fields."""
        parts = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value is not False:
                parts.append(f"{field.name}={'true' if value is True else value}")
        return ",".join(parts)

    @classmethod
    def from_text(cls, text: str) -> CodecSpec:
        """The spec of a canonical text; ValueError when the text is not canonical.

        >>> CodecSpec.from_text("fp16=true").codec
        'fp16'
        """
        given: dict[str, Any] = {}
        for part in text.split(",") if text else []:
            name, separator, value = part.partition("=")
            if not separator:
                raise ValueError(f"codec text {text!r}: {part!r} is not key=value")
            given[name] = _value_of_text(name, value)
        spec = _checked(given)
        if spec.text() != text:
            raise ValueError(f"codec text {text!r} is not canonical: expected {spec.text()!r}")
        return spec


def parse(params: Mapping[str, Any] | None) -> CodecSpec:
    """Check what a user gave; ValueError names the key, the value and what is valid.

    >>> parse({"compressor": "dithering", "k": 2}).text()
    'compressor=dithering,k=2,normalize=max,partition=linear'
    """
    spec = _checked(dict(params or {}))
    if spec.fp16 and spec.compressor is not None:
        warnings.warn(
            f"compression_params: fp16 together with the compressor {spec.compressor!r} only slows things "
            "down: "
            "what the compressor sends is smaller already. Use fp16 alone or leave it out.",
            stacklevel=2,
        )
    if spec.compressor == "dithering" and spec.ef is not None:
        warnings.warn(
            f"compression_params['ef'] = {spec.ef!r} with dithering: its rounding is without bias and needs "
            "no error feedback, and where it changes a gradient by more than the gradient's own size "
            "(normalize 'l2', few levels) the error grows without bound and training diverges. Leave 'ef' "
            "out, or raise k.",
            stacklevel=2,
        )
    return spec


def _checked(params: dict[str, Any]) -> CodecSpec:
    given: dict[str, Any] = {}
    for name, value in params.items():
        key = MISSPELLINGS.get(name, name)
        if key not in _CHECKS:
            raise _refused(name, value, f"an unknown key; valid keys are {', '.join(_CHECKS)}")
        if value is None or (isinstance(value, str) and value == ""):
            continue
        value = _CHECKS[key](key, value)
        if given.setdefault(key, value) != value:
            raise _refused(name, value, f"given twice; {key!r} is {given[key]!r}")
    _check_together(given)
    if given.get("compressor") == "dithering":
        given.setdefault("normalize", "max")
        given.setdefault("partition", "linear")
        most = MAX_LEVELS[given["partition"]]
        if given["k"] > most:
            raise _refused("k", given["k"], f"valid for {given['partition']} dithering: 1 to {most} levels")
    if given.get("compressor") in BLOCKS:
        # Error feedback makes up for a bias; without it, rounding must have none.
        given.setdefault("rounding", "nearest" if "ef" in given else "stochastic")
    return CodecSpec(**given)


def _check_together(given: dict[str, Any]) -> None:
    compressor = given.get("compressor")
    if compressor not in CUSTOM:  # a codec of the user's may mean anything by them
        _only(given, "k", ("topk", "randomk", "dithering"))
        _only(given, "normalize", ("dithering",))
        _only(given, "partition", ("dithering",))
        _only(given, "rounding", BLOCKS)
        if given.get("scaling"):
            _only(given, "scaling", ("onebit",))
    if compressor in ("topk", "randomk", "dithering") and "k" not in given:
        valid = "an integer >= 1" if compressor == "dithering" else "a fraction 0 < k < 1 or an integer >= 1"
        raise _refused("k", None, f"required for {compressor!r}: {valid}")
    if compressor == "dithering" and not isinstance(given["k"], int):
        raise _refused("k", given["k"], "valid for 'dithering': an integer number of levels >= 1")
    if given.get("ef") == "sparse":
        _only(given, "ef", ("randomk",))
    if "ef" in given and compressor is None and not given.get("fp16"):
        raise _refused("ef", given["ef"], "valid only with a compressor or with fp16")


def _only(given: dict[str, Any], key: str, compressors: tuple[str, ...]) -> None:
    if key in given and given.get("compressor") not in compressors:
        names = " or ".join(repr(name) for name in compressors)
        have = given.get("compressor")
        raise _refused(key, given[key], f"valid only with compressor {names}, which is {have!r} here")


def _refused(key: str, value: object, why: str) -> ValueError:
    return ValueError(f"compression_params[{key!r}] = {value!r}: {why}")


def _one_of(*valid: str) -> Callable[[str, Any], str]:
    def check(key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in valid:
            raise _refused(key, value, f"valid values are {', '.join(map(repr, valid))}")
        return value

    return check


def _flag(key: str, value: Any) -> bool:
    # NumPy's bool is neither a bool nor an int, and configuration files produce 0 and 1.
    if type(value).__name__ not in ("bool", "bool_") and value not in (0, 1):
        raise _refused(key, value, "valid values are True and False")
    return bool(value)


def _k(key: str, value: Any) -> int | float:
    valid = "valid: a fraction 0 < k < 1 (topk, randomk), or an integer >= 1"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _refused(key, value, valid)
    number = float(value)
    if 0 < number < 1:
        return number
    if not number >= 1 or number != number // 1 or number > MAX_COUNT:
        raise _refused(key, value, f"{valid} and at most {MAX_COUNT}")
    return int(number)


def _seed(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 < int(value) <= MAX_SEED:
        raise _refused(key, value, "valid: a positive integer below 2**63")
    return int(value)


def _compressor(key: str, value: Any) -> str:
    return (
        value
        if isinstance(value, str) and value in CUSTOM
        else _one_of(*COMPRESSORS, *sorted(CUSTOM))(key, value)
    )


# In the order of the fields of CodecSpec.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "compressor": _compressor,
    "k": _k,
    "scaling": _flag,
    "ef": _one_of(*EF),
    "momentum": _one_of("nesterov"),
    "normalize": _one_of("max", "l2"),
    "partition": _one_of("linear", "natural"),
    "rounding": _one_of("nearest", "stochastic"),
    "seed": _seed,
    "fp16": _flag,
}


def _value_of_text(name: str, value: str) -> Any:
    if name == "k":
        try:
            return int(value) if value.isdecimal() else float(value)
        except ValueError:
            return value
    if name == "seed":
        return int(value) if value.isdecimal() else value
    return value == "true" if name in ("scaling", "fp16") else value
