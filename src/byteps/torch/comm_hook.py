"""A communication hook for PyTorch's own DistributedDataParallel: each bucket of gradients is push-pulled.

    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(bps.CommHookState(), bps.push_pull_hook)

DDP and its process group stay as they are; only the gradients travel by another way.
"""

# No annotations from the future here: DDP reads those of the hook, and wants classes and not their names.
import itertools
from collections.abc import Mapping

import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future

from byteps.errors import ConfigError
from byteps.torch import completion
from byteps.torch.ops import push_pull_async_inplace
from byteps.worker import current
from byteps.worker.tensors import codec_of

__all__ = ["CommHookState", "push_pull_hook"]

_numbers = itertools.count()


class CommHookState:
    """What the hook of one model needs; joins the job if this process has not done so.

    ``compression_params`` are those of ``push_pull``. ``name`` begins the names of the buckets; without one,
    models are numbered in the order in which their states are made, which must be the same on all ranks.
    """

    def __init__(
        self, compression_params: Mapping[str, object] | None = None, name: str | None = None
    ) -> None:
        codec_of(compression_params)  # says what is wrong with it now, not in the middle of a backward pass
        current.init()
        session = current.required("CommHookState")
        ranks = dist.get_world_size() if dist.is_initialized() else session.size
        if ranks != session.size:
            raise ConfigError(
                f"CommHookState: torch.distributed has {ranks} ranks, byteps has {session.size}; start the "
                "program with bpslaunch or torchrun, or use init_process_group('byteps')"
            )
        self.compression_params = compression_params
        self.name = f"DDP.{next(_numbers)}" if name is None else name


def push_pull_hook(state: CommHookState, bucket: GradBucket) -> Future[Tensor]:
    """The average of a bucket over all ranks. For ``register_comm_hook``, with a ``CommHookState``.

    Buckets that DDP makes anew, of other sizes, are declared anew by their names.
    """
    session = current.required("push_pull_hook")
    handle = push_pull_async_inplace(
        bucket.buffer(),
        name=f"{state.name}.bucket.{bucket.index()}",
        compression_params=state.compression_params,
    )
    if not bucket.is_last():
        return completion.future(session, handle.wait)

    def wait_for_last() -> Tensor:
        result = handle.wait()
        session.steps.mark(state)
        return result

    return completion.future(session, wait_for_last)
