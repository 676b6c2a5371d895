"""``load_model``: a saved model with a distributed optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from byteps.keras.compression import Compression
from byteps.keras.optimizer import DistributedOptimizer, is_distributed
from byteps.worker import current

__all__ = ["load_model"]


def load_model(
    filepath: Any,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
    compression_params: Mapping[str, object] | None = None,
    **options: Any,
) -> Any:
    """Load a model as ``keras.models.load_model`` does, and make its optimizer a distributed one.

        model = bps.load_model("model.keras")

    The state of the optimizer (momentum, number of steps) is restored. A model that was saved without an
    optimizer is returned as it is.
    """
    current.required("load_model")
    model = keras.models.load_model(filepath, custom_objects=custom_objects, **options)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        DistributedOptimizer(optimizer, compression, compression_params)
        if keras.backend.backend() == "tensorflow":
            model.jit_compile = False  # decided when the optimizer was still an ordinary one
    return model
