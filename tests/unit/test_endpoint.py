"""Addresses as people write them, wherever one can stand."""

from __future__ import annotations

import argparse

import pytest

from byteps.config import endpoint, load
from byteps.control.address import text_of
from byteps.errors import ConfigError
from byteps.launcher import nodes, ssh
from byteps.launcher.arguments import address
from byteps.launcher.hosts import parse_file, parse_list
from byteps.tools import doctor

GOOD = [
    ("node1", "node1"),
    ("node_1.example.org", "node_1.example.org"),
    ("10.0.0.1", "10.0.0.1"),
    ("::1", "::1"),
    ("[::1]", "::1"),
    ("fd00::1", "fd00::1"),
    ("[fd00::1]", "fd00::1"),
    ("[fe80::1%eth0]", "fe80::1%eth0"),
    ("fe80::1%eth0", "fe80::1%eth0"),
    ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
]
BAD = ["", "[]", "[::1", "::1]", "[node1]", "[10.0.0.1]", "10.0.0.1:9000", "[::1]:9000", "tcp://a", "a b"]
BAD += ["a/b", "x@y", "a\x1b", ":::", "[[::1]]"]


@pytest.mark.parametrize(("text", "host"), GOOD)
def test_a_host_in_every_place_where_one_can_stand(text: str, host: str) -> None:
    assert endpoint.host(text) == host
    assert load({"DMLC_PS_ROOT_URI": text}).root_uri == host
    assert load({"DMLC_NODE_HOST": text}).node_host == host
    assert address(text) == host
    for way, option, attribute in (
        (ssh, "--scheduler-ip", "scheduler_ip"),
        (nodes, "--master-addr", "master_addr"),
    ):
        parser = argparse.ArgumentParser()
        way.add_arguments(parser)
        assert getattr(parser.parse_args([option, text]), attribute) == host
    if ":" not in text or text.startswith("["):  # in a list a number may follow, so brackets are needed
        assert [each.name for each in parse_list(f"{text}:4,bob@{text}:2:22", "-H")] == [host, host]
        assert parse_file(f"{text} slots=4", "--hostfile")[0].name == host
        assert doctor._address(f"{text}:9000") == (host, 9000)


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused_in_every_place(text: str) -> None:
    with pytest.raises(ValueError):
        endpoint.host(text)
    if text:
        with pytest.raises(ConfigError, match=r"DMLC_PS_ROOT_URI.*\[fd00::1\]"):
            load({"DMLC_PS_ROOT_URI": text})
        with pytest.raises(argparse.ArgumentTypeError, match="expected a host name"):
            address(text)


@pytest.mark.parametrize("text", ["::1", "::1:4", "fd00::1:4", "[::1", "[node1]:4", "[]:4"])
def test_an_ipv6_address_without_brackets_in_a_list_is_told_how_to_write_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"an IPv6 address in brackets: \[fd00::1\]:4"):
        parse_list(text, "-H")


NO_PORT = ["a", "a:", ":9", "a:0", "a:65536", "::1:9000", "[::1]", "[::1]9000", "a:9000x", "a:\u0663"]


@pytest.mark.parametrize("text", NO_PORT)
def test_an_address_that_is_no_host_with_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\[fd00::1\]:9000"):
        doctor._address(text)


@pytest.mark.parametrize(("name", "text"), [("::1", "[::1]:9000"), ("node1", "node1:9000")])
def test_what_is_printed_can_be_read_again(name: str, text: str) -> None:
    assert endpoint.joined(name, 9000) == text_of((name, 9000, 0, 0)) == text
    assert endpoint.host_and_port(text) == (name, 9000)
