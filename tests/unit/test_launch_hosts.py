"""Hosts as people write them, who runs what on which, and what travels between launcher and agents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteps.config import load
from byteps.errors import ConfigError
from byteps.launcher import frames
from byteps.launcher.frames import Ended, FrameError, Frames, Hello, Open, Output, Ping, Start, encode
from byteps.launcher.hosts import Host, merged, parse_file, parse_list
from byteps.launcher.layout import facts_from, lay_out, plan_hosts
from byteps.launcher.plan import UNKNOWN
from byteps.launcher.spec import ProcessSpec
from byteps.launcher.ssh import command_to, forwarded


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("node1", Host("node1")),
        ("node1:4", Host("node1", 4)),
        ("bob@node1:4:2222", Host("node1", 4, "bob", 2222)),
        ("10.0.0.1:8", Host("10.0.0.1", 8)),
        ("[fd00::1]:4", Host("fd00::1", 4)),
        ("bob@[fd00::1]", Host("fd00::1", None, "bob")),
    ],
)
def test_hosts(text: str, host: Host) -> None:
    assert parse_list(text, "-H") == [host]
    assert parse_list(f" {text} ,other", "-H") == [host, Host("other")]


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "a b", "a:b", "a:1:2:3", "@a", "bob@", "-x@a", "a@b@c"])
def test_what_is_no_host(text: str) -> None:
    """A name that begins with a dash would be an option of ssh, and run a program."""
    with pytest.raises(ConfigError, match="-H: "):
        parse_list(text, "-H")


def test_host_files() -> None:
    text = "# machines\nnode1 slots=4\n\nbob@node2:2  # two\nnode3 slots=1 port=2222 user=eve max_slots=8\n"
    assert parse_file(text, "--hostfile f") == [
        Host("node1", 4),
        Host("node2", 2, "bob"),
        Host("node3", 1, "eve", 2222),
    ]
    assert parse_file("node1:2222\n", "-WH f", number_is_port=True) == [Host("node1", None, "", 2222)]
    for wrong, word in (("\n", "no host"), ("a slots=x", "line 1"), ("a b", "'b' is not known")):
        with pytest.raises(ConfigError, match=word):
            parse_file(wrong, "--hostfile f")


def test_what_a_host_file_says_of_a_link_is_told_to_all_that_runs_there() -> None:
    workers = parse_file("a speed=10G\nb speed=1G/200M\n", "--hostfile")
    servers = parse_file("b\nc speed=2.5Gbit/s\n", "--server-hostfile")
    made = plan_hosts(lay_out(workers, servers, None, 1), ["train"], {}, UNKNOWN).processes
    told = {spec.label: spec.env.get("BYTEPS_LINK_SPEED") for spec in made}
    assert told["worker 0@a"] == "10G" and told["server 1@c"] == "2.5Gbit/s"
    assert told["worker 1@b"] == told["server 0@b"] == "1G/200M"
    assert load({"BYTEPS_LINK_SPEED": "1G/200M"}).link_speed == (10**9, 2 * 10**8)
    for wrong in ("fast", "0G", "10", "1G/", "-1G", "1G/2G/3G"):
        with pytest.raises(ConfigError, match="such as"):
            parse_file(f"a speed={wrong}", "--hostfile")


def test_a_host_that_is_named_twice_has_the_sum() -> None:
    assert merged(parse_list("a:2,b,a:1", "-H"), 4) == [(Host("a", 1), 3), (Host("b"), 4)]
    with pytest.raises(ConfigError, match="a: 0 is no number"):
        merged([Host("a", 0)], 1)


# ---- layout


def roles(hosts: str, servers: str = "", **more: object) -> list[str]:
    layout = lay_out(
        parse_list(hosts, "-H"),
        parse_list(servers, "x") if servers else [],
        more.pop("count", None),
        1,
        **more,
    )  # type: ignore[arg-type]
    made = plan_hosts(layout, ["train"], {}, replace(UNKNOWN, job_id="id", launch_id="id"))
    for spec in made.processes:
        load({**spec.env, "BYTEPS_LISTEN_FD": "", "DMLC_PS_ROOT_PORT": "9000"}).check()
        assert not spec.stdin and not spec.fds
    return [spec.label for spec in made.processes]


def test_who_runs_what() -> None:
    assert roles("a:2,b", "c,d") == [
        *("scheduler@a", "server 0@c", "server 1@d", "worker 0@a", "worker 1@a", "worker 2@b"),
    ]
    assert roles("a,b") == ["scheduler@a", "server 0@a", "server 1@b", "worker 0@a", "worker 1@b"]
    assert roles("a,b", count=3)[1:4] == ["server 0@a", "server 1@a", "server 2@b"]
    assert roles("a,b", "c:2")[1:3] == ["server 0@c", "server 1@c"]
    assert roles("a:2") == ["worker 0@a", "worker 1@a"]
    assert roles("a") == ["worker 0@a"]
    assert roles("a,b", scheduler_ip="b")[0] == "scheduler@b"
    assert roles("a,b", scheduler_ip="10.0.0.9")[0] == "scheduler@10.0.0.9"
    with pytest.raises(ConfigError, match="keep one"):
        roles("a,b", "c", count=1)


def test_the_network_interface_that_was_named_is_used_on_every_host() -> None:
    layout = lay_out(parse_list("a,b", "-H"), [], None, 1)
    environ = {"DMLC_INTERFACE": "eth1", "DMLC_NODE_HOST": "10.0.0.7"}
    for spec in plan_hosts(layout, ["train"], environ, UNKNOWN).processes:
        seen = spec.environment(environ)
        assert seen["DMLC_INTERFACE"] == "eth1" and "DMLC_NODE_HOST" not in seen


def test_members_are_told_addresses_at_which_ssh_has_reached_them() -> None:
    layout = lay_out(parse_list("a,b", "-H"), [], None, 1)

    def facts(first: Hello, second: Hello) -> tuple[str, str, str]:
        found = facts_from(layout, {"a": first, "b": second}, UNKNOWN)
        return found.root_uri, found.root_port, found.master_addr

    far = Hello("1", "b", 0, 7, "10.0.0.2", "10.0.0.9")
    assert facts(Hello("1", "a", 5, 6, "10.0.0.1", "10.0.0.9"), far) == ("10.0.0.1", "5", "10.0.0.1")
    # The first host is this machine: the others reach it as they see the launcher.
    assert facts(Hello("1", "a", 5, 6, "", ""), far)[0] == "10.0.0.9"
    assert facts(Hello("1", "a", 5, 6, "127.0.0.1", "127.0.0.1"), far)[0] == "10.0.0.9"
    near = Hello("1", "b", 0, 7, "127.0.0.1", "127.0.0.1")
    assert facts(Hello("1", "a", 5, 6, "127.0.0.1", "127.0.0.1"), near)[0] == "127.0.0.1"
    told = lay_out(parse_list("a,b", "-H"), [], None, 1, "192.0.2.1")
    hellos = {"a": far, "b": far, "192.0.2.1": Hello("1", "c", 8, 9, "10.9.9.9", "")}
    assert facts_from(told, hellos, UNKNOWN).root_uri == "192.0.2.1"


# ---- how ssh is called


def test_the_command_of_ssh() -> None:
    argv = command_to(Host("node1", 4, "bob", 2222), "ssh -i 'my key'", "/opt/my python/bin/python", 60.0)
    assert argv[:3] == ["ssh", "-i", "my key"]
    assert argv[-7:-1] == ["-p", "2222", "-l", "bob", "--", "node1"]
    assert argv[-1] == "exec env PYTHONSAFEPATH=1 '/opt/my python/bin/python' -m byteps.launcher.agent"
    assert {"ServerAliveInterval=5", "ServerAliveCountMax=12"} <= set(argv)
    assert command_to(Host("localhost"), "ssh", "python", 60.0)[0] == "python"


def test_what_is_passed_on() -> None:
    environ = {"BYTEPS_X": "1", "DMLC_Y": "2", "OMP_NUM_THREADS": "3", "PATH": "/bin", "KEY": "k"}
    found = forwarded(environ, ["KEY", "A=b=c", "OMP_NUM_THREADS:4"])
    assert found == {"BYTEPS_X": "1", "DMLC_Y": "2", "OMP_NUM_THREADS": "4", "KEY": "k", "A": "b=c"}
    for wrong in ("", "=x", "a b=1", "NOT_SET"):
        with pytest.raises(ConfigError, match="--env"):
            forwarded(environ, [wrong])


# ---- messages

SPEC = ProcessSpec("worker 0@a", "worker", ("train", "--lr"), {"A": "1"}, frozenset({"B"}), host="a")
MESSAGES = [
    Open("/data", 9000),
    Start({0: SPEC, 3: SPEC}, {"C": "2"}),
    frames.Signal(2, [0, 3]),
    Ping(),
]
ANSWERS = [Hello("1", "a", 1, 2, "x", "y"), Output(3, True, b"\0\n" * 9), Ended(3, 137), frames.Refused("no")]


@given(
    st.lists(st.sampled_from(range(4)), max_size=12), st.lists(st.integers(1, 97), min_size=1, max_size=40)
)
def test_messages_arrive_however_they_are_cut(order: list[int], cuts: list[int]) -> None:
    for kind, known, marked in ((frames.ToAgent, MESSAGES, False), (frames.FromAgent, ANSWERS, True)):
        sent = [known[k] for k in order]
        data = b"Welcome to node1\n" + frames.MARK if marked else b""
        data += b"".join(encode(message) for message in sent)
        reader, received, k = Frames(kind, marked=marked), [], 0
        while data:
            size = cuts[k % len(cuts)]
            received += reader.feed(data[:size])
            data, k = data[size:], k + 1
        assert received == sent


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", encode(Ended(1, 1)), b"\0\0\0\2\x92\1"]
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        Frames(frames.ToAgent).feed(data + b"\0" * 100)


def test_what_login_scripts_say_is_kept_and_bounded() -> None:
    reader = Frames(frames.FromAgent, marked=True)
    assert reader.feed(b"Permission denied\n") == [] and reader.chatter == "Permission denied"
    with pytest.raises(FrameError, match="megabyte"):
        reader.feed(b"x" * (frames.MAX_CHATTER_BYTES + 1))
