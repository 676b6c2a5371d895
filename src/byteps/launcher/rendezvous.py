"""What ``init_method="env://"`` of torch.distributed reads, for the workers that the launcher starts. Pure.

With it ``torch.distributed.init_process_group("byteps")``, and any program that was written for ``torchrun``,
finds its place under ``bpslaunch``.
"""

from __future__ import annotations

from byteps.launcher.spec import Facts

__all__ = ["NAMES", "address", "place"]

# Of another launcher that we may run inside of: a worker of a new job never inherits them. The last one would
# tell rank 0 that the store it should start is there already.
NAMES = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
        "TORCHELASTIC_USE_AGENT_STORE",
    )
)


def place(sizes: list[int], machine: int, local_rank: int) -> dict[str, str]:
    """Where a rank stands, in machines of these numbers of ranks.

    >>> place([2, 3], machine=1, local_rank=2)["RANK"]
    '4'
    """
    return {
        "RANK": str(sum(sizes[:machine]) + local_rank),
        "WORLD_SIZE": str(sum(sizes)),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(sizes[machine]),
        "GROUP_RANK": str(machine),
    }


def address(host: str, facts: Facts) -> dict[str, str]:
    """Where rank 0 starts the store of torch.distributed, if it uses that: a port kept free for it."""
    return {"MASTER_ADDR": host, "MASTER_PORT": facts.master_port}
