"""The command ``bps``: its help, ``bps env`` in every form, and its exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from byteps import _core
from byteps.config import VARIABLES
from byteps.tools import cli, env, machine_facts


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        for name in (variable.name, *variable.aliases):
            monkeypatch.delenv(name, raising=False)


def test_help_lists_the_commands_and_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    for name, command in cli.COMMANDS.items():
        assert f"    {name}" in out and command.summary in out


def test_no_command_shows_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "examples:" in capsys.readouterr().out


def test_an_unknown_command_is_named() -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["evn"])
    assert caught.value.code == 2


def test_a_module_that_is_missing_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "bench", cli.Command("byteps.tools.nothing_here", "measure", "bench"))
    assert cli.main(["bench"]) == 1
    err = capsys.readouterr().err
    assert (
        err.startswith("bps: error: bps bench cannot start: ") and "pip install 'byteps-train[bench]'" in err
    )
    assert len(err.splitlines()) == 1


def test_env_shows_every_variable_but_the_private_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env"]) == 0
    out = capsys.readouterr().out
    for variable in VARIABLES.values():
        assert (f" {variable.name} " in out) == (variable.status != "private")
    assert cli.main(["env", "--all"]) == 0
    assert "BYTEPS_LISTEN_FD" in capsys.readouterr().out


def test_env_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["env"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    for word in ("VALUE", "DEFAULT", "STATUS", "MEANING"):
        at = lines[0].index(word)
        assert all(line[at - 1] == " " and line[at] != " " for line in lines)


def test_env_set_shows_what_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["env", "--set"]) == 0
    assert capsys.readouterr().out.startswith("no variable is set")
    monkeypatch.setenv("BYTEPS_PARTITION_BYTES", "1024")
    monkeypatch.setenv("BYTEPS_JOB_SECRET", "sesame")
    assert cli.main(["env", "--set"]) == 0
    out = capsys.readouterr().out
    rows = [line.split()[1:3] for line in out.splitlines() if line.startswith("* ")][:2]
    assert rows == [["BYTEPS_JOB_SECRET", "(set,"], ["BYTEPS_PARTITION_BYTES", "1024"]]
    assert "sesame" not in out


def test_env_reports_every_bad_value_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTEPS_PARTITION_BYTES", "big")
    monkeypatch.setenv("PS_VERBOSE", "much")
    assert cli.main(["env"]) == 1
    captured = capsys.readouterr()
    errors = captured.err.splitlines()
    assert [line.split("=")[0] for line in errors] == ["error: BYTEPS_PARTITION_BYTES", "error: PS_VERBOSE"]
    assert "DMLC_ROLE" in captured.out


def test_env_reports_contradictions_and_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    monkeypatch.setenv("BYTEPS_PARTITON_BYTES", "1")
    assert cli.main(["env"]) == 1
    err = capsys.readouterr().err
    assert "error: DMLC_PS_ROOT_URI is not set" in err
    assert "warning: BYTEPS_PARTITON_BYTES is set" in err


def test_env_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_PORT", "9100-9199")
    assert cli.main(["env", "--set", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["errors"] == [] and report["warnings"] == []
    (row,) = report["variables"]
    assert (row["name"], row["value"], row["set"], row["status"]) == (
        "DMLC_PORT",
        "9100-9199",
        True,
        "in force",
    )


def test_a_narrow_terminal_gets_two_lines_per_variable() -> None:
    lines = env.select(env.examine({"DMLC_ROLE": "worker"}), given_only=True, private=False)
    assert env.text_table(lines, 60) == (
        "\nStart-up\n* DMLC_ROLE = worker   (default -; in force)\n"
        "      what this process is: worker, server or scheduler"
    )


def test_version_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "byteps",
        "core",
        "python",
        "system",
    ]


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "byteps.tools.cli", "env"]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_env_does_not_import_other_commands() -> None:
    program = (
        "import sys\n"
        "from byteps.tools import cli\n"
        "cli.main(['env'])\n"
        "print('byteps.tools.bench' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_env_says_how_tensors_come_from_rank_to_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "copied once" in machine_facts.memory_between_ranks()
    monkeypatch.setattr(_core, "can_read", lambda pid, address, value: False)  # in a hardened container, say
    monkeypatch.setattr(machine_facts, "_YAMA", FakeYama())
    text = machine_facts.memory_between_ranks()
    assert "go through the arena" in text and "kernel.yama.ptrace_scope = 1" in text


class FakeYama:
    def exists(self) -> bool:
        return True

    def read_text(self) -> str:
        return "1\n"
