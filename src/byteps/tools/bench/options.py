"""The options of the push-pull benchmark, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from byteps.tools.bench.bound import Shape

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """What was asked for; ``bps bench push-pull --help`` explains each."""

    sizes: tuple[int, ...]
    workers: tuple[int, ...]
    servers: tuple[int, ...]
    peers: tuple[str, ...]
    repeats: int
    tensors: int
    rounds: int
    large_set: int
    bound_shape: Shape | None
    output: Path

    def settings(self) -> dict[str, Any]:
        """For the result file."""
        return {**asdict(self), "output": str(self.output)}
