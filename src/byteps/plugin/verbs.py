"""The operations of ``byteps`` on NumPy arrays; loaded by ``byteps`` when the first of them is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from byteps.tensor import arrays
from byteps.tensor.arrays import Array
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.tensors import codec_of

__all__ = ["broadcast", "declare", "push_pull", "push_pull_async"]


def declare(
    name: str | Mapping[str, Any],
    tensor: Any = None,
    compression_params: Mapping[str, object] | None = None,
) -> None:
    """Declare tensors ahead of their first use, with one message however many they are.

    An operation declares its tensor by itself when that is needed, which costs a round trip to the
    scheduler. Declaring a whole model here costs one for all of it. ``declare("name")`` alone is allowed,
    as in the original: it does nothing, because the order of declarations does not matter.

        byteps.declare({"w": w, "b": b})
        byteps.declare("loss", loss)

    Raises DeclarationError when another rank declared one of the names with another dtype or shape.
    """
    session = current.required("declare")
    codec = codec_of(compression_params)
    tensors = {name: tensor} if isinstance(name, str) else name
    specs = []
    for each, value in tensors.items():
        if value is not None:
            array = arrays.to_array(value)
            specs.append(Spec(each, arrays.dtype_number(array, "declare", each), array.shape, codec))
    session.declare(specs)


def push_pull_async(
    tensor: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Handle[Array]:
    """Start a push-pull and return its handle; ``synchronize(handle)`` gives the new array.

    ``tensor`` may be read-only, but must not change before the operation is done.
    """
    session = current.session or current.required("push_pull")
    array = tensor if type(tensor) is np.ndarray else arrays.to_array(tensor)
    dtype = arrays.dtype_number(array, "push_pull", name)
    if not array.flags.c_contiguous:
        array = arrays.contiguous(array)
    shape = array.shape
    declared = session.tensors.get(name)  # type: ignore[arg-type]  # None is not found, as it should be
    if declared is None or declared.shape != shape or declared.dtype != dtype or compression_params:
        declared = session.tensor("push_pull", name, dtype, shape, codec_of(compression_params))
    result = np.empty(shape, array.dtype)
    source = arrays.address(array)
    return session.push_pull(
        declared, source, arrays.address(result), average, priority, (array, result), result
    )


def push_pull(
    tensor: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Array:
    """The average (or the sum) of every rank's ``tensor``, as a new array; the argument is not changed.

        mean = byteps.push_pull(gradient, name="layer1.weight")
        total = byteps.push_pull(count, average=False, name="count")

    Works on NumPy arrays and on anything with the buffer protocol or DLPack. Averages of integers are
    rounded toward zero; float16 and bfloat16 are summed in float32 and rounded once. A higher ``priority``
    is sent first. Without a name, one is made from the order of calls, which must then be the same on every
    rank.

    Raises DeclarationError when ranks disagree on dtype or shape (the job goes on), PeerLostError when a
    member is lost (every later operation raises it again), OperationTimeoutError after BYTEPS_OP_TIMEOUT_S.
    """
    return push_pull_async(tensor, average, name, priority, compression_params).wait()


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Array:
    """Give every rank the exact bits of ``tensor`` on ``root_rank``, and return them.

    They are written into ``tensor`` itself where that is writable, and the result shares its memory; a
    read-only object stays as it is and the result is a new array. The root's own array is never changed.

        weights = byteps.broadcast(weights, root_rank=0, name="weights")
    """
    session = current.session or current.required("broadcast")
    array = arrays.to_array(tensor)
    dtype = arrays.dtype_number(array, "broadcast", name)
    declared = session.tensor("broadcast", name, dtype, array.shape)
    memory = array
    if not (array.flags.c_contiguous and array.flags.writeable):
        memory = np.array(array, order="C", copy=True)
    session.broadcast(declared, arrays.address(memory), root_rank, 0, memory, memory).wait()
    if memory is not array and array.flags.writeable:
        array[...] = memory
        return array
    return memory
