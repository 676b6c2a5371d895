"""The backend ``byteps`` of torch.distributed, for programs that are written for that and not for us.

    torch.distributed.init_process_group("byteps")

A group of all ranks sums and broadcasts by push-pull (``group``). A group of some of them is plain Gloo: a
push-pull is an operation of the whole job. How ranks find each other is in ``agree``.
"""

from __future__ import annotations

import itertools
from typing import Any

from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from byteps.torch.process_group import agree
from byteps.torch.process_group.group import PushPullGroup
from byteps.torch.process_group.inner import gloo
from byteps.worker import current

__all__ = ["create"]

# Groups of all ranks that this process has made, in the order in which all ranks make them.
_numbers = itertools.count()


def create(options: Any, _backend_options: Any = None) -> Any:
    """What torch.distributed calls for each new group that this rank is in; a process group or a backend."""
    store, rank, size = options.store, options.group_rank, options.group_size
    members = options.global_ranks_in_group  # empty for the first group, which is everybody
    session = current.session
    if not members:
        session = agree.membership(store, rank, size)
    if session is None or size != session.size or rank != session.rank:
        return gloo(store, rank, size, options.timeout)
    # torchrun's store outlives a group: one that is made again, with the same name, must not see old keys.
    inner = gloo(PrefixStore(f"gloo/{next(_numbers)}", store), rank, size, options.timeout)
    return PushPullGroup(store, rank, size, inner, options.group_id, session)
