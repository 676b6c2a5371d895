"""``byteps.tensorflow.distribute``: a ``tf.distribute`` strategy whose replicas are the ranks of the job."""

from __future__ import annotations

from byteps.tensorflow.distribute.mirrored import MirroredStrategy

__all__ = ["MirroredStrategy"]
