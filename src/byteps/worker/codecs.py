"""From ``compression_params`` to what the core is told: which tensors are compressed, and how.

The canonical text of the parameters is a tensor's codec for everybody: ranks compare it, and what the core
gets follows from it, on workers and servers alike (``byteps.compress.declared``). A tensor that is too small,
or that does not hold floating point, is not compressed; momentum applies to small ones all the same.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from byteps.compress.declared import FLOATS, codec_of_tensor, uncompressed

if TYPE_CHECKING:
    from byteps import _core
    from byteps.config import Config

__all__ = ["DEFAULT_MU", "Plan", "codec_of", "plan"]

# Where nobody has said what the optimizer's momentum is; byteps.compress.set_rates() says it.
DEFAULT_MU = 0.9


def codec_of(compression_params: Mapping[str, object] | None) -> str:
    """Canonical text of ``compression_params``; ValueError says what is wrong with them."""
    if not compression_params:
        return ""
    if not isinstance(compression_params, Mapping):
        word = compression_params if isinstance(compression_params, str) else "onebit"
        raise ValueError(
            f"compression_params={compression_params!r}: expected a dictionary, for example "
            f"{{'compressor': {word!r}}}"
        )
    try:
        # With the types: True is no number of levels, though it equals 1.
        return _text_of(tuple((key, value, type(value)) for key, value in compression_params.items()))
    except TypeError:  # a value that cannot be hashed is not valid either: parse() says why
        from byteps.compress import params

        return params.parse(compression_params).text()
    except ValueError as error:  # the caller's line is of interest, not how we came to refuse it
        raise error.with_traceback(None) from None


@functools.lru_cache(maxsize=256)
def _text_of(items: tuple[tuple[str, Any, type[Any]], ...]) -> str:
    from byteps.compress import params

    return params.parse({key: value for key, value, _ in items}).text()


class Plan(NamedTuple):
    """What becomes of one tensor."""

    told: str = ""  # what ranks must agree on
    codec: _core.CodecParams | None = None  # None: it travels as it is
    momentum: bool = False


_PLAIN = Plan()


def plan(text: str, dtype: int, nbytes: int, config: Config) -> Plan:
    """Decide for a tensor declared with the codec ``text``."""
    if not text or dtype not in FLOATS or not nbytes:
        return _PLAIN if not text else Plan(text)
    from byteps.compress.params import CodecSpec

    spec = CodecSpec.from_text(text)
    momentum = spec.momentum is not None
    if spec.codec is None or not config.distributed or (config.serverless and config.grouped):
        return Plan(text, None, momentum)
    if nbytes < config.min_compress_bytes:
        # Part of what ranks agree on: they may have been told different limits.
        return Plan(uncompressed(text, config.min_compress_bytes), None, momentum)
    return Plan(text, codec_of_tensor(text, dtype, nbytes, config.job_id), momentum)
