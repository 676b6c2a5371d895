"""Agents in actors of Ray, and connections to them that look to the launcher like those of ssh."""

from __future__ import annotations

import argparse
import os
import selectors
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from byteps.launcher import frames, ray_bundles
from byteps.launcher.agent_connection import AgentConnection
from byteps.launcher.layout import Layout
from byteps.launcher.output import Lines
from byteps.observe.text import clean

__all__ = ["AgentHost", "RayHosts"]

_READ_BYTES = 1 << 18
_NODE_S = 60.0


class AgentHost:
    """In an actor: an agent and its pipes. When the actor dies, the agent's input ends, and all it has."""

    def __init__(self, python: str) -> None:
        self._agent = subprocess.Popen(
            (python, "-m", "byteps.launcher.agent"),
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )

    def address(self) -> str:
        """Of this node."""
        import ray

        return str(ray.util.get_node_ip_address())

    def write(self, data: bytes) -> None:
        """To the agent; an empty message closes its input."""
        assert self._agent.stdin is not None
        try:
            if data:
                self._agent.stdin.write(data)
            else:
                self._agent.stdin.close()
        except (BrokenPipeError, ValueError):
            pass  # its end is noticed by reading

    def read(self) -> bytes:
        """From the agent, as soon as there is something; empty at its end."""
        assert self._agent.stdout is not None
        return os.read(self._agent.stdout.fileno(), _READ_BYTES)


class RayHosts:
    """A placement group with an agent on every bundle."""

    def __init__(self, args: argparse.Namespace, layout: Layout, nproc: int, python: str) -> None:
        """``BytePSError`` when there is no cluster, or not enough of it."""
        ray_bundles.connect(args.ray_address or "auto", log_to_driver=False, logging_level="ERROR")
        import ray

        worker = {"CPU": args.cpus_per_worker * nproc, "GPU": args.gpus_per_worker * nproc}
        server = {"CPU": args.cpus_per_server, "GPU": 0.0}
        wanted = [worker] * len(layout.workers) + [server] * len(layout.servers)
        bundles = [{k: v for k, v in each.items() if v} or {"CPU": 0.001} for each in wanted]
        self._group = ray_bundles.reserve(bundles, args.ray_strategy, args.ray_timeout)
        # Each in its own order, and neither waits for the other.
        actor = ray.remote(concurrency_groups={"write": 1, "read": 1})(AgentHost)
        self._actors = {
            host.key: actor.options(
                num_cpus=each["CPU"],
                num_gpus=each["GPU"],
                scheduling_strategy=ray_bundles.on_bundle(self._group, k),
            ).remote(python)
            for k, ((host, _), each) in enumerate(
                zip((*layout.workers, *layout.servers), wanted, strict=True)
            )
        }
        found = ray.get([each.address.remote() for each in self._actors.values()], timeout=_NODE_S)
        self.addresses: dict[str, str] = dict(zip(self._actors, found, strict=True))
        self.labels = {key: f"@{address}" for key, address in self.addresses.items()}

    def connect(self, key: str, places: Sequence[int]) -> AgentConnection:
        """A connection to the agent of a bundle."""
        return _RayAgent(f"{key} on {self.addresses[key]}", places, self._actors[key])

    def close(self) -> None:
        """Give everything back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors.values():
            ray.kill(actor)
        remove_placement_group(self._group)
        ray.shutdown()


class _RayAgent(AgentConnection):
    """A thread in place of a process: it writes what the agent says into a pipe."""

    def __init__(self, name: str, places: Sequence[int], actor: Any) -> None:
        self.name = name
        self.places = list(places)
        self.own = frozenset(places)
        self.hello: frames.Hello | None = None
        self.started = False
        self.said: list[str] = []
        self.pid = 0
        self.closed = False
        self._actor = actor
        self._frames = frames.Frames(frames.FromAgent, marked=True)
        self._lines = Lines()
        self.out, write = os.pipe()
        self.err, self._err_write = os.pipe()  # nothing comes from here: the agent has one stream
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
        threading.Thread(target=self._carry, args=(write,), daemon=True).start()

    def _carry(self, write: int) -> None:
        """What the agent says, until its end or that of its actor."""
        import ray

        try:
            while data := ray.get(self._actor.read.options(concurrency_group="read").remote()):
                while data:
                    data = data[os.write(write, data) :]
        except Exception as error:
            self.said.append(clean(str(error), 300))
        finally:
            os.close(write)

    def send(self, message: frames.ToAgent, selector: selectors.BaseSelector) -> None:
        """Messages keep their order: one thread of the actor takes them."""
        if not self.closed:
            self._actor.write.options(concurrency_group="write").remote(frames.encode(message))

    def hang_up(self, selector: selectors.BaseSelector) -> list[str]:
        """Close the connection."""
        if self.closed:
            return []
        self.closed = True
        self._actor.write.options(concurrency_group="write").remote(b"")
        for fd in (self.out, self.err):
            if fd in selector.get_map():
                selector.unregister(fd)
            os.close(fd)
        os.close(self._err_write)
        return []

    def code(self) -> int | None:
        """Ray does not tell one."""
        return None
