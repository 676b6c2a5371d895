"""The rings of the core as Python sees them, and files of recordings."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from byteps import _core
from byteps.observe.recorder import _after
from byteps.observe.recording import Header, read, write
from byteps.observe.ring import EVENT_BYTES, Event, Rings, Thread, unpacked
from byteps.testing.events import packed

HEADER = Header("worker", 3, "host b", 42, "a test", tensors={7: "Gradient.w"})


def test_a_step_is_in_the_ring_of_its_thread_once() -> None:
    rings = Rings()
    rings.read()

    def run() -> None:
        _core.record_step(123_456)

    thread = threading.Thread(target=run, name="a thread")
    thread.start()
    thread.join()
    found = [event for each in rings.read() for event in unpacked(each.packed)]
    assert [(event.stage, event.round) for event in found] == [("step", 123_456)]
    assert not any(each.packed for each in rings.read())


def test_an_event_is_unpacked_as_it_was_packed() -> None:
    one = packed("sent", 10**15, tensor=0xDEADBEEF, piece=5, peer=2, round=9, bytes=4096, took_ns=3, note=1)
    assert len(one) == EVENT_BYTES
    assert list(unpacked(one)) == [Event("sent", 1, 2, 9, 5, 0xDEADBEEF, 10**15, 4096, 3)]


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    threads = [
        Thread("bps-io-0", 2, packed("sent", 5) + packed("landed", 9)),
        Thread("main", 0, packed("ready", 1)),
    ]
    path = tmp_path / "deeper" / "worker-3.bpstrace"
    write(path, HEADER, threads)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    found = read(path)
    assert str(found.header) == "worker 3 (host b)"
    assert found.header.threads == [("bps-io-0", 2, 2), ("main", 0, 1)]
    assert [event.stage for event in found.events()] == ["ready", "sent", "landed"]


def test_times_of_a_recording_are_those_of_the_schedulers_machine(tmp_path: Path) -> None:
    path = tmp_path / "one.bpstrace"
    write(path, replace(HEADER, clock_ns=-100), [Thread("t", 0, packed("sent", 500))])
    assert [event.at_ns for event in read(path).events()] == [400]


@pytest.mark.parametrize("kept", [0, 5, 11, 40, -1, -33])
def test_a_damaged_recording_is_refused_in_words(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "one.bpstrace"
    write(path, HEADER, [Thread("t", 0, packed("sent", 1) + packed("sent", 2))])
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"one\.bpstrace"):
        read(path)


def test_the_last_seconds_begin_with_the_first_event_that_is_young_enough() -> None:
    thread = Thread("t", 0, b"".join(packed("sent", at) for at in range(0, 100, 10)))
    times = [event.at_ns for event in unpacked(_after(thread, 35).packed)]
    assert times == [40, 50, 60, 70, 80, 90]
    assert _after(thread, 1_000).packed == b""
    assert _after(thread, -5) == thread
