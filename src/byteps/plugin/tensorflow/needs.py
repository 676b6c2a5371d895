"""Is this a TensorFlow that the plugin can use? Said in one sentence instead of an AttributeError later."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["check"]

_NEEDED = (
    "numpy_function",
    "custom_gradient",
    "experimental.dlpack.from_dlpack",
    "compat.v1.train.SessionRunHook",
)


def check(module: Any = tf) -> None:
    """Raise ImportError naming what is missing."""
    for path in _NEEDED:
        found = module
        for name in path.split("."):
            found = getattr(found, name, None)
            if found is None:
                version = getattr(module, "__version__", "of unknown version")
                raise ImportError(
                    f"byteps.tensorflow: TensorFlow {version} has no tf.{path}, which the plugin needs; "
                    "install TensorFlow 2.5 or later"
                )
