"""Every command of docs/launching.md, docs/kubernetes.md and bpslaunch --help is understood, as a dry run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from byteps.launcher import cli
from byteps.launcher.help import EXAMPLES

ROOT = Path(__file__).parents[2]
# A task that srun has started, for commands that expect one.
TASK = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-5]",
    "SLURM_STEP_TASKS_PER_NODE": "8(x5)",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
}


def commands() -> list[str]:
    found = []
    for name in ("launching", "kubernetes"):
        text = (ROOT / "docs" / f"{name}.md").read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.S):
            found += block.splitlines()
        found += [
            command
            for command in re.findall(r"`([^`\n]*bpslaunch [^`\n]*)`", text)
            if not re.search(r"\.\.\.|COMMAND", command)
        ]
    found += [re.sub(r" {3,}.*", "", line.strip()) for line in EXAMPLES.splitlines() if line.startswith("  ")]
    return [line for line in dict.fromkeys(found) if "bpslaunch" in line]


def test_there_are_commands_for_every_way() -> None:
    text = "\n".join(commands())
    for word in (
        "-n 4",
        "-H ",
        "--hostfile",
        "-WH",
        "--slurm",
        "--ray",
        "--k8s",
        "--nnodes",
        "DMLC_ROLE=server",
    ):
        assert word in text, word
    assert len(commands()) > 30


@pytest.mark.parametrize("line", commands())
def test_a_command_is_understood(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("hosts", "workers", "servers"):
        (tmp_path / name).write_text("node1\nnode2\n")
    words = shlex.split(line, comments=True)
    if "--wrap" in words:
        words = shlex.split(words[words.index("--wrap") + 1])
    before = [word for word in words[: words.index("bpslaunch")] if re.match(r"[A-Z_]+=", word)]
    args = words[words.index("bpslaunch") + 1 :]
    if args == ["--help"]:
        return
    given = {"DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9000", "DMLC_NUM_WORKER": "2"}
    given |= {"DMLC_NUM_SERVER": "1"}
    environ = dict(word.split("=", 1) for word in before)
    if "DMLC_ROLE" in environ and "DMLC_NUM_WORKER" not in environ:
        environ = {**given, **environ}
    if "--slurm" in args:
        environ |= TASK
    if "WANDB_API_KEY" in args:
        environ["WANDB_API_KEY"] = "key"
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    args = args[: args.index(">")] if ">" in args else args
    assert cli.main(["--dry-run", *args]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    if "--k8s" not in args and "DMLC_ROLE" not in environ:
        assert "python train.py" in shown or "[scheduler]" in shown
    assert "key" not in re.findall(r"WANDB_API_KEY=(\S+)", shown)
