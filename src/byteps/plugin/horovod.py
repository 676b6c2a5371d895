"""What scripts ask Horovod about itself, answered for this library; the same in every framework.

Nothing here touches a tensor. docs/horovod.md has the table of all names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from byteps.errors import BytePSError, ConfigError
from byteps.plugin.reductions import ReduceOp, chosen
from byteps.worker import current

__all__ = [
    "HorovodInternalError",
    "ProcessSet",
    "add_process_set",
    "ccl_built",
    "check_process_set",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "not_here",
    "optimizer_options",
    "remove_process_set",
    "rocm_built",
    "start_timeline",
    "stop_timeline",
]

HorovodInternalError = BytePSError  # what an operation raises that cannot be completed


def cross_rank() -> int:
    """The number of this rank's machine."""
    return current.required("cross_rank").config.worker_id or 0


def cross_size() -> int:
    """The number of worker machines."""
    return current.required("cross_size").config.num_worker


def is_homogeneous() -> bool:
    """True when every machine has as many ranks as this one, as far as their sum tells."""
    session = current.required("is_homogeneous")
    return session.size == session.local_size * session.config.num_worker


# Bytes travel over this library's own connections and through shared memory, whatever else is installed.


def mpi_threads_supported() -> bool:
    """False: MPI is not used. Operations may be started from any thread."""
    return False


def mpi_enabled() -> bool:
    """False: MPI is not used."""
    return False


def mpi_built() -> bool:
    """False: MPI is not used."""
    return False


def gloo_enabled() -> bool:
    """False: nothing of this surface goes through Gloo."""
    return False


def gloo_built() -> bool:
    """False: nothing of this surface goes through Gloo."""
    return False


def nccl_built() -> int:
    """0: NCCL is used through ``torch.distributed`` only, where a machine has several GPUs."""
    return 0


def ddl_built() -> bool:
    """False: DDL is not used."""
    return False


def ccl_built() -> bool:
    """False: oneCCL is not used."""
    return False


def cuda_built() -> bool:
    """False: the core is not built against CUDA. Tensors on a GPU work all the same."""
    return False


def rocm_built() -> bool:
    """False: the core is not built against ROCm."""
    return False


class ProcessSet:
    """Some ranks of the job. An operation here is one of the whole job: ``global_process_set`` is the one."""

    def __init__(self, ranks: Sequence[int] | None = None) -> None:
        self.ranks = None if ranks is None else sorted(ranks)
        self.process_set_id = 0 if ranks is None else None

    def rank(self) -> int:
        """This rank's number in the set of all."""
        return current.required("ProcessSet.rank").rank

    def size(self) -> int:
        """The number of ranks in it."""
        return current.required("ProcessSet.size").size if self.ranks is None else len(self.ranks)

    def included(self) -> bool:
        """True when this rank is in it."""
        return self.ranks is None or current.required("ProcessSet.included").rank in self.ranks

    def __repr__(self) -> str:
        return f"ProcessSet({'' if self.ranks is None else self.ranks})"


global_process_set = ProcessSet()


def check_process_set(verb: str, process_set: object) -> None:
    """ConfigError unless ``process_set`` is all ranks."""
    if process_set is None or process_set is global_process_set:
        return
    session = current.session
    ranks = getattr(process_set, "ranks", ())
    if session is not None and ranks == list(range(session.size)):
        return
    raise ConfigError(
        f"{verb}: process_set={process_set!r}: an operation here is one of all ranks; for some of them use "
        "torch.distributed.new_group() with the backend byteps or gloo"
    )


def add_process_set(process_set: Any) -> ProcessSet:
    """The set, if it is that of all ranks; ConfigError for a smaller one."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(list(process_set))
    check_process_set("add_process_set", added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """False, as for every set that was not added: there are none besides the global one."""
    return False


def optimizer_options(
    op: ReduceOp, predivide_factor: float, num_groups: int, groups: object, process_set: object
) -> bool:
    """Looks at what Horovod's optimizers take besides ours; True when gradients are to be averaged.

    Factors that divide before and multiply after a sum, and groups of gradients, are there for rings: neither
    changes what comes out here, so they are checked and no more.
    """
    verb = "DistributedOptimizer"
    check_process_set(verb, process_set)
    how = chosen(verb, op)
    if not how.is_push_pull:
        raise ConfigError(f"{verb}: op={how.value}, expected Average or Sum")
    if not isinstance(predivide_factor, (int, float)) or not predivide_factor > 0:
        raise ConfigError(f"{verb}: gradient_predivide_factor={predivide_factor!r}, expected more than 0")
    if predivide_factor != 1.0 and how is not ReduceOp.AVERAGE:
        raise ConfigError(f"{verb}: gradient_predivide_factor is for op=Average, and op is {how.value}")
    if not isinstance(num_groups, int) or num_groups < 0:
        raise ConfigError(f"{verb}: num_groups={num_groups!r}, expected a whole number of 0 or more")
    if groups is not None and not isinstance(groups, (int, list, tuple)):
        raise ConfigError(f"{verb}: groups={groups!r}, expected a list of lists of parameters, or a number")
    return how is ReduceOp.AVERAGE


def start_timeline(file_path: str, mark_cycles: bool = False) -> NoReturn:
    """Refused: traces are of whole steps, and chosen before the job starts."""
    raise not_here("start_timeline", "bpslaunch --trace DIR, or BYTEPS_TRACE_ON=1, records steps of a job")


def stop_timeline() -> NoReturn:
    """Refused: nothing was started."""
    raise not_here("stop_timeline", "BYTEPS_TRACE_END_STEP ends a trace")


def not_here(name: str, remedy: str) -> ConfigError:
    """The refusal of something that Horovod has."""
    return ConfigError(f"{name} is not there: {remedy}; docs/horovod.md has the table of all names")
