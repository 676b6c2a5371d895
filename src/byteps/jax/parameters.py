"""Start every rank from the same numbers: ``broadcast_parameters``."""

from __future__ import annotations

from typing import Any

import jax

from byteps.jax.ops import broadcast_leaves, named_leaves
from byteps.worker import current

__all__ = ["broadcast_parameters"]


def broadcast_parameters(tree: Any, root_rank: int, prefix: str = "Parameter.") -> Any:
    """The root's arrays, exactly, as a new tree; for parameters, states of optimizers and mixes of them.

        params = bps.broadcast_parameters(params, root_rank=0)
        state = bps.broadcast_parameters(optimizer.init(params), root_rank=0, prefix="State.")

    Arrays of every dtype and numbers of Python; all travel together. Ranks whose trees differ get a
    DeclarationError that says where.
    """
    current.required("broadcast_parameters")
    named = named_leaves(tree, prefix)
    results = broadcast_leaves(
        [leaf for _, leaf in named], [name for name, _ in named], root_rank, "parameters"
    )
    return jax.tree.unflatten(jax.tree.structure(tree), results)
