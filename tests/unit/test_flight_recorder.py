"""How often a process writes its last seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from byteps import config
from byteps.observe import flight
from byteps.observe.flight import MOST_FILES, FlightRecorder, folder_of
from byteps.observe.recorder import Self


def recorder(folder: Path, **env: str) -> FlightRecorder:
    who = Self("worker", 3, 0, 0, dict, lambda: (0, 0))
    settings = config.load({"BYTEPS_FLIGHT_DIR": str(folder), "BYTEPS_FLIGHT_S": "30", **env})
    return FlightRecorder(settings, lambda: who)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(flight.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        flight, "write_last_seconds", lambda folder, header, s: folder / f"{header.reason} at {now[0]:g}"
    )
    return now


def test_what_many_see_is_written_once(tmp_path: Path, clock: list[float]) -> None:
    one = recorder(tmp_path)
    first = one.write("a stall")
    assert first == str(tmp_path / "a stall at 1000")
    clock[0] += 5
    assert one.write("the same stall") == first
    clock[0] += 6
    assert one.write("another stall") == str(tmp_path / "another stall at 1011")


def test_who_asks_gets_it_at_once(tmp_path: Path, clock: list[float]) -> None:
    one = recorder(tmp_path)
    one.write("a stall")
    clock[0] += 1
    assert one.write("bps dump", asked=True) == str(tmp_path / "bps dump at 1001")


def test_what_follows_a_loss_is_not_written(tmp_path: Path, clock: list[float]) -> None:
    one = recorder(tmp_path)
    lost = one.write("a loss", final=True)
    clock[0] += 1_000
    assert one.write("an operation failed") == lost


def test_a_process_writes_so_many_and_no_more(tmp_path: Path, clock: list[float]) -> None:
    one = recorder(tmp_path)
    paths = []
    for _ in range(MOST_FILES + 5):
        clock[0] += 60
        paths.append(one.write("again", asked=True))
    assert len(set(paths)) == MOST_FILES


def test_it_can_be_switched_off(tmp_path: Path, clock: list[float]) -> None:
    assert recorder(tmp_path, BYTEPS_FLIGHT_S="0").write("a stall", asked=True) == ""


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert recorder(tmp_path / "file").write("a stall") == ""


def test_the_usual_folder_is_of_this_user() -> None:
    assert folder_of(config.load({})).name.startswith("byteps-flight-")
