"""The options of horovodrun: each becomes something here, or says why it does nothing, or is refused."""

from __future__ import annotations

import os

import pytest

from byteps.errors import ConfigError
from byteps.launcher.cli import build_parser, main
from byteps.launcher.horovodrun import OPTIONS, translated

PARSER = build_parser()
WITH_VALUE = {name for name, action in PARSER._option_string_actions.items() if action.nargs is None}
VALUES = {"--log-level": "debug", "--thread-affinity": "0", "-p": "22", "--start-timeout": "30"}


def value_of(name: str) -> str:
    return VALUES.get(name, "5")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(name: str) -> None:
    option = OPTIONS[name]
    given = [name, value_of(name)] if option.has_value else [name]
    line = ["-np", "2", *given, "python", "train.py", name]
    if option.refused:
        with pytest.raises(ConfigError, match=name):
            translated(line, WITH_VALUE)
        return
    words, notes = translated(line, WITH_VALUE)
    assert words[-3:] == ["python", "train.py", name]  # what belongs to the command stays there
    PARSER.parse_args(words)  # and what it became is an option of ours
    assert bool(notes) == (option.words is None)
    if option.words is not None:
        assert words[2:-3] == option.words(value_of(name) if option.has_value else "")
    if option.has_value:
        assert translated([f"{name}=5", "a"], WITH_VALUE)[0] == [*(option.words or (lambda _: []))("5"), "a"]


def test_none_of_them_is_ours_already() -> None:
    assert not set(OPTIONS) & set(PARSER._option_string_actions)


def test_a_value_that_looks_like_an_option_of_horovodrun() -> None:
    line = ["--chdir", "--verbose", "--", "python"]
    assert translated(line, WITH_VALUE)[0] == line


def test_it_is_honoured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTEPS_CONNECT_TIMEOUT_S", "1")  # and put back afterwards
    assert main(["-np", "2", "--start-timeout", "17", "--gloo", "--dry-run", "python", "train.py"]) == 0
    assert os.environ["BYTEPS_CONNECT_TIMEOUT_S"] == "17"  # which all processes inherit
    said = capsys.readouterr().err
    assert "--gloo of horovodrun does nothing here: there is one transport" in said


def test_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["-np", "2", "--timeline-filename", "t.json", "python", "train.py"])
    assert end.value.code == 2
    assert "--timeline-filename of horovodrun is not there" in capsys.readouterr().err
