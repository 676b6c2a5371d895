"""The group of a machine: its ranks meet, share memory, and reduce among themselves."""

from __future__ import annotations

import os

from byteps import _core
from byteps.config import Config
from byteps.control.hello import job_number
from byteps.control.machines import gathering
from byteps.control.meeting import Meeting, attend, socket_path
from byteps.control.messages import View
from byteps.observe.logging import logger
from byteps.worker.arena import process_arena
from byteps.worker.spinning import spin_ns

__all__ = ["Machine"]


class Machine:
    """One rank's part in forming the group of its machine; made before it registers."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.shared = config.grouped and config.local_size > 1
        self._meeting: Meeting | None = None
        if self.shared:
            job, root = job_number(config.job_id), f"{config.root_uri}:{config.root_port}"
            self._path = socket_path(config.socket_path, job, root, config.worker_id or 0)
            if config.local_rank == 0:
                self._meeting = Meeting(self._path)

    async def form(self, view: View) -> _core.LocalGroup | None:
        """The group, when all ranks of the machine have come; None for a machine of one."""
        if not self.shared:
            return None
        own = view.workers()[view.rank]
        members = [worker for worker in view.workers() if worker.worker_id == own.worker_id]
        ranks = [worker.rank for worker in sorted(members, key=lambda worker: worker.local_rank)]
        arena = process_arena()
        number = gathering(view)
        if self._meeting is not None:
            met = await self._meeting.hold(own.local_size, number, arena)
        else:
            met = await attend(self._path, own.local_rank, own.local_size, number, arena)
        if not met.readable:
            logger.info("the kernel forbids reading the memory of other ranks: tensors go through the arena")
        return _core.LocalGroup(
            own.local_rank,
            ranks,
            view.size,
            met.board_fd,
            arena,
            met.arena_fds,
            met.pids,
            met.readable,
            bool(view.servers()),
            spin_ns(own.local_size, len(os.sched_getaffinity(0)), os.cpu_count() or 1),
        )

    def close(self) -> None:
        """Nothing is left in the file system; fine to call twice."""
        if self._meeting is not None:
            self._meeting.close()
