"""Every check of the suite; what every interface must do in a job of every size."""

from __future__ import annotations

import agreement_checks  # noqa: F401  (each adds its checks when it is loaded)
import broadcast_checks  # noqa: F401
import codec_checks  # noqa: F401
import push_pull_checks  # noqa: F401
from suite import IN_PLACE_CHECKS, Context, check

__all__ = ["IN_PLACE_CHECKS", "Context", "check"]
