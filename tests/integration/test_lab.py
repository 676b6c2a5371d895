"""``bps lab`` and its networks: bytes on the links are those of theory, and nothing is left behind."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from byteps.tools.lab import Lab, Wire
from byteps.tools.lab.network import why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "can be built here")

BPS = [sys.executable, "-m", "byteps.tools.cli"]
RUN_TIMEOUT_S = 90
NUMBERS = 2_000_000  # float32: 8 MB, many partitions of the size below
JOB = f"""
import socket
import numpy as np
import byteps as bps
bps.init()
mine = np.full({NUMBERS}, 4.0 ** bps.rank(), np.float32)
total = bps.push_pull(mine, average=False, name="x")
assert (total == sum(4.0 ** rank for rank in range(bps.size()))).all()
print("host", socket.gethostname(), bps.rank())
print("pieces", bps.counters()["pieces_sent"])
"""


def run(
    *options: str, command: list[str] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "BYTEPS_CONNECT_TIMEOUT_S": "60", **variables}
    argv = [*BPS, "lab", *options, "--", *(command or [sys.executable, "-c", JOB])]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)


def megabytes(output: str) -> dict[str, tuple[float, float]]:
    """Sent and received by host, in units of what one worker contributes."""
    found = re.findall(r"^ +(\w+) +sent +([\d.]+) MB +received +([\d.]+) MB", output, re.MULTILINE)
    unit = NUMBERS * 4 / 1e6
    return {host: (float(sent) / unit, float(received) / unit) for host, sent, received in found}


def about(expected: float) -> object:
    return pytest.approx(expected, rel=0.08, abs=0.03)  # headers, and the little that is sent twice


@pytest.mark.parametrize(
    ("workers", "beside", "extra", "name"),
    [(2, 0, 2, ""), (2, 2, 0, ""), (2, 2, 1, ""), (4, 4, 2, ""), (4, 4, 2, "clone")],
)
def test_every_link_carries_what_theory_says(workers: int, beside: int, extra: int, name: str) -> None:
    """Also where all hosts have one name, as clones and containers often do."""
    named = ["--hostname", name] if name else []
    done = run("--workers", f"{workers}", "--beside", f"{beside}", "--servers", f"{extra}", *named)
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = {match[1]: match[0] for match in re.findall(r"host (\w+) (\d+)", done.stdout)}
    assert hosts == {str(rank): name or f"w{rank}" for rank in range(workers)}
    x = (workers - extra) / (workers**2 + extra * workers - 2 * extra) if beside else 0.0
    y = (1 - workers * x) / extra if extra else 0.0
    links = megabytes(done.stderr)
    for index in range(workers):
        expected = 1 - x + (workers - 1) * x
        assert links[f"w{index}"] == (about(expected), about(expected)), links
    for index in range(extra):
        assert links[f"s{index}"] == (about(workers * y), about(workers * y)), links
    assert max(links["scheduler"]) < 0.05


@pytest.mark.parametrize("told", [True, False])
def test_a_slow_link_carries_its_share_when_speeds_are_told(told: bool) -> None:
    unequal = ("--workers", "2", "--servers", "2", "--rate", "200mbit", "--link", "s0=50mbit")
    done = run(*unequal, *["--told"] * told)
    assert done.returncode == 0, done.stdout + done.stderr
    links = megabytes(done.stderr)
    slow, fast = (2 / 5, 8 / 5) if told else (1, 1)
    assert links["s0"] == (about(slow), about(slow)) and links["s1"] == (about(fast), about(fast)), links
    assert "BYTEPS_LINK_SPEED is without effect" not in done.stderr


def test_a_machine_that_does_not_say_its_speed_is_named() -> None:
    job = (
        f"import os; os.environ.pop('BYTEPS_LINK_SPEED') if os.environ['DMLC_WORKER_ID'] == '1' else 0\n{JOB}"
    )
    done = run("--servers", "2", "--rate", "200mbit", "--told", command=[sys.executable, "-c", job])
    assert done.returncode == 0, done.stdout + done.stderr
    said = "BYTEPS_LINK_SPEED is without effect: not told on the machine of worker 1"
    assert said in done.stderr + done.stdout, done.stderr
    assert megabytes(done.stderr)["s0"] == (about(1), about(1))


@pytest.mark.parametrize("named", [(), ("--hostname", "clone")])
def test_between_hosts_pieces_are_small_whatever_the_partition(named: tuple[str, ...]) -> None:
    done = run("--workers", "2", "--servers", "2", *named, BYTEPS_PARTITION_BYTES="4096000")
    assert done.returncode == 0, done.stdout + done.stderr
    partitions = 4_096_000, NUMBERS * 4 - 4_096_000
    expected = sum(-(-nbytes // 32_768) for nbytes in partitions)
    assert re.findall(r"pieces (\d+)", done.stdout) == [str(expected)] * 2


def test_the_exit_code_of_the_job_comes_back_and_wrong_use_is_told() -> None:
    failed = run("--workers", "2", command=[sys.executable, "-c", "import sys; sys.exit(7)"])
    assert failed.returncode == 7
    nobody = run("--link", "s7=1gbit")
    assert nobody.returncode == 2 and "--link s7: there is no such host" in nobody.stderr
    wrong = run("--workers", "2", "--servers", "0")
    assert wrong.returncode == 2 and "machines need servers" in wrong.stderr


def test_a_delay_is_there() -> None:
    server = (
        "import socket; s = socket.create_server(('', 5000)); print('up', flush=True); "
        "c = s.accept()[0]; c.sendall(c.recv(9))"
    )
    client = (
        "import socket, sys, time; c = socket.create_connection((sys.argv[1], 5000)); t = time.monotonic(); "
        "c.sendall(b'x'); c.recv(1); print(time.monotonic() - t)"
    )
    with Lab(["a", "b"], rate_mbit=100, wire=Wire(delay_ms=10)) as lab:
        echo = lab.start("b", [sys.executable, "-c", server], stdout=subprocess.PIPE)
        assert echo.stdout is not None and echo.stdout.readline() == b"up\n"
        asked = lab.start("a", [sys.executable, "-c", client, lab.address("b")], stdout=subprocess.PIPE)
        out, _ = asked.communicate(timeout=30)
    assert float(out) >= 0.040  # there and back over two links each


def alive(text: str) -> list[int]:
    """Processes that have ``text`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_after_a_kill_nothing_is_left() -> None:
    mark = f"LAB_TEST={os.getpid()}.{time.time_ns()}"
    env = {**os.environ, "LAB_TEST": mark.partition("=")[2]}
    script = "import sys, time; print('begun', flush=True); time.sleep(60)"
    argv = [*BPS, "lab", "--workers", "2", "--", sys.executable, "-c", script]
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert b"begun" in process.stdout.readline()
    assert len(alive(mark)) > 5
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    deadline = time.monotonic() + 10
    while (left := alive(mark)) and time.monotonic() < deadline:
        for pid in left:  # sleeps until the kernel says that it has ended
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            os.close(fd)
    assert not left
    process.stdout.close()


def test_without_the_right_it_says_so() -> None:
    argv = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    code = "from byteps.tools.lab.network import why_not; print(why_not())"
    done = subprocess.run([*argv, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"another user cannot run this interpreter: {done.stderr.strip()[-200:]}")
    assert "run it as root" in done.stdout


# An answer to the first datagram, that nobody listens, says that the way is known; then all go out at once.
FLOOD = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.settimeout(10)
    one.connect((sys.argv[1], 9))
    one.send(b"?")
    try:
        one.recv(1)
    except ConnectionRefusedError:
        pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    for _ in range(int(sys.argv[2])):
        one.sendto(bytes(1400), (sys.argv[1], 9))
"""


def test_what_a_full_port_loses_is_counted() -> None:
    """Two links feed one: every frame either arrives or is counted as dropped."""
    each = 150

    def arrived() -> int:
        snmp = subprocess.run([*lab.inside("c"), "cat", "/proc/net/snmp"], capture_output=True, text=True)
        names, values = (line.split() for line in snmp.stdout.splitlines() if line.startswith("Udp:"))
        return int(values[names.index("NoPorts")])

    with Lab(["a", "b", "c"], rate_mbit=10, wire=Wire(queue_ms=10)) as lab:
        before = lab.losses()
        argv = [sys.executable, "-c", FLOOD, lab.address("c"), str(each)]
        senders = [lab.start(host, argv) for host in "ab"]
        assert [sender.wait(timeout=20) for sender in senders] == [0, 0]
        sent, deadline = 2 * (1 + each), time.monotonic() + 20
        while (lost := lab.losses() - before).dropped + (came := arrived()) < sent:
            assert time.monotonic() < deadline, (lost, came, sent)
        # The kernel's own multicasts may be among what is lost, too.
        assert came < sent <= lost.dropped + came < sent + 10 and lost.resent == 0
