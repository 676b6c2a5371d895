"""Reserves a placement group of a Ray cluster for all that a job needs, or says in an error what lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from byteps.errors import ConfigError, JoinError

__all__ = ["connect", "on_bundle", "reserve"]


def connect(address: str | None = None, **options: Any) -> None:
    """Connect to a cluster, unless this process is connected."""
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed; run: pip install 'byteps-train[ray]'") from None
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        raise ConfigError(
            f"no Ray cluster at {address or 'RAY_ADDRESS'}: {error}; start one with `ray start --head`, "
            "or give its address"
        ) from None


def reserve(bundles: Sequence[Mapping[str, float]], strategy: str, timeout_s: float) -> Any:
    """A placement group with all of these; JoinError when the cluster does not have them in time."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    if strategy not in ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"):
        raise ConfigError(f"strategy {strategy!r}: expected PACK, SPREAD, STRICT_PACK or STRICT_SPREAD")
    group = placement_group([dict(bundle) for bundle in bundles], strategy=strategy)
    if not group.wait(timeout_s):
        remove_placement_group(group)
        wanted: dict[str, float] = {}
        for bundle in bundles:
            for name, amount in bundle.items():
                wanted[name] = wanted.get(name, 0) + amount
        have = {name: ray.available_resources().get(name, 0) for name in wanted}
        raise JoinError(
            f"the Ray cluster did not give {len(bundles)} bundles with {wanted} ({strategy}) within "
            f"{timeout_s:g} s; free now: {have}; ask for less, add nodes, or wait longer with start_timeout_s"
        )
    return group


def on_bundle(group: Any, index: int) -> Any:
    """The strategy that puts an actor on a bundle of the group."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
