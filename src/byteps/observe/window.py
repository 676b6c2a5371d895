"""Which events of recordings are of interest: those of the steps that were asked for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from byteps.observe.recording import Header, Recording
from byteps.observe.ring import Event

__all__ = ["chosen"]

Member = tuple[Header, list[Event]]

_ORDER = {"scheduler": 0, "worker": 1, "server": 2}


def chosen(recordings: Sequence[Recording]) -> list[Member]:
    """Every member with its events in order of time; workers first.

    Rings hold what was before the first step of interest, too. Servers do not know of steps: of theirs
    everything counts that happened while the workers were in one.
    """
    ordered = sorted(recordings, key=lambda r: (_ORDER.get(r.header.role, 3), r.header.rank))
    members = [(each.header, _in_steps(each)) for each in ordered]
    traced = [events for header, events in members if header.first_step and events]
    if not traced:
        return members
    begin = min(events[0].at_ns for events in traced)
    end = max(events[-1].at_ns for events in traced)
    return [(header, [e for e in events if begin <= e.at_ns <= end]) for header, events in members]


def _in_steps(recording: Recording) -> list[Event]:
    header, events = recording.header, recording.events()
    if not header.first_step:
        return events
    marks = {event.round: event.at_ns for event in events if event.stage == "step"}
    begin = marks.get(header.first_step - 1, 0)
    end = marks.get(header.last_step, 1 << 62)
    return [event for event in events if begin <= event.at_ns <= end]
