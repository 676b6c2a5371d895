"""``BroadcastGlobalVariablesHook``: the start of a session of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from byteps.tensorflow.variables import broadcast_global_variables

__all__ = ["BroadcastGlobalVariablesHook"]


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives every rank the root's variables when a session has been created.

        hooks = [bps.BroadcastGlobalVariablesHook(root_rank=0)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session: ...

    So all ranks start alike, from new values or from a checkpoint that only the root has read.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self._device = device
        self._operation: Any = None

    def begin(self) -> None:
        """The graph is complete, and still open."""
        if self._operation is None or self._operation.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self._device):
                self._operation = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Variables have their first values."""
        session.run(self._operation)
