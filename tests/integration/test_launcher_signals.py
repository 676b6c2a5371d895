"""Every way in which a job can be ended, with real signals; the fixture of all tests looks for leftovers."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from launch_job import BPSLAUNCH, LIMIT_S, Job, bpslaunch, child_of, ended, environment, run, supervise

READY = "echo ready $$"
WAIT = "while :; do sleep 1000; done"
# Counts signals and ends at the first; a second one in the same moment would be seen.
COUNTS = """
import signal, sys
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda n, _: got.append(n))
print("ready", flush=True)
while not got:
    signal.pause()
signal.sigtimedwait([], 0.05)
print("got", [signal.Signals(n).name for n in got], flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("code", [0, 9])
def test_a_signal_reaches_each_worker_once(number: signal.Signals, code: int) -> None:
    worker = [sys.executable, "-c", COUNTS, str(code)]
    with supervise([("server 0", WAIT), ("worker 0", worker), ("worker 1", worker)]) as job:
        job.expect(r"(?s)ready.*ready")
        job.send(number)
        assert job.end() == (128 + number if code else 0)  # workers that end well are believed
    assert job.lines("worker 0") == job.lines("worker 1") == ["ready", f"got ['{number.name}']"]
    assert f"ended by {number.name} after " in job.said


def test_ctrl_c_of_a_python_program_is_130() -> None:
    code = "print('ready', flush=True); import signal; signal.pause()"
    with bpslaunch(sys.executable, "-c", code) as job:
        job.expect("ready")
        job.send(signal.SIGINT)
        assert job.end() == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_ignores_signals_is_killed(number: signal.Signals) -> None:
    deaf = f"trap '' INT TERM; {READY}; {WAIT}"
    with supervise([("server 0", deaf), ("worker 0", deaf)], {"stop_s": 0.2}) as job:
        pids = [int(job.expect(rf"\[{label}\] ready (\d+)").group(1)) for label in ("server 0", "worker 0")]
        job.send(number)
        assert job.end() == 128 + number
    assert all(ended(pid) for pid in pids)
    assert "killing server 0, worker 0" in job.said


def test_a_second_signal_kills_at_once() -> None:
    deaf = f"trap 'echo heard' INT; {READY}; while :; do sleep 0.05; done"
    with supervise([("worker 0", deaf), ("worker 1", deaf)], {"stop_s": 1000, "repeat_s": 0}) as job:
        job.expect(r"(?s)ready.*ready")
        job.send(signal.SIGINT)
        job.expect(r"(?s)heard.*heard")
        time.sleep(
            0.6
        )  # signals within half a second count as one: this is what is tested, not a wait for it
        job.send(signal.SIGINT)
        assert job.end() == 130
    assert "SIGINT again; killing worker 0, worker 1" in job.said


def test_nohup_is_respected() -> None:
    with supervise(
        [("worker 0", f"{READY}; read x; echo read $x"), ("worker 1", "true")], ignore=signal.SIGHUP
    ) as job:
        job.expect("ready")
        job.send(signal.SIGHUP)
        assert job.end("on\n") == 0
    assert job.lines("worker 0")[-1] == "read on"


FAMILY = (
    f"sleep 1001 & echo child $! ; setsid sleep 1002 & echo session $!; "
    f"(setsid sh -c 'echo daemon $$; exec sleep 1003' &) ; {READY}; {WAIT}"
)


def family(job: Job) -> list[int]:
    """Everybody that a process with the script above started, and itself."""
    return [int(job.expect(rf"{word} (\d+)").group(1)) for word in ("child", "session", "daemon", "ready")]


@pytest.mark.parametrize("victim", ["front", "supervisor", "both"])
def test_sigkill_of_the_launcher_leaves_nothing(victim: str) -> None:
    # Killed together, only the kernel is left to act: direct children die, what they started may stay.
    script = FAMILY if victim != "both" else f"{READY}; exec sleep 1000"
    with supervise([("server 0", "exec sleep 1000"), ("worker 0", script)]) as job:
        pids = family(job) if victim != "both" else [int(job.expect(r"ready (\d+)").group(1))]
        front = job.process.pid
        supervisor = child_of(front)
        if victim != "supervisor":
            os.kill(front, signal.SIGSTOP)  # so that it cannot notice the death of the supervisor first
        if victim != "front":
            os.kill(supervisor, signal.SIGKILL)
        if victim != "supervisor":
            os.kill(front, signal.SIGKILL)
        assert all(ended(pid) for pid in [*pids, supervisor])
        assert job.process.wait(LIMIT_S) == (137 if victim == "supervisor" else -9)


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$"])
def test_what_a_worker_leaves_behind_is_ended(end: str) -> None:
    script = FAMILY.replace(WAIT, end)
    with supervise([("worker 0", script), ("worker 1", "true")]) as job:
        pids = family(job)
        assert job.end() == {"exit 0": 0, "exit 3": 3, "kill -9 $$": 137}[end]
        assert all(ended(pid) for pid in pids)


def test_of_two_failures_the_first_counts_however_late_the_launcher_looks(tmp_path: Path) -> None:
    gates = [tmp_path / "0", tmp_path / "1"]
    for gate in gates:
        os.mkfifo(gate)
    specs = [(f"worker {i}", f"{READY}; read x < {gates[i]}; exit {5 - 2 * i}") for i in range(2)]
    with supervise(specs, BYTEPS_LOG_LEVEL="INFO") as job:
        pids = [int(job.expect(rf"\[worker {i}\] ready (\d+)").group(1)) for i in range(2)]
        supervisor = child_of(job.process.pid)
        os.kill(supervisor, signal.SIGSTOP)
        for i in (1, 0):
            gates[i].write_text("go\n")
            assert ended(pids[i])
        os.kill(supervisor, signal.SIGCONT)
        assert job.end() == 3
    assert job.said.endswith(": worker 1 exited with code 3; after it, worker 0 exited with code 5\n")


def test_a_reader_that_goes_ends_the_job() -> None:
    chatty = "while :; do echo line; done"
    with supervise([("worker 0", chatty), ("worker 1", WAIT)]) as job:
        job.expect("line")
        assert job.process.stdout is not None
        job.process.stdout.close()
        assert job.process.wait(LIMIT_S) == 141


def test_a_reader_that_does_not_read_delays_no_signal() -> None:
    chatty = f"{READY}; while :; do echo a line of no great interest; done"
    with supervise([("worker 0", chatty), ("worker 1", WAIT)]) as job:
        pid = int(job.expect(r"ready (\d+)").group(1))
        wait_for_a_full_pipe(job)
        job.send(signal.SIGTERM)
        assert ended(pid)
        assert job.end() == 143


def test_a_reader_that_does_not_read_keeps_no_orphan() -> None:
    chatty = f"{READY}; while :; do echo a line of no great interest; done"
    with supervise([("worker 0", chatty), ("worker 1", WAIT)]) as job:
        pid = int(job.expect(r"ready (\d+)").group(1))
        wait_for_a_full_pipe(job)
        supervisor = child_of(job.process.pid)
        job.send(signal.SIGKILL)
        assert ended(pid) and ended(supervisor)


def wait_for_a_full_pipe(job: Job) -> None:
    """The launcher's pipe to us has no room left: its queue fills, and the worker waits in a write."""
    deadline = time.monotonic() + LIMIT_S
    writer = os.open(f"/proc/{job.process.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while select.select([], [writer], [], 0)[1]:
            assert time.monotonic() < deadline
            select.select([], [], [], 0.01)
    finally:
        os.close(writer)


# ---- on a terminal


class Terminal:
    """A launcher in a session of its own, with a terminal that we hold the other end of."""

    def __init__(self, *argv: str) -> None:
        self.out = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.execve(argv[0], argv, environment(TERM="xterm", COLUMNS="80"))

    def expect(self, text: bytes) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self.out:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.out!r}"
            self.out += os.read(self.fd, 65536)

    def type(self, text: bytes) -> None:
        os.write(self.fd, text)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"it did not end: {self.out!r}"
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # EIO: nobody holds the terminal any more
                data = b""
            if not data:
                break
            self.out += data
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


TWO_RANKS = (
    "/usr/bin/env",
    "DMLC_ROLE=worker",
    "DMLC_NUM_WORKER=1",
    "NVIDIA_VISIBLE_DEVICES=0,1",
    *BPSLAUNCH,
)


def test_ctrl_c_on_a_terminal_reaches_each_worker_once() -> None:
    terminal = Terminal(*TWO_RANKS, sys.executable, "-c", COUNTS, "1")
    terminal.expect(b"[worker 0]\x1b[0m ready")
    terminal.expect(b"[worker 1]\x1b[0m ready")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    # A line that came in two parts was shown unfinished, and then drawn again.
    seen = re.sub(rb"[^\r\n]*\r\x1b\[K", b"", terminal.out)
    assert seen.count(b"got ['SIGINT']") == 2, terminal.out


LOOKS = """
import os, sys
columns = os.get_terminal_size().columns if sys.stdout.isatty() else 0
print(sys.stdout.isatty(), sys.stderr.isatty(), columns, os.isatty(0), flush=True)
for step in range(3):
    print(f"\\rstep {step}", end="", flush=True)
print()
"""


def test_ranks_have_a_terminal_where_the_launcher_has_one(tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(LOOKS)
    terminal = Terminal(*TWO_RANKS, sys.executable, str(tmp_path / "looks.py"))
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    assert terminal.end() == 0
    assert re.search(rb"\[worker 1\]\x1b\[0m True True (68|20) False", terminal.out), terminal.out
    assert re.search(rb"\[worker 0\]\x1b\[0m True True (68|20) True", terminal.out), terminal.out
    assert re.search(rb"\[worker 0\]\x1b\[0m step 2\r?\n", terminal.out), terminal.out
    job = run(Job([*TWO_RANKS, sys.executable, str(tmp_path / "looks.py")]))
    assert job.lines("worker 0") == ["False False 0 False", "step 2"]  # to a pipe: the last state of a bar


def test_worker_0_can_be_talked_to_and_shows_its_prompt() -> None:
    talk = 'test $BYTEPS_LOCAL_RANK = 1 || { printf "name? "; read x; echo "hello $x"; }'
    terminal = Terminal(*TWO_RANKS, "/bin/sh", "-c", talk)
    terminal.expect(b"name? ")
    terminal.type(b"you\n")
    terminal.expect(b"hello you")
    assert terminal.end() == 0


def test_a_command_alone_has_the_terminal() -> None:
    terminal = Terminal(
        *BPSLAUNCH, "/bin/sh", "-c", "test -t 0 && test -t 1 && test -t 2 && read x && echo got $x"
    )
    terminal.type(b"it\n")
    assert terminal.end() == 0
    assert b"got it" in terminal.out


def test_ctrl_z_stops_everybody_until_continued() -> None:
    script = "echo ready $$; read x; echo $x"
    terminal = Terminal(*BPSLAUNCH, "/bin/sh", "-c", script)
    terminal.expect(b"\n")
    worker = int(terminal.out.split(b"ready ")[1].split()[0])
    terminal.type(b"\x1a")
    assert os.WIFSTOPPED(os.waitpid(terminal.pid, os.WUNTRACED)[1])
    supervisor = child_of(terminal.pid)
    deadline = time.monotonic() + LIMIT_S
    while not all(state(pid) == "T" for pid in (supervisor, worker)):
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.type(b"again\n")
    terminal.expect(b"again\r\nagain")
    assert terminal.end() == 0


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_background_job_does_not_take_what_is_typed() -> None:
    shell = (
        f"set -m; {subprocess.list2cmdline(BPSLAUNCH)} cat & wait $!; echo code $?; read x; echo shell got $x"
    )
    terminal = Terminal("/bin/bash", "--norc", "-c", shell)
    terminal.expect(b"code 0")
    terminal.type(b"mine\n")
    assert terminal.end() == 0
    assert b"shell got mine" in terminal.out
