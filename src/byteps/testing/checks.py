"""Checks that run one after the other in one job: starting a job for each would take most of the time.

A suite is a ``Checks``. Its functions are added by decoration; the ranks of a job run all of them and tell
how each one ended, and a test looks at one of them on all ranks::

    check = Checks()

    @check
    def sums_are_exact() -> None: ...

    def rank() -> dict[str, str]:          # in the job
        byteps.init()
        return check.run(byteps.barrier)

    @pytest.mark.parametrize("name", check)
    def test_it(name: str) -> None:        # in pytest
        require(outcomes_of(rank, workers=2, servers=1), name)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from byteps.testing.cluster import ClusterError, cluster

__all__ = ["OK", "Checks", "outcome", "outcomes_of", "require"]

OK = "ok"
Function = TypeVar("Function", bound=Callable[..., None])
Outcomes = dict[str, str]


class Checks(dict[str, Callable[..., None]]):
    """The checks of one suite by name, in the order in which they were written."""

    def __call__(self, function: Function) -> Function:
        """Add a check."""
        name = function.__name__
        if name in self:
            raise ValueError(f"two checks have the name {name}")
        self[name] = function
        return function

    def run(self, enter: Callable[[], object], *arguments: Any) -> Outcomes:
        """The outcome of every check. ``enter``: before each, so that ranks come to it together."""
        outcomes = {}
        for name, function in self.items():
            enter()  # also when the last one failed on some of the ranks
            outcomes[name] = outcome(function, *arguments)
        return outcomes


def outcome(function: Callable[..., None], *arguments: Any) -> str:
    """``OK``, or the traceback."""
    try:
        function(*arguments)
    except Exception:
        return traceback.format_exc()
    return OK


def outcomes_of(rank: Callable[..., Outcomes], **job: Any) -> list[Outcomes] | ClusterError:
    """What every rank of a job says; tests keep it, so that all of them look at one run."""
    with cluster(rank, **job) as running:
        try:
            return running.wait()
        except ClusterError as error:
            return error


def require(found: list[Outcomes] | ClusterError, name: str) -> None:
    """Fail unless this check went well on every rank."""
    if isinstance(found, ClusterError):
        raise AssertionError(str(found))
    for rank, outcomes in enumerate(found):
        assert outcomes[name] == OK, f"rank {rank}: {outcomes[name]}"
