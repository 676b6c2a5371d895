"""What facts mean: every judgement of ``bps doctor`` on made-up facts, without asking the system anything."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from byteps.config import load
from byteps.control.messages import Presence, Register, Status
from byteps.control.said import unpack
from byteps.errors import ProtocolError
from byteps.scheduler import observers
from byteps.scheduler.events import State
from byteps.scheduler.roster import Expected, Seat
from byteps.tools.doctor import job, machine, member, paths, route
from byteps.tools.doctor.facts import Limit, Machine
from byteps.tools.doctor.findings import (
    Finding,
    Mark,
    as_json,
    fail,
    merged,
    ok,
    table,
    verdict,
    warn,
)
from byteps.tools.doctor.paths import ConnectionHealth, Path
from byteps.version import __version__

GOOD = Machine(
    host="a",
    own_address="10.0.0.1",
    cpus=8,
    cpu_time=None,
    open_files=Limit(65536, 65536),
    locked_bytes=Limit(None, None),
    shm_bytes=8 << 30,
    shm_free_bytes=8 << 30,
    reads_memory=True,
    ptrace_scope="0",
    socket_folder_error="",
    own_port_error="",
    clock_synchronised=True,
)


def bad(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings if finding.mark is not Mark.OK}


# ---- one machine


def test_a_good_machine_has_nothing_to_complain_about() -> None:
    found = machine.judge(GOOD, load({}))
    assert bad(found) == {} and len(found) == 9


@pytest.mark.parametrize(
    ("changes", "environ", "check", "mark", "remedy"),
    [
        ({"own_address": None}, {}, "own name", Mark.WARN, "/etc/hosts"),
        ({"clock_synchronised": False}, {}, "clock", Mark.WARN, "chrony"),
        ({"cpus": 2}, {"BYTEPS_LOCAL_SIZE": "4"}, "cores", Mark.WARN, "fewer ranks"),
        ({"cpu_time": 0.5}, {}, "cores", Mark.WARN, "two processors"),
        (
            {"open_files": Limit(1024, 1024)},
            {"DMLC_NUM_WORKER": "2"},
            "open files",
            Mark.WARN,
            "ulimit -n 4096",
        ),
        (
            {"open_files": Limit(256, 256)},
            {"DMLC_ROLE": "server", "DMLC_NUM_WORKER": "500"},
            *("open files", Mark.FAIL, "only 256 allowed"),
        ),
        (
            {"locked_bytes": Limit(65536, 65536)},
            {"DMLC_ENABLE_RDMA": "1"},
            "locked memory",
            Mark.FAIL,
            "ulimit -l",
        ),
        ({"own_port_error": "in use"}, {}, "own port", Mark.FAIL, "DMLC_PORT"),
        ({"shm_bytes": 64 << 20, "shm_free_bytes": 64 << 20}, {}, "/dev/shm", Mark.WARN, "--shm-size"),
        ({"shm_bytes": None, "shm_free_bytes": None}, {}, "/dev/shm", Mark.WARN, "tmpfs"),
        ({"reads_memory": False, "ptrace_scope": "1"}, {}, "memory of ranks", Mark.WARN, "ptrace_scope=0"),
        ({"socket_folder_error": "no"}, {}, "sockets folder", Mark.FAIL, "BYTEPS_SOCKET_PATH"),
    ],
)
def test_what_is_wrong_has_a_remedy(
    changes: dict[str, object], environ: dict[str, str], check: str, mark: Mark, remedy: str
) -> None:
    found = bad(machine.judge(replace(GOOD, **changes), load(environ)))
    assert found.keys() == {check}
    assert found[check].mark is mark and remedy in found[check].remedy


def test_without_shared_memory_its_obstacles_do_not_matter() -> None:
    worse = replace(GOOD, reads_memory=False, socket_folder_error="no")
    assert bad(machine.judge(worse, load({"BYTEPS_ENABLE_IPC": "0"}))) == {}


def test_settings() -> None:
    assert [each.mark for each in machine.judge_settings(["e"], ["w"])] == [Mark.FAIL, Mark.WARN]
    assert [each.mark for each in machine.judge_settings([], [])] == [Mark.OK]


# ---- the way to the scheduler

WAY = route.Way(
    "s", 9000, "10.0.0.9", own_address="10.0.0.1", interface=route.Interface("eth0", 25_000, 9000)
)


def test_a_good_way() -> None:
    named, routed = route.judge(WAY)
    assert named.text == "s is 10.0.0.9"
    assert routed.text == "from 10.0.0.1 by eth0, MTU 9000, 25 Gbit/s"


@pytest.mark.parametrize(
    ("changes", "check", "mark"),
    [
        ({"resolve_error": "Name or service not known"}, "name of scheduler", Mark.FAIL),
        ({"resolve_s": 5.0}, "name of scheduler", Mark.WARN),
        ({"interface_error": "DMLC_INTERFACE='eth9' has no address"}, "route", Mark.FAIL),
        ({"interface": route.Interface("eth0", 100, 1500)}, "route", Mark.WARN),
    ],
)
def test_a_bad_way(changes: dict[str, object], check: str, mark: Mark) -> None:
    found = bad(route.judge(replace(WAY, **changes)))
    assert found[check].mark is mark and len(found) == 1


# ---- a running job


def presence(role: str = "worker", rank: int = 0, version: str = __version__, ahead: float = 0.0) -> Presence:
    return Presence(role, rank, "a", "10.0.0.1", 0, 1, version, ahead)


def answered(*members: Presence, phase: str = "running", ahead: float = 0.0) -> job.Answer:
    status = Status(0, "s", __version__, 0.0, phase, "1 of 2 workers; missing worker 1", list(members))
    return job.Answer(status, 0.001, ahead)


def test_a_good_job() -> None:
    found = job.judge(answered(presence(), presence("server")), "s:9000")
    checks = [each.check for each in found]
    assert bad(found) == {} and checks == ["scheduler", "job", "versions", "encryption", "clocks"]


def test_who_is_missing_who_is_old_and_whose_clock_is_wrong() -> None:
    answer = answered(presence(), presence(rank=1, version="0.0.9", ahead=-3.0), phase="forming", ahead=9.0)
    found = bad(job.judge(answer, "s:9000"))
    assert "missing worker 1" in found["job"].text and "worker 0 (a)" in found["job"].text
    assert (
        found["versions"].text
        == f"byteps differs: 0.0.9: worker 1 (a); {__version__}: scheduler, here, worker 0 (a)"
    )
    assert "here +9.0 s, worker 1 (a) -3.0 s" in found["clocks"].text


@pytest.mark.parametrize(
    ("answer", "text", "remedy"),
    [
        (
            job.Answer(error="refused", reached=False, nobody=True),
            "nobody listens at s:9000",
            "DMLC_PS_ROOT_PORT",
        ),
        (job.Answer(error="no answer", reached=False), "no way to s:9000: no answer", "firewall"),
        (job.Answer(refusal="the job secrets differ"), "the job secrets differ", "BYTEPS_JOB_SECRET"),
        (job.Answer(error="not a frame"), "does not answer as a scheduler", "another program"),
    ],
)
def test_no_job(answer: job.Answer, text: str, remedy: str) -> None:
    (found,) = job.judge(answer, "s:9000")
    assert found.mark is Mark.FAIL and text in found.text and remedy in found.remedy


def test_what_the_scheduler_tells() -> None:
    register = Register("worker", 0, 0, 1, None, 2, 1, "h", "10.0.0.1", 0, 0, 7, {}, clock_s=105.0)
    state = State(Expected(2, 1, "the scheduler"), 10.0, None, seats={4: Seat(4, 1, register)})
    assert observers.Arrival("9", 5.0).clock_ahead_s == register.clock_s - 100.0
    status = observers.status(3, state, "waits", {4: observers.Arrival("9", 5.0)})
    assert (status.id, status.phase, status.text, status.version) == (3, "forming", "waits", __version__)
    assert status.members == [Presence("worker", -1, "h", "10.0.0.1", 0, 7, "9", 5.0)]


# ---- who is slow


def name(role: str, rank: int) -> str:
    return f"{role} {rank}"


def measured(workers: int, servers: int, **slow: int) -> list[Path]:
    """Every path; 10 times slower where the named member takes part."""
    found = []
    for source in range(workers):
        for server in range(servers):
            for target in range(workers):
                if source != target:
                    hit = slow.get("source") == source or slow.get("server") == server
                    hit = hit or slow.get("target") == target
                    found.append(Path(source, server, target, 0.1 if hit else 0.01, 10_000_000))
    return found


def test_nobody_is_slow() -> None:
    (found,) = paths.judge(measured(4, 2), name)
    assert found.text == "1.00 GB/s between members (slowest 1.00 GB/s), nobody stands out"
    assert paths.judge([], name) == []


@pytest.mark.parametrize(
    ("slow", "text"),
    [
        ({"source": 2}, "worker 2 sends at 100.0 MB/s, the others at 1.00 GB/s"),
        ({"target": 1}, "worker 1 receives at 100.0 MB/s, the others at 1.00 GB/s"),
        ({"server": 0}, "server 0 serves at 100.0 MB/s, the others at 1.00 GB/s"),
    ],
)
def test_the_slow_one_is_named(slow: dict[str, int], text: str) -> None:
    found = bad(paths.judge(measured(4, 3, **slow), name))
    assert [each.text for each in found.values()] == [text]


def test_of_two_nobody_can_be_blamed() -> None:
    assert bad(paths.judge(measured(2, 1, source=0), name)) == {}


def test_lost_packets() -> None:
    fine = [ConnectionHealth(0, 0, 0.0001, 5000, 1), ConnectionHealth(1, 0, 0.0005, 5000, 0)]
    trip, loss = paths.judge_connections(fine, name)
    assert "longest 0.500 ms, worker 1 to server 0" in trip.text and loss.mark is Mark.OK
    found = bad(paths.judge_connections([*fine, ConnectionHealth(2, 0, 0.0001, 5000, 50)], name))
    assert "50 of 5000 segments had to be sent again, worker 2 to server 0" in found["packet loss"].text
    assert paths.judge_connections([], name) == []


def test_packages() -> None:
    assert paths.judge_packages([("a", "numpy 2"), ("b", "numpy 2")]).mark is Mark.OK
    found = paths.judge_packages([("a", "numpy 2"), ("b", "numpy 1"), ("a", "numpy 2")])
    assert found.text == "not the same everywhere: numpy 2 [a]; numpy 1 [b]"


# ---- the report


def test_the_report() -> None:
    findings = [ok("a", "fine"), warn("bb", "so-so", "do x"), fail("c", "broken", "do y")]
    text = table(findings)
    assert text.splitlines() == [
        "ok    a   fine",
        "warn  bb  so-so",
        "          remedy: do x",
        "FAIL  c   broken",
        "          remedy: do y",
        "1 ok, 1 warning, 1 failure: a job would fail",
    ]
    assert verdict(findings) == 1 and verdict(findings[:2]) == 0
    assert [row["mark"] for row in as_json(findings)] == ["ok", "warn", "fail"]
    assert "\x1b[31mFAIL" in table(findings, colour=True)


def test_a_report_of_another_member_is_typed_and_shown_without_escape_codes() -> None:
    connection, path = ConnectionHealth(0, 0, 0.1, 10, 1), Path(0, 0, 1, 0.5, 4096)
    report = member.Report([warn("a", "\x1b[2Jfine\nok  b", "x\x9b")], [path], [connection], "h", "numpy 2")
    read = unpack(member._decoder, msgspec.msgpack.encode(report), "a report")
    assert read == report
    assert table(read.findings).splitlines()[:2] == [r"warn  a  \x1b[2Jfine ok  b", r"         remedy: x\x9b"]
    with pytest.raises(ProtocolError, match="the report of worker 1 of 3 bytes does not decode"):
        unpack(member._decoder, b"\x81\xa1x", "the report of worker 1")


def test_a_complaint_without_a_remedy_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a remedy"):
        Finding("x", Mark.WARN, "bad")


def test_the_same_words_of_several_machines_are_said_once() -> None:
    rows = [replace(ok("a", "fine"), where=host) for host in ("x", "y", "x")]
    rows.insert(1, replace(ok("b", "other"), where="x"))
    assert [(each.check, each.where) for each in merged(rows)] == [("a", "x, y"), ("b", "x")]
