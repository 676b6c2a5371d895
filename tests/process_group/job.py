"""The program that every rank runs: all checks, and the outcome of each into a file of its own.

    bpslaunch -n 2 python job.py FOLDER
    torchrun --nproc-per-node 2 job.py FOLDER

It does not import byteps before the backend is asked for by its name.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

OK = "ok"


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("byteps")
    assert "byteps.torch" in sys.modules

    import gloo_checks  # noqa: F401  (each adds its checks when it is loaded)
    import push_pull_checks  # noqa: F401
    import training_checks  # noqa: F401
    from suite import CHECKS, Context

    rank, size = dist.get_rank(), dist.get_world_size()
    outcomes = {}
    for name, run in CHECKS.items():
        dist.barrier()  # ranks enter a check together even when the last one failed on some of them
        try:
            run(Context(rank, size, folder))
            outcomes[name] = OK
        except Exception:
            outcomes[name] = traceback.format_exc()
    (folder / f"outcomes.{rank}.json").write_text(json.dumps(outcomes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
