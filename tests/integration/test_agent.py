"""The agent of a host, spoken to directly; and launchers that meet a strange ssh."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from launch_job import LIMIT_S, bpslaunch, ended, environment, run

from byteps import __version__
from byteps.launcher import frames
from byteps.launcher.frames import (
    Ended,
    Frames,
    Hello,
    NotStarted,
    Open,
    Output,
    Ping,
    Refused,
    Signal,
    Start,
    encode,
)
from byteps.launcher.spec import ProcessSpec

AGENT = (sys.executable, "-m", "byteps.launcher.agent")
FAMILY = "(setsid sh -c 'echo daemon $$; exec sleep 1003' &) ; echo ready $$; while :; do sleep 1000; done"


class Agent:
    """An agent, and what it has said."""

    def __init__(self, argv: Sequence[str] = AGENT) -> None:
        self.process = subprocess.Popen(
            argv,
            env=environment(PYTHONSAFEPATH="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._frames = Frames(frames.FromAgent, marked=True)
        self.heard: list[frames.FromAgent] = []

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def say(self, *messages: frames.ToAgent) -> None:
        self.write(b"".join(encode(message) for message in messages))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def hear(self, kind: type[frames.FromAgent]) -> frames.FromAgent:
        """Read until a message of this kind has come; returns it."""
        while not (found := [message for message in self.heard if isinstance(message, kind)]):
            self._more()
        return found[-1]

    def output(self) -> str:
        return b"".join(message.data for message in self.heard if isinstance(message, Output)).decode()

    def until(self, word: str) -> int:
        """The number after a word of the output."""
        while "\n" not in self.output().partition(word)[2]:
            self._more()
        return int(self.output().partition(word)[2].split()[0])

    def _more(self) -> None:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
        data = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
        assert data, self.heard[-3:]
        self.heard += self._frames.feed(data)  # type: ignore[arg-type]


def shell(script: str, **env: str) -> ProcessSpec:
    return ProcessSpec("worker 0", "worker", ("sh", "-c", script), env)


def test_an_agent_starts_reports_and_ends(tmp_path: Path) -> None:
    with Agent() as agent:
        agent.say(Open(str(tmp_path), 0), Ping())
        hello = agent.hear(Hello)
        assert isinstance(hello, Hello) and hello.version == __version__ and hello.root_port > 0
        script = "pwd; echo $A $B $C; printf 'no end'; exit 3"
        spec = ProcessSpec("worker 0", "worker", ("sh", "-c", script), {"A": "own"}, frozenset({"B"}))
        agent.say(Start({7: spec}, {"B": "dropped", "C": "common"}))
        assert agent.hear(Ended) == Ended(7, 3)
        assert agent.output() == f"{tmp_path}\nown common\nno end"
        assert agent.process.wait(LIMIT_S) == 0


def test_signals_reach_only_whom_they_are_for() -> None:
    with Agent() as agent:
        agent.say(Open("/", -1), Start({3: shell(FAMILY), 4: shell("read x < /dev/zero; sleep 1000")}, {}))
        assert agent.until("ready ") > 0
        agent.say(Signal(signal.SIGTERM, [3, 99]))
        assert agent.hear(Ended) == Ended(3, 143)
        agent.say(Signal(signal.SIGKILL, [4]))
        assert agent.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("how", ["end of file", "nonsense", "SIGTERM", "silence"])
def test_the_end_of_the_launcher_is_the_end_of_everything(how: str) -> None:
    with Agent() as agent:
        silence_s = 1.0 if how == "silence" else 30.0
        agent.say(Open("/", -1), Start({0: shell(f"trap '' TERM HUP INT; {FAMILY}")}, {}, silence_s))
        pids = [agent.until("daemon "), agent.until("ready ")]
        if how == "end of file":
            agent.hang_up()
        elif how == "nonsense":
            agent.write(b"\xff" * 64)
        elif how == "SIGTERM":
            agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(LIMIT_S) == 1
        assert all(ended(pid) for pid in pids)


@pytest.mark.parametrize("data", [b"", b"\xff" * 64, encode(Ping())[:3], encode(Start({}, {}))])
def test_an_agent_that_is_told_nothing_sensible_ends(data: bytes) -> None:
    with Agent() as agent:
        agent.write(data)
        agent.hang_up()
        assert agent.process.wait(LIMIT_S) == 1


def test_what_cannot_be_is_refused() -> None:
    with Agent() as agent:
        agent.say(Open("/no/such/folder", -1))
        refused = agent.hear(Refused)
        assert isinstance(refused, Refused) and "'/no/such/folder'" in refused.text
    with Agent() as agent:
        agent.say(Open("/", -1), Start({5: ProcessSpec("worker 5", "worker", ("no-such-command",))}, {}))
        text = "worker 5: command not found: 'no-such-command'; check its spelling and PATH"
        assert agent.hear(NotStarted) == NotStarted(5, 127, text)


def test_a_launcher_that_does_not_read_stops_the_writer_and_not_the_agent() -> None:
    """Output waits in the process; orders are obeyed all the same, and nothing that was written is lost."""
    size = 8 << 20
    with Agent() as agent:
        agent.say(Open("/", -1), Start({0: shell(f"head -c {size} /dev/zero"), 1: shell(FAMILY)}, {}))
        agent.hear(Hello)
        agent.say(Signal(signal.SIGKILL, [1]))  # while its output is full
        codes = {}
        while len(codes) < 2:
            message = agent.hear(Ended)
            assert isinstance(message, Ended)
            codes[message.place] = message.code
            agent.heard = [each for each in agent.heard if each is not message]
        assert codes == {0: 0, 1: 137}
        zeros = sum(len(each.data) for each in agent.heard if isinstance(each, Output) and each.place == 0)
        assert zeros == size


# ---- launchers and strange ssh


def fake_ssh(folder: Path, script: str) -> str:
    path = folder / "ssh"
    path.write_text(f'#!/bin/bash\nremote="${{@: -1}}"\n{script}\n')
    path.chmod(0o755)
    return str(path)


def test_what_login_scripts_print_does_no_harm(tmp_path: Path) -> None:
    ssh = fake_ssh(tmp_path, "echo 'Welcome to node1!'; printf 'no end of line'; eval \"$remote\"")
    job = run(bpslaunch("--ssh", ssh, "-H", "node1:2", "sh", "-c", "echo $RANK"))
    assert job.process.returncode == 0, job.said
    assert (job.lines("worker 0@node1"), job.lines("worker 1@node1")) == (["0"], ["1"])


def test_another_version_is_said(tmp_path: Path) -> None:
    hello = frames.MARK + encode(Hello("0.0.1", "node1", 1, 2))
    (tmp_path / "hello").write_bytes(hello)
    ssh = fake_ssh(tmp_path, f"cat {tmp_path}/hello; read x")
    job = run(bpslaunch("--ssh", ssh, "-H", "node1,node2", "true"))
    assert job.process.returncode not in (0, 2)
    assert f"it has byteps 0.0.1, this machine has {__version__}" in job.said


@pytest.mark.parametrize(
    "script", ["head -c 3000000 /dev/urandom", "echo hello; exit 5", "kill -9 $$", "exit 0"]
)
def test_something_else_than_an_agent_answers(tmp_path: Path, script: str) -> None:
    job = run(bpslaunch("--ssh", fake_ssh(tmp_path, script), "-H", "node1,node2", "true"))
    assert job.process.returncode != 0 and "failed after" in job.said
    assert "node1: " in job.said or "node2: " in job.said
    assert "Traceback" not in job.said


OURS = Hello(__version__, "node1", 1, 2)
DEEP = b"\x82\xa4type\xa5hello\xa1x" + b"\x91" * 5_000 + b"\xc0"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (encode(OURS) + encode(Output(99, True, b"x")), "spoke of process 99"),
        (encode(OURS) + encode(Ended(7, 0)), "spoke of process 7"),
        (encode(OURS) + encode(OURS), "greeted twice"),
        (len(DEEP).to_bytes(4, "big") + DEEP, "does not decode"),
        (b"\0\0\0\x14\x82\xa4type\xa7refused\xa4text\xa1\xff", "does not decode"),
    ],
    ids=["output", "end", "two greetings", "nested", "no text"],
)
def test_an_agent_that_makes_no_sense_is_lost_by_name(tmp_path: Path, said: bytes, words: str) -> None:
    (tmp_path / "said").write_bytes(frames.MARK + said)
    ssh = fake_ssh(tmp_path, f"cat {tmp_path}/said; read x")
    job = run(bpslaunch("--ssh", ssh, "-H", "node1,node2", "true"))
    assert job.process.returncode not in (0, 2)
    assert words in job.said and "Traceback" not in job.said, job.said
    assert "node1: " in job.said or "node2: " in job.said


ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m"


@pytest.mark.parametrize("way", ["refusal", "login script", "ssh"])
def test_nothing_that_another_host_says_moves_the_cursor(tmp_path: Path, way: str) -> None:
    """What ranks write is theirs to decide; what agents and ssh say is text."""
    refusal = b"\x82\xa4type\xa7refused\xa4text" + bytes([0xA0 + len(ESCAPES.encode())]) + ESCAPES.encode()
    refused = frames.MARK + len(refusal).to_bytes(4, "big") + refusal
    (tmp_path / "said").write_bytes(refused if way == "refusal" else ESCAPES.encode())
    ssh = fake_ssh(tmp_path, f"cat {tmp_path}/said {'>&2' if way == 'ssh' else ''}; exit 3")
    job = run(bpslaunch("--ssh", ssh, "-H", "node1,node2", "true"))
    assert r"\x1b[2J" in job.said and "owned" in job.said
    assert not any(code in job.said for code in ("\x1b", "\x07", "\x9b"))
