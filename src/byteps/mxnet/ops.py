"""The operations of ``byteps.mxnet``: the verbs of ``byteps`` on MXNet arrays, by address, without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from byteps.mxnet.declared import params_of
from byteps.mxnet.memory import item, memory
from byteps.plugin.group import Converted, Group, Item, Started
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.tensors import codec_of

__all__ = ["broadcast", "byteps_push_pull", "declare", "push_pull", "push_pull_async", "run_in_place"]


def byteps_push_pull(
    tensor: Any,
    version: int = 0,
    priority: int = 0,
    name: str | None = None,
    is_average: bool = True,
) -> None:
    """Replace ``tensor`` by the average (or the sum) over all ranks, compressed as declared for its name.

    It waits for what MXNet still computes of the tensor, and returns when the result is there. For many
    tensors ``push_pull_async`` is faster, and ``DistributedTrainer`` does it by itself. Averages of integers
    are rounded toward zero.
    """
    del version  # rounds are counted by the core
    _start("push_pull", tensor, name, priority, params_of(name, None), is_average, None).wait()


def push_pull_async(
    tensor: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Handle[Any]:
    """Start a push-pull; ``synchronize(handle)`` gives a new array."""
    copy = tensor.copy()
    return _start("push_pull", copy, name, priority, params_of(name, compression_params), average, None)


def push_pull(
    tensor: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Any:
    """The average (or the sum) of every rank's ``tensor``, as a new array: see ``byteps.push_pull``.

    Averages of integers are rounded toward zero.
    """
    return push_pull_async(tensor, average, name, priority, compression_params).wait()


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Write the exact bits of the root's array into ``tensor`` on every rank, and return it."""
    return _start("broadcast", tensor, name, 0, None, False, root_rank).wait()


def _start(
    verb: str,
    tensor: Any,
    name: str | None,
    priority: int,
    compression_params: Mapping[str, object] | None,
    average: bool,
    root: int | None,
) -> Handle[Any]:
    session = current.required(verb)
    what = item(tensor, verb, name or "", as_bytes=root is not None)
    if name is None:
        own = session.tensor(verb, None, what.dtype, what.shape or (), codec_of(compression_params)).name
        what = what._replace(name=own)
    group = Group(
        verb,
        [what],
        average=average,
        root=root,
        priority=priority,
        compression_params=compression_params,
    )
    return Converted(session, _begin(group, 0, tensor), lambda _: tensor)


def _begin(group: Group, index: int, array: Any) -> Handle[Any]:
    what = group.items[index]
    address, owner, finish = memory(array, what.name)
    return group.start_in_place(index, address, what.shape or (), owner, finish)


def run_in_place(group: Group, arrays: Sequence[Any]) -> None:
    """Exchange arrays of a group in place: the last first, because a backward pass has made it first.

    While this waits for MXNet to compute one array, those that came before are on their way.
    """
    question = group.ask()
    order = reversed(range(len(arrays)))
    started = [Started(_begin(group, index, arrays[index]), None) for index in order]
    if question is not None and started:
        started[0] = Started(started[0].handle, question)
    group.finish(started)


def declare(
    name: str | Mapping[str, Any],
    tensor: Any = None,
    compression_params: Mapping[str, object] | None = None,
) -> None:
    """Declare arrays ahead of their first use, with one message: see ``byteps.declare``."""
    session = current.required("declare")
    codec = codec_of(compression_params)
    given = {name: tensor} if isinstance(name, str) else name
    items: list[Item] = [item(value, "declare", each) for each, value in given.items() if value is not None]
    session.declare(Spec(each.name, each.dtype, each.shape or (), codec) for each in items)
