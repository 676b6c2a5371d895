"""``byteps.keras`` under the name that users of ``tf.keras`` know."""

from __future__ import annotations

from byteps.keras import *  # noqa: F403
from byteps.keras import __all__ as __all__
