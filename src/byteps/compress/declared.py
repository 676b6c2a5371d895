"""From the codec that ranks have agreed on to what the core is told: the same on workers and servers. Pure.

Ranks agree on a text: the canonical parameters, or those with a remark that the tensor is too small for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byteps.tensor import dtypes

if TYPE_CHECKING:
    from byteps import _core

__all__ = ["FLOATS", "codec_of_tensor", "uncompressed"]

FLOATS = frozenset(dtypes.NUMBERS[name] for name in ("float16", "bfloat16", "float32", "float64"))

_REMARK = " (uncompressed: "


def uncompressed(text: str, least_bytes: int) -> str:
    """The text of a tensor that is smaller than what is worth compressing.

    >>> uncompressed("fp16=true", 65536)
    'fp16=true (uncompressed: fewer than 65536 bytes)'
    """
    return f"{text}{_REMARK}fewer than {least_bytes} bytes)"


def codec_of_tensor(agreed: str, dtype: int, nbytes: int, job_id: str) -> _core.CodecParams | None:
    """The codec with which a tensor travels; None: as it is. ValueError: no such codec is known."""
    if not agreed or dtype not in FLOATS or not nbytes or _REMARK in agreed:
        return None
    from byteps import _core
    from byteps.compress.params import CodecSpec
    from byteps.control.hello import job_number

    spec = CodecSpec.from_text(agreed)
    if spec.codec is None:
        return None
    return _core.CodecParams(
        "custom" if spec.is_custom else spec.codec,
        k=spec.k or 0,
        scaling=spec.scaling,
        l2=spec.normalize == "l2",
        natural=spec.partition == "natural",
        nearest=spec.rounding == "nearest",
        halves=spec.fp16 and spec.compressor in ("topk", "randomk"),
        feedback=spec.ef or "",
        seed=spec.seed or job_number(job_id) >> 1,
        text=agreed if spec.is_custom else "",
    )
