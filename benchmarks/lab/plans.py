"""What ``theory.py`` measures: which job, on links of which speed and make, with which gradients. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from common import ETHERNET

from byteps.tools.arguments import size
from byteps.tools.bench import gradient_sets
from byteps.tools.lab import Wire

__all__ = ["USUAL_LOAD", "Case", "Load", "Plan", "case", "chosen", "kind", "load", "usual"]

BUCKET_BYTES = 25 << 20  # torch's DistributedDataParallel gives Gloo as much at once
ROUNDS_BYTES = 32 << 20  # a sample of small gradients has as many rounds as make this much
MOST_ROUNDS = 10


@dataclass(frozen=True)
class Case:
    """n worker machines and k machines with a server only."""

    workers: int
    extra: int

    def __str__(self) -> str:
        return f"{self.workers}+{self.extra}"


@dataclass(frozen=True)
class Load:
    """One tensor of so many bytes, or all gradients of a network (then ``name`` is one of gradient_sets)."""

    name: str
    nbytes: int

    def tensors(self, peer: str) -> gradient_sets.Tensors | None:
        """By name, in the order of a backward pass; for Gloo as DistributedDataParallel joins them."""
        if self.name not in gradient_sets.SETS:
            return None
        if peer == "gloo":
            return gradient_sets.buckets(self.nbytes, BUCKET_BYTES)
        return gradient_sets.backward(gradient_sets.SETS[self.name]())

    @property
    def inner(self) -> int:
        """Rounds of a sample."""
        return max(1, min(MOST_ROUNDS, ROUNDS_BYTES // self.nbytes))


@dataclass(frozen=True)
class Plan:
    """One lab, and the gradients that are summed in it."""

    case: Case
    rate_mbit: float
    wire: Wire
    loads: tuple[Load, ...]


def case(text: str) -> Case:
    """
    >>> case("4+2")
    Case(workers=4, extra=2)
    """
    workers, _, extra = text.partition("+")
    if not (workers.isdecimal() and extra.isdecimal() and int(workers) >= 2):
        raise argparse.ArgumentTypeError(f"{text!r}: expected WORKERS+SERVERS such as 4+2, 2 workers or more")
    return Case(int(workers), int(extra))


def load(text: str) -> Load:
    """
    >>> load("16M"), load("resnet50")
    (Load(name='16M', nbytes=16777216), Load(name='resnet50', nbytes=102228128))
    """
    if text in gradient_sets.SETS:
        return Load(text, gradient_sets.nbytes(gradient_sets.SETS[text]()))
    try:
        return Load(text, size(text))
    except ValueError:
        expected = f"expected bytes such as 16M, or one of {', '.join(gradient_sets.SETS)}"
        raise argparse.ArgumentTypeError(f"{text!r}: {expected}") from None


USUAL_CASE, USUAL_LOAD = Case(4, 4), load("16M")


def usual_rate(one: Case) -> float:
    """Mbit/s that two cores can drive: 16 machines take twice the work of eight."""
    return 200.0 if one.workers < 8 else 100.0


def kind(plan: Plan, one: Load) -> str:
    """What is unlike the rest, and so which table it belongs to: the job, the gradients or the links."""
    if plan.wire != ETHERNET:
        return "wires"
    return "cases" if one == USUAL_LOAD and plan.rate_mbit == usual_rate(plan.case) else "loads"


def usual() -> list[Plan]:
    """What is measured if nothing is said: every case, the rest for some, in about twelve minutes."""
    more = {  # what takes minutes at 200 Mbit/s is measured where links are faster
        Case(4, 4): ("1M", "64M", "resnet50"),
    }
    found = []
    for workers in (2, 4, 8):
        for extra in (0, workers // 2, workers):
            one = Case(workers, extra)
            found.append(Plan(one, usual_rate(one), ETHERNET, (USUAL_LOAD, *map(load, more.get(one, ())))))
    fast = tuple(map(load, ("16M", "64M", "resnet50", "bert-base")))
    found.append(Plan(Case(2, 2), 1000.0, ETHERNET, fast))
    wires = [Wire(mtu, queue_ms) for mtu in (1500, 9000) for queue_ms in (10, 40, 100)]
    wires.append(Wire(ETHERNET.mtu, ETHERNET.queue_ms, one_name="clone"))
    found += [Plan(USUAL_CASE, 200.0, wire, (USUAL_LOAD,)) for wire in wires if wire != ETHERNET]
    found.append(Plan(Case(4, 2), 200.0, Wire(9000, 40), (USUAL_LOAD,)))
    return found


def chosen(
    cases: Sequence[Case] | None,
    rates: Sequence[float] | None,
    loads: Sequence[Load] | None,
    wires: Sequence[Wire] | None,
) -> list[Plan]:
    """Everything that was asked for, in all combinations; one value where nothing was said."""
    return [
        Plan(one, rate, wire, tuple(loads or [USUAL_LOAD]))
        for one in cases or [USUAL_CASE]
        for rate in rates or [usual_rate(one)]
        for wire in wires or [ETHERNET]
    ]
