"""What ``MirroredStrategy`` changes inside of TensorFlow's: replicas, input and sums are those of all ranks.

These are methods that TensorFlow's own strategies override in the same way
(``tensorflow/python/distribute``), and not all of them are public: their names are checked first.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from byteps.plugin.tensorflow import names, ops
from byteps.worker import current

__all__ = ["between_ranks"]

_OVERRIDDEN = (
    "_batch_reduce_to",
    "_distribute_datasets_from_function",
    "_experimental_distribute_dataset",
    "_get_local_replica_id",
    "_get_replica_id_in_sync_group",
    "_get_variable_creator_initial_value",
    "_input_workers_with_options",
    "_num_replicas_in_sync",
    "_reduce_to",
)
_LABEL = "tensors of MirroredStrategy"


def between_ranks(extended: Any) -> None:
    """Make the inner part of a strategy with one device work between ranks."""
    kind = type(extended)
    for name in _OVERRIDDEN:
        if not hasattr(kind, name):
            raise ImportError(
                f"MirroredStrategy: TensorFlow {tf.__version__} has no {kind.__name__}.{name}, which it "
                "needs; use DistributedOptimizer, or TensorFlow 2.21"
            )
    extended.__class__ = type(kind.__name__, (_BetweenRanks, kind), {})


class _BetweenRanks:
    """Goes in front of the class of the inner part."""

    # How many there are, and which of them this is

    @property
    def _num_replicas_in_sync(self) -> int:
        return current.required("MirroredStrategy").size

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return current.required("MirroredStrategy").rank + replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group - current.required("MirroredStrategy").rank

    # Input: every rank reads the batches of the job and takes its part of each

    def _context(self) -> Any:
        session = current.required("MirroredStrategy")
        return tf.distribute.InputContext(session.size, session.rank, session.size)

    def _experimental_distribute_dataset(self: Any, dataset: Any, options: Any) -> Any:
        from tensorflow.python.distribute import input_util

        return input_util.get_distributed_dataset(
            dataset,
            self._input_workers_with_options(options),
            self._container_strategy(),
            num_replicas_in_sync=self._num_replicas_in_sync,
            input_context=self._context(),
            options=options,
        )

    def _distribute_datasets_from_function(self: Any, dataset_fn: Any, options: Any) -> Any:
        from tensorflow.python.distribute import input_util

        return input_util.get_distributed_datasets_from_function(
            dataset_fn,
            self._input_workers_with_options(options),
            [self._context()],
            self._container_strategy(),
            options=options,
        )

    # Variables start alike

    def _get_variable_creator_initial_value(
        self: Any, replica_id: int, device: Any, *args: Any, **named: Any
    ) -> Any:
        make = super()._get_variable_creator_initial_value(replica_id, device, *args, **named)  # type: ignore[misc]
        if not tf.executing_eagerly():  # made inside tf.function, where Keras makes none
            return make

        def make_as_rank_0() -> Any:
            value = tf.convert_to_tensor(make() if callable(make) else make)
            return ops.broadcast(value, root_rank=0)

        return make_as_rank_0

    # Sums and averages

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        flat = tf.nest.flatten(value)
        return tf.nest.pack_sequence_as(value, _reduce(reduce_op, flat))

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        return _reduce(reduce_op, [value for value, _ in value_destination_pairs])


def _reduce(reduce_op: Any, values: list[Any]) -> list[Any]:
    found = [ops.dense(_local(value), "push_pull", None) for value in values]
    kinds = ",".join(f"{each.dtype.name}{each.shape}" for each in found)
    again = names.occurrence(kinds)
    items = [
        ops.item(
            value, "push_pull", f"Strategy.{index} of {len(found)} {value.dtype.name}{value.shape}{again}"
        )
        for index, value in enumerate(found)
    ]
    average = reduce_op == tf.distribute.ReduceOp.MEAN
    return ops.exchange(found, items, average, agree=_LABEL)


def _local(value: Any) -> Any:
    """This rank's value: there is one device, and so one value."""
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
