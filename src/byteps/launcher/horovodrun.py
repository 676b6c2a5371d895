"""The options of ``horovodrun`` on the command line of ``bpslaunch``: what each is here. Pure.

Each is another option or a variable here, or changes nothing and says why, or is refused by name. ``-np``,
``-H``, ``--hostfile``, ``--ssh-port`` and ``--version`` mean the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from byteps.errors import ConfigError

__all__ = ["OPTIONS", "Option", "translated"]


class Option(NamedTuple):
    """What becomes of one option; exactly one of the last three is set."""

    has_value: bool = False
    words: Callable[[str], list[str]] | None = None  # what is said here instead, given the value
    does_nothing: str = ""  # because
    refused: str = ""  # because, and what to do

    def text(self) -> str:
        """For a table."""
        if self.words is None:
            return f"refused: {self.refused}" if self.refused else f"does nothing: {self.does_nothing}"
        return "`" + " ".join(self.words("…")) + "`"


def _variable(name: str) -> Option:
    return Option(True, lambda value: ["--env", f"{name}={value}"])


def _switch(name: str, value: str) -> Option:
    return Option(False, lambda _: ["--env", f"{name}={value}"])


def _nothing(why: str, has_value: bool = False) -> Option:
    return Option(has_value, does_nothing=why)


def _refused(why: str, has_value: bool = False) -> Option:
    return Option(has_value, refused=why)


_NO_FUSION = "small tensors share a system call, and wait for nothing"
_NO_CACHE = "nothing is negotiated, so there is nothing to cache"
_GROUPS = "ranks of a machine always sum among themselves first"
_NO_TUNING = "nothing is tuned by trial"
_ONE_TRANSPORT = "there is one transport, TCP and shared memory"
_NO_MPI = "no mpirun is called; give variables with --env"
_NO_TIMELINE = "there is no timeline yet; bps doctor looks at a job"
_NO_ELASTIC = "a job keeps its members; start it with as many as there are"

OPTIONS: dict[str, Option] = {
    "--verbose": _switch("BYTEPS_LOG_LEVEL", "INFO"),
    "--log-level": Option(True, lambda value: ["--env", f"BYTEPS_LOG_LEVEL={value.upper()}"]),
    "--log-hide-timestamp": _switch("BYTEPS_LOG_HIDE_TIME", "1"),
    "--log-without-timestamp": _switch("BYTEPS_LOG_HIDE_TIME", "1"),
    "--log-with-timestamp": _switch("BYTEPS_LOG_HIDE_TIME", "0"),
    "--start-timeout": _variable("BYTEPS_CONNECT_TIMEOUT_S"),
    "--stall-check-warning-time-seconds": _variable("BYTEPS_STALL_WARN_S"),
    "--stall-check-shutdown-time-seconds": _variable("BYTEPS_OP_TIMEOUT_S"),
    "--network-interfaces": _variable("DMLC_INTERFACE"),
    "--network-interface": _variable("DMLC_INTERFACE"),
    "--output-filename": Option(True, lambda value: ["--log-dir", value]),
    "-hostfile": Option(True, lambda value: ["--hostfile", value]),
    "-p": Option(True, lambda value: ["--ssh-port", value]),
    "-i": Option(True, lambda value: ["--ssh", f"ssh -i {value}"]),
    "--ssh-identity-file": Option(True, lambda value: ["--ssh", f"ssh -i {value}"]),
    "--no-stall-check": _nothing("a wait always has an end and is always told"),
    "--stall-check": _nothing("a wait is always told"),
    "--gloo": _nothing(_ONE_TRANSPORT),
    "--mpi": _nothing(_ONE_TRANSPORT),
    "--tcp": _nothing(_ONE_TRANSPORT),
    "--gloo-timeout-seconds": _nothing(_ONE_TRANSPORT, True),
    "--mpi-threads-disable": _nothing(_ONE_TRANSPORT),
    "--no-mpi-threads-disable": _nothing(_ONE_TRANSPORT),
    "--num-nccl-streams": _nothing(_ONE_TRANSPORT, True),
    "--fusion-threshold-mb": _nothing(_NO_FUSION, True),
    "--cycle-time-ms": _nothing(_NO_FUSION, True),
    "--cache-capacity": _nothing(_NO_CACHE, True),
    "--disable-cache": _nothing(_NO_CACHE),
    "--hierarchical-allreduce": _nothing(_GROUPS),
    "--no-hierarchical-allreduce": _nothing(_GROUPS),
    "--hierarchical-allgather": _nothing(_GROUPS),
    "--no-hierarchical-allgather": _nothing(_GROUPS),
    "--torus-allreduce": _nothing(_GROUPS),
    "--no-torus-allreduce": _nothing(_GROUPS),
    "--autotune": _nothing(_NO_TUNING),
    "--no-autotune": _nothing(_NO_TUNING),
    "--autotune-log-file": _nothing(_NO_TUNING, True),
    "--autotune-warmup-samples": _nothing(_NO_TUNING, True),
    "--autotune-steps-per-sample": _nothing(_NO_TUNING, True),
    "--autotune-bayes-opt-max-samples": _nothing(_NO_TUNING, True),
    "--autotune-gaussian-process-noise": _nothing(_NO_TUNING, True),
    "--prefix-output-with-timestamp": _nothing(
        "every line already begins with its rank; --log-dir has files"
    ),
    "-prefix-timestamp": _nothing("every line already begins with its rank; --log-dir has files"),
    "--thread-affinity": _refused("BYTEPS_VISIBLE_CPU_CORES gives cores to ranks", True),
    "--binding-args": _refused("BYTEPS_VISIBLE_CPU_CORES gives cores to ranks", True),
    "--mpi-args": _refused(_NO_MPI, True),
    "--jsrun": _refused("LSF is not known; use -H with its hosts"),
    "--config-file": _refused("write its options on the command line", True),
    "--check-build": _refused("bps doctor looks at this machine"),
    "-cb": _refused("bps doctor looks at this machine"),
    "--timeline-filename": _refused(_NO_TIMELINE, True),
    "--timeline-mark-cycles": _refused(_NO_TIMELINE),
    "--no-timeline-mark-cycles": _refused(_NO_TIMELINE),
    "--min-np": _refused(_NO_ELASTIC, True),
    "--max-np": _refused(_NO_ELASTIC, True),
    "--min-num-proc": _refused(_NO_ELASTIC, True),
    "--max-num-proc": _refused(_NO_ELASTIC, True),
    "--host-discovery-script": _refused(_NO_ELASTIC, True),
    "--slots": _refused(_NO_ELASTIC, True),
    "--slots-per-host": _refused(_NO_ELASTIC, True),
    "--elastic-timeout": _refused(_NO_ELASTIC, True),
    "--reset-limit": _refused(_NO_ELASTIC, True),
    "--blacklist-cooldown-range": _refused(_NO_ELASTIC, True),
}


def translated(argv: Sequence[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """The words for ``bpslaunch``, and a line for each option that does nothing here.

    ``with_value`` are the options of bpslaunch that take one: so much is to be known to find the command,
    whose words are left alone.

    >>> translated(["-np", "2", "--verbose", "--gloo", "python", "a.py", "--verbose"], {"-np"})[0]
    ['-np', '2', '--env', 'BYTEPS_LOG_LEVEL=INFO', 'python', 'a.py', '--verbose']
    """
    words, notes, index = [], [], 0
    while index < len(argv):
        word = argv[index]
        if not word.startswith("-") or word == "--":
            break
        name, equals, value = word.partition("=")
        found = OPTIONS.get(name)
        index += 1
        if found is None:
            words.append(word)
            if name in with_value and not equals and index < len(argv):
                words.append(argv[index])
                index += 1
            continue
        if found.has_value and not equals:
            if index == len(argv):
                raise ConfigError(f"{name}: expected a value after it")
            value = argv[index]
            index += 1
        if found.refused:
            raise ConfigError(f"{name} of horovodrun is not there: {found.refused}")
        if found.words is not None:
            words += found.words(value)
        else:
            notes.append(f"{name} of horovodrun does nothing here: {found.does_nothing}")
    return [*words, *argv[index:]], notes
