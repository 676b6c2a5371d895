"""Which codec makes a tensor's step shortest: a pure decision over measured signals.

A step waits for a tensor as long as its slowest stage (compress, wire, decode; partitions run through them
one behind the other) goes on after the tensor is needed, and codecs take processor time from the training:

    cost = max(0, max(encode, wire, decode) - slack) + load * (encode + decode)

That is a prediction. It only says what is worth a try: what is used is what whole steps have shown to be
shorter. A try takes ``TRIAL_STEPS`` steps; the first may begin at once, and all tries together take at most
``EXPLORE`` of the steps so far. A switch needs a gain of ``GAIN``; what was tried in vain is not tried again
until the link has changed by a quarter.

Nothing acts on it yet. Whoever carries out a switch adds what the old codec kept (its error) to the next
gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

__all__ = ["OFF", "Choice", "Figures", "Limits", "Signals", "cost_s", "decide"]

OFF = "off"
TRIAL_STEPS = 5
EXPLORE = 0.02
GAIN = 0.02  # of the step
CHANGED = 1.25  # a link that is so many times as fast, or as slow, is another one


class Figures(NamedTuple):
    """What is known of a codec for one tensor; rates are of uncompressed bytes, under the load there is."""

    wire_share: float  # bytes on the wire / bytes of the tensor
    encode_bytes_per_s: float = float("inf")
    decode_bytes_per_s: float = float("inf")
    error: float | None = 0.0  # of what is sent, as a share of its norm; None: nobody has measured it yet


class Signals(NamedTuple):
    """What was measured, at one time."""

    step: int
    nbytes: int
    link_bytes_per_s: float
    slack_s: float  # from when the tensor is ready until it is needed
    load: float  # how much of the codecs' processor time the training goes without: 0 to 1
    figures: Mapping[str, Figures]  # by codec; OFF is among them
    step_s: Mapping[str, float] = {}  # median of whole steps with each codec that was used at this link


@dataclass(frozen=True)
class Limits:
    """What the user allows."""

    allow: frozenset[str] | None = None  # None: all that there are; OFF is always allowed
    max_error: float = float("inf")


@dataclass(frozen=True)
class Choice:
    """What holds for a tensor; ``trying`` until the step ``until``, then ``codec`` again or for good."""

    codec: str = OFF
    trying: str | None = None
    until: int = 0
    explored: int = 0  # steps spent on tries
    in_vain: Mapping[str, float] = field(default_factory=dict)  # the link that a codec was tried at

    @property
    def in_use(self) -> str:
        return self.trying or self.codec


def cost_s(signals: Signals, codec: str) -> float:
    """What a tensor is predicted to add to a step.

    >>> figures = {OFF: Figures(1.0), "int8": Figures(0.25, 20e9, 30e9)}
    >>> slow = Signals(0, 100_000_000, 125e6, 0.1, 0.5, figures)
    >>> round(cost_s(slow, OFF), 3), round(cost_s(slow, "int8"), 3)
    (0.7, 0.104)
    """
    known = signals.figures[codec]
    encode = signals.nbytes / known.encode_bytes_per_s
    decode = signals.nbytes / known.decode_bytes_per_s
    wire = signals.nbytes * known.wire_share / signals.link_bytes_per_s
    return max(0.0, max(encode, wire, decode) - signals.slack_s) + signals.load * (encode + decode)


def decide(choice: Choice, signals: Signals, limits: Limits) -> tuple[Choice, str]:
    """What holds from the next round on, and why. Called once after every step."""
    refused = _refusal(choice.in_use, signals, limits)
    if refused:
        kept = OFF if choice.codec == choice.in_use else choice.codec
        tried = {**choice.in_vain, choice.in_use: signals.link_bytes_per_s}
        return replace(choice, codec=kept, trying=None, in_vain=tried), refused
    if choice.trying is not None:
        if signals.step < choice.until:
            return choice, f"trying {choice.trying} until step {choice.until}"
        return _judged(choice, choice.trying, signals)
    return _next_try(choice, signals, limits)


def _refusal(codec: str, signals: Signals, limits: Limits) -> str:
    if codec == OFF:
        return ""
    if limits.allow is not None and codec not in limits.allow:
        return f"{codec} is not allowed"
    error = signals.figures[codec].error
    if error is not None and not error <= limits.max_error:  # NaN is no small error
        return f"{codec} has an error of {error:.3g}, at most {limits.max_error:.3g} is allowed"
    return ""


def _judged(choice: Choice, tried: str, signals: Signals) -> tuple[Choice, str]:
    before, now = signals.step_s.get(choice.codec), signals.step_s.get(tried)
    if before is not None and now is not None and now < before * (1 - GAIN):
        why = f"{tried} instead of {choice.codec}: a step takes {now:.4g} s instead of {before:.4g} s"
        return replace(choice, codec=tried, trying=None), why
    vain = {**choice.in_vain, tried: signals.link_bytes_per_s}
    times = "no step was measured" if now is None or before is None else f"{now:.4g} s beside {before:.4g} s"
    return replace(
        choice, trying=None, in_vain=vain
    ), f"{choice.codec} stays, {tried} gained too little: {times}"


def _next_try(choice: Choice, signals: Signals, limits: Limits) -> tuple[Choice, str]:
    now = signals.step_s.get(choice.codec)
    if now is None or signals.step < TRIAL_STEPS:
        return choice, f"{choice.codec}: too few steps were measured yet"
    here = cost_s(signals, choice.codec)
    costs = {
        codec: cost_s(signals, codec)
        for codec in signals.figures
        if codec != choice.codec
        and not _refusal(codec, signals, limits)
        and not _is_vain(choice, codec, signals)
    }
    best = min(costs, key=lambda codec: (costs[codec], codec), default=None)
    if best is None or here - costs[best] < GAIN * now:
        return choice, f"{choice.codec}: nothing else is predicted to gain {GAIN:.0%} of a step"
    if choice.explored + TRIAL_STEPS > max(TRIAL_STEPS, EXPLORE * signals.step):
        return choice, f"{choice.codec}: {best} is worth a try when {EXPLORE:.0%} of the steps allow it"
    trial = replace(
        choice, trying=best, until=signals.step + TRIAL_STEPS, explored=choice.explored + TRIAL_STEPS
    )
    return trial, f"trying {best}: predicted to wait {costs[best]:.4g} s instead of {here:.4g} s"


def _is_vain(choice: Choice, codec: str, signals: Signals) -> bool:
    link = choice.in_vain.get(codec)
    return link is not None and 1 / CHANGED < signals.link_bytes_per_s / link < CHANGED
