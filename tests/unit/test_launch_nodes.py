"""torchrun's options in bpslaunch, and the share of one machine."""

from __future__ import annotations

import argparse
import os

import pytest

from byteps.config import load
from byteps.errors import ConfigError
from byteps.launcher import nodes
from byteps.launcher.cli import build_parser
from byteps.launcher.share import plan_share
from byteps.launcher.spec import UNKNOWN

BASE = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1"]


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args([*words, "python", "train.py"])


def labels(*words: str) -> list[str]:
    args = parsed(*words)
    made = plan_share(nodes.share_of(args, {}), args.command, {}, UNKNOWN)
    for spec in made.processes:
        load({**spec.env, "BYTEPS_LISTEN_FD": ""}).check()
    return [spec.label for spec in made.processes]


def test_every_machine_has_a_server_and_the_first_the_scheduler() -> None:
    assert labels(*BASE, "--nproc-per-node", "2") == ["scheduler", "server 0", "worker 0", "worker 1"]
    assert labels(*BASE, "--node-rank", "1") == ["server 1", "worker 1"]
    assert labels(*BASE, "--servers", "1", "--node-rank", "1") == ["worker 1"]


def test_both_spellings() -> None:
    dashes = parsed(*BASE, "--master-port", "9000", "--nproc-per-node", "3")
    lines = parsed(*[word.replace("-", "_").replace("__", "--", 1) for word in BASE], "--master_port", "9000",
                   "--nproc_per_node=3")  # fmt: skip
    assert nodes.share_of(dashes, {}) == nodes.share_of(lines, {})
    share = nodes.share_of(dashes, {})
    assert (share.root_uri, share.root_port, share.master_port, share.sizes) == (
        "10.0.0.1",
        9000,
        9001,
        (3, 3),
    )


def test_machines_that_are_started_apart_have_no_common_launch() -> None:
    args = parsed(*BASE)
    for environ, job_id in (({}, "default"), ({"BYTEPS_JOB_ID": "mine"}, "mine")):
        made = plan_share(nodes.share_of(args, environ), args.command, environ, UNKNOWN)
        settings = [
            load({**spec.environment({"BYTEPS_LAUNCH_ID": "of another"}), "BYTEPS_LISTEN_FD": ""})
            for spec in made.processes
        ]
        assert {(config.job_id, config.launch_id) for config in settings} == {(job_id, "")}


def test_one_machine_is_the_same_as_without() -> None:
    assert not nodes.asked(parsed("--nnodes", "1", "--standalone", "-n", "2"))
    assert nodes.asked(parsed(*BASE))


def test_numbers_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    assert (nodes.count("3"), nodes.count("auto"), nodes.count("cpu")) == (3, cores, cores)
    for wrong in ("gpu", "many"):
        with pytest.raises(argparse.ArgumentTypeError):
            nodes.count(wrong)
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "0,3,5")
    assert (nodes.count("gpu"), nodes.count("auto")) == (3, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nnodes", "1:4", "--node-rank", "0", "--master-addr", "a"], "--nnodes 1:4"),
        (["--nnodes", "2"], "needs --node-rank"),
        (["--nnodes", "2", "--node-rank", "2", "--master-addr", "a"], "expected 0 to 1"),
        (["--nnodes", "2", "--node-rank", "0"], "needs --master-addr"),
        ([*BASE, "--servers", "0"], "at least 1"),
        ([*BASE, "-n", "0"], "at least 1 rank"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        nodes.share_of(parsed(*words), {})
