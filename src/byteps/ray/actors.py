"""What runs inside Ray's actors: a rank, and a scheduler or server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteps.worker.services import Service

__all__ = ["Rank", "ServiceHost"]


def _here() -> tuple[str, str]:
    import ray

    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()


class Rank:
    """One rank of every run, in one process."""

    def __init__(self) -> None:
        self._master: socket.socket | None = None

    def where(self) -> tuple[str, str]:
        """Identity and address of this node."""
        return _here()

    def reserve(self, *, listen: bool) -> tuple[int, int, int]:
        """A port for torch.distributed; for a job without servers a scheduler's port and descriptor too."""
        from byteps.launcher import here

        if self._master is not None:
            self._master.close()
        self._master = here.reserve()
        port = self._master.getsockname()[1]
        if not listen:
            return port, 0, -1
        sock = here.bind()
        return port, sock.getsockname()[1], sock.detach()

    def run(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        env: Mapping[str, str],
        listen_fd: int,
    ) -> Any:
        """Call the function as a member of the job that ``env`` describes, and leave that job."""
        from byteps.worker import current

        os.environ.update(env)
        os.environ.pop("BYTEPS_LISTEN_FD", None)
        if listen_fd >= 0:
            os.environ["BYTEPS_LISTEN_FD"] = str(listen_fd)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"  # so that the others are told
            current.shutdown(for_good=True, fatal=why)
            raise
        current.shutdown(for_good=True)
        return result


class ServiceHost:
    """A scheduler or server, as a process of its own: it must not wait for a GIL."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._service: Service | None = None

    def listen(self) -> tuple[str, int]:
        """Take a port for a scheduler; returns where it can be reached."""
        own = _here()[1]
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        self._socket = socket.create_server(("", 0), family=family, backlog=1024)
        return own, self._socket.getsockname()[1]

    def start(self, role: str, env: Mapping[str, str]) -> int:
        """Start it; it ends with the job, and if this actor dies before the job has formed."""
        from byteps.worker import services

        fds: tuple[int, ...] = ()
        environ = {**os.environ, **env}
        environ.pop(services.LISTEN_FD, None)
        if self._socket is not None:
            fds = (self._socket.detach(),)
            self._socket = None
            environ[services.LISTEN_FD] = str(fds[0])
        command = services.Command(role, (sys.executable, "-m", f"byteps.{role}"), environ, fds)
        self._service = services.spawn(command)
        return self._service.process.pid

    def wait(self, timeout_s: float) -> None:
        """Until it has ended; one that does not end is ended."""
        if self._service is None:
            return
        process = self._service.process
        for end in (process.terminate, process.kill, lambda: None):
            try:
                process.wait(timeout_s)
                break
            except subprocess.TimeoutExpired:
                end()
        self._service.line.close()
        self._service = None
