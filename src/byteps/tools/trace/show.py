"""A summary of recordings as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from byteps.observe.summary import STAGES, Summary, TensorTimes

__all__ = ["lines"]

_NAME = 36  # columns


def lines(found: Summary, top: int) -> Iterator[str]:
    """Everything worth a line."""
    yield f"members: {', '.join(found.members)}"
    if found.lost_events:
        yield f"{found.lost_events} events were overwritten before they were read: the trace has gaps"
    if found.clock_error_ns:
        yield f"clocks of different machines may be {found.clock_error_ns / 1e3:.0f} us apart"
    if found.steps:
        yield (
            f"steps: {found.steps}, median {found.step_ms:.2f} ms; communication in flight for "
            f"{found.communicating_ms:.2f} ms of each, waited for during {found.exposed_ms:.2f} ms: "
            f"{found.hidden:.0%} hidden behind computing"
        )
    else:
        yield "no step has ended inside the trace"
    rounds = sum(found.last.values())
    for rank, count in sorted(found.last.items(), key=lambda each: -each[1]):
        yield (
            f"last to arrive: rank {rank} in {count} of {rounds} rounds, "
            f"{found.late_ms.get(rank, 0.0):.2f} ms after the one before"
        )
    if found.tensors:
        yield ""
        yield (
            f"{'tensor, mean ms of a round':<{_NAME}} {'MB':>8} {'total':>8} "
            + " ".join(f"{stage:>8}" for stage in STAGES)
            + "  last"
        )
        yield from (_row(each) for each in found.tensors[:top])
        if len(found.tensors) > top:
            yield f"... and {len(found.tensors) - top} more; --top N shows them"


def _row(tensor: TensorTimes) -> str:
    name = tensor.name if len(tensor.name) <= _NAME else "..." + tensor.name[3 - _NAME :]
    times = " ".join(f"{tensor.stage_ms[s]:8.2f}" if s in tensor.stage_ms else f"{'-':>8}" for s in STAGES)
    usual = max(tensor.last, key=lambda rank: tensor.last[rank], default=None)
    last = "" if usual is None else f"rank {usual} ({tensor.last[usual] / sum(tensor.last.values()):.0%})"
    return f"{name:<{_NAME}} {tensor.bytes / 1e6:8.2f} {tensor.total_ms:8.2f} {times}  {last}".rstrip()
