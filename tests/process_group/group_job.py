"""The program that every rank runs: all checks, and the outcome of each into a file of its own.

    bpslaunch -n 2 python group_job.py FOLDER group_push_pull_checks group_gloo_checks
    torchrun --nproc-per-node 2 group_job.py FOLDER group_training_checks

It does not import byteps before it asks for the backend by name.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main(folder: Path, modules: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("byteps")
    for module in modules:
        importlib.import_module(module)  # adds its checks
    from group_suite import Context, check

    rank, size = dist.get_rank(), dist.get_world_size()
    outcomes = check.run(dist.barrier, Context(rank, size, folder))
    (folder / f"outcomes.{rank}.json").write_text(json.dumps(outcomes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
