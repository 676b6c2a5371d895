"""``byteps_declare_tensor``: the codec of a name, in the words of the original's keyword parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byteps.compress import parse
from byteps.errors import ConfigError
from byteps.worker import current

__all__ = ["byteps_declare_tensor", "params_of"]

_KEYS = {
    "byteps_compressor_type": "compressor",
    "byteps_compressor_k": "k",
    "byteps_compressor_onebit_scaling": "scaling",
    "byteps_ef_type": "ef",
    "byteps_error_feedback_type": "ef",
    "byteps_momentum_type": "momentum",
    "byteps_dithering_partition": "partition",
    "byteps_dithering_normalize": "normalize",
    "byteps_block_rounding": "rounding",
    "byteps_seed": "seed",
    "byteps_fp16": "fp16",
}
_ELSEWHERE = ("byteps_momentum_mu",)  # a number for the core, not part of the codec
# The original's scripts give everything as text, and the choices of dithering as numbers.
_CHOICES = {"partition": {"0": "linear", "1": "natural"}, "normalize": {"0": "max", "1": "l2"}}
_FLAGS = ("scaling", "fp16")
_of_name: dict[str, dict[str, Any]] = {}


def byteps_declare_tensor(name: str, **kwargs: Any) -> None:
    """Say how the tensor ``name`` is compressed, before ``byteps_push_pull(tensor, name=name)``.

        bps.byteps_declare_tensor("gradient_0", byteps_compressor_type="onebit", byteps_ef_type="vanilla")

    Without parameters it is allowed and does nothing: the order of declarations does not matter.
    """
    session: Any = current.required("byteps_declare_tensor")
    params: dict[str, Any] = {}
    for key, value in kwargs.items():
        if key in _ELSEWHERE:
            continue
        if key not in _KEYS:
            raise ConfigError(
                f"byteps_declare_tensor of {name}: unknown parameter {key}={value!r}; expected "
                f"{', '.join((*_KEYS, *_ELSEWHERE))}"
            )
        params[_KEYS[key]] = _value(_KEYS[key], value)
    if parse(params).momentum and "byteps_momentum_mu" in kwargs:
        session.set_rates(None, float(kwargs["byteps_momentum_mu"]), [name])
    _of_name[name] = params


def params_of(name: str | None, given: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """What is given, or else what was declared for the name."""
    return given or _of_name.get(name or "") or None


def _value(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if key in _CHOICES:
        return _CHOICES[key].get(value, value)
    if key in _FLAGS:
        return value.lower() in ("true", "1")
    if key in ("k", "seed"):
        try:
            return int(value) if value.lstrip("+-").isdecimal() else float(value)
        except ValueError:
            return value
    return value
