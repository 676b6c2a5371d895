"""``BytePSExecutor``: runs a function in every rank of a job on a Ray cluster.

``start()`` reserves a placement group and starts an actor for every rank; ``run()`` is one job: it has a
scheduler, servers, an id and a secret of its own, which all end with it. The actors stay, with what functions
left in their memory, until ``shutdown()``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from byteps.errors import BytePSError, ConfigError, PeerLostError
from byteps.launcher import ray_bundles
from byteps.launcher.spec import LOOPBACK
from byteps.ray.actors import Rank, ServiceHost
from byteps.ray.places import Job, places, rank_environment, service_environment

__all__ = ["BytePSExecutor", "RankError"]

_GRACE_S = 10.0  # ranks that lost a peer say so within 2 s
_SERVICE_S = 10.0


# What nobody should miss by accident on some of the nodes.
_ALIKE = ("BYTEPS_ENCRYPT", "BYTEPS_SINGLE_PORT")


class RankError(BytePSError):
    """A rank failed: ``rank`` on ``host``. The cause is what it raised, or how its actor died."""

    def __init__(self, message: str, rank: int, host: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host


class BytePSExecutor:
    """Ranks on a Ray cluster.

    ``num_servers``: None for as many as needed, that is none on one node, else one on every node.
    ``strategy``: as Ray calls it; PACK puts ranks on few nodes, SPREAD on many.
    ``env``: environment variables for all ranks and servers; BYTEPS_ENCRYPT and
    BYTEPS_SINGLE_PORT are taken from the caller's own if they are not there.
    """

    def __init__(
        self,
        num_workers: int,
        num_servers: int | None = None,
        cpus_per_worker: float = 1,
        *,
        gpus_per_worker: float = 0,
        resources_per_worker: Mapping[str, float] | None = None,
        cpus_per_server: float = 1,
        strategy: str = "PACK",
        env: Mapping[str, str] | None = None,
        start_timeout_s: float = 300.0,
    ) -> None:
        if num_workers < 1 or (num_servers is not None and num_servers < 0):
            raise ConfigError(
                f"num_workers={num_workers}, num_servers={num_servers}: expected at least 1, and 0"
            )
        self.num_workers = num_workers
        self.num_servers = num_servers
        self._bundle = {"CPU": cpus_per_worker, "GPU": gpus_per_worker, **(resources_per_worker or {})}
        self._bundle = {name: amount for name, amount in self._bundle.items() if amount}
        self._cpus_per_server = cpus_per_server
        self._strategy = strategy
        own = {name: os.environ[name] for name in _ALIKE if os.environ.get(name)}
        self._env = own | dict(env or {})
        self._start_timeout_s = start_timeout_s
        self._group: Any = None
        self._ranks: list[Any] = []
        self._services: list[Any] = []  # a scheduler and servers, or nobody
        self._hosts: list[tuple[str, str]] = []
        self._broken = ""

    def __enter__(self) -> BytePSExecutor:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.shutdown()

    def start(self) -> None:
        """Reserve resources and start the actors; connects to the cluster if this process is not."""
        if self._group is not None:
            return
        ray_bundles.connect()
        import ray

        server = {"CPU": self._cpus_per_server} if self._cpus_per_server else {"CPU": 0.001}
        bundles = [self._bundle or {"CPU": 0.001}] * self.num_workers + [server] * (self.num_servers or 0)
        self._group = ray_bundles.reserve(bundles, self._strategy, self._start_timeout_s)
        options = {
            "num_cpus": self._bundle.get("CPU", 0),
            "num_gpus": self._bundle.get("GPU", 0),
            "resources": {k: v for k, v in self._bundle.items() if k not in ("CPU", "GPU")},
        }
        actor = ray.remote(Rank)
        try:
            self._ranks = [
                actor.options(**options, scheduling_strategy=ray_bundles.on_bundle(self._group, k)).remote()
                for k in range(self.num_workers)
            ]
            self._hosts = ray.get(
                [rank.where.remote() for rank in self._ranks], timeout=self._start_timeout_s
            )
            self._services = self._service_actors()
        except BaseException:
            self.shutdown()
            raise
        self._broken = ""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call ``fn(*args, **kwargs)`` in every rank; returns the results in the order of ranks.

        The function calls ``byteps.init()`` itself; the membership ends with it. When one rank fails, the
        others are told, and ``RankError`` names the first; if they did not end by themselves, ``start()``
        must be called again.
        """
        import ray

        if self._group is None:
            raise ConfigError(
                "run: the executor is not started; call start() first, or use it in a with block"
            )
        if self._broken:
            raise ConfigError(f"run: {self._broken}; call shutdown() and start() again")
        found, sizes = places([node for node, _ in self._hosts])
        order = sorted(range(self.num_workers), key=lambda actor: found[actor].rank)
        first = order[0]
        services = self._services
        servers = max(0, len(services) - 1)
        master_port, root_port, listen_fd = ray.get(
            self._ranks[first].reserve.remote(listen=not servers and self.num_workers > 1)
        )
        try:
            root = ray.get(services[0].listen.remote()) if services else (LOOPBACK, root_port)
            job = Job(
                sizes=tuple(sizes),
                servers=servers,
                root_uri=root[0],
                root_port=root[1],
                master_addr=self._hosts[first][1],
                master_port=master_port,
                job_id=secrets.token_hex(8),
                secret=secrets.token_hex(32),
            )
            roles = ["scheduler", *["server"] * servers]
            ray.get(
                [
                    service.start.remote(role, {**self._env, **service_environment(job, role)})
                    for role, service in zip(roles, services, strict=False)
                ]
            )
            calls = [
                self._ranks[actor].run.remote(
                    *(fn, list(args or ()), dict(kwargs or {})),
                    {**self._env, **rank_environment(job, found[actor])},
                    listen_fd if actor == first else -1,
                )
                for actor in order
            ]
            return self._gather(calls, order)
        finally:
            self._end_services()

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """``run`` in the background: returns a ``concurrent.futures.Future`` of its results."""
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(1, thread_name_prefix="byteps-ray-run")
        try:
            return pool.submit(self.run, fn, args, kwargs)
        finally:
            pool.shutdown(wait=False)

    def shutdown(self) -> None:
        """End the actors and give the resources back; fine to call twice."""
        if self._group is None:
            return
        import ray
        from ray.util.placement_group import remove_placement_group

        group, actors = self._group, [*self._ranks, *self._services]
        self._group, self._ranks, self._services, self._hosts = None, [], [], []
        if ray.is_initialized():
            for actor in actors:
                ray.kill(actor)
            remove_placement_group(group)

    # ---- parts

    def _servers(self, sizes: Sequence[int]) -> int:
        if self.num_servers is None:
            return len(sizes) if len(sizes) > 1 else 0
        if not self.num_servers and len(sizes) > 1:
            raise ConfigError(
                f"start: Ray has put the ranks on {len(sizes)} nodes, which need servers; set num_servers "
                "to 1 or more or to None, or strategy to STRICT_PACK"
            )
        return self.num_servers

    def _service_actors(self) -> list[Any]:
        """A scheduler beside rank 0; servers on bundles of their own, or beside the first rank of a node."""
        import ray

        found, sizes = places([node for node, _ in self._hosts])
        servers = self._servers(sizes)
        if not servers:
            return []
        actor = ray.remote(ServiceHost)
        heads = [next(k for k, place in enumerate(found) if place.machine == m) for m in range(len(sizes))]
        own = range(self.num_workers, self.num_workers + servers)
        bundles = [heads[0], *(own if self.num_servers else heads)]
        cpus = [0.0, *[self._cpus_per_server if self.num_servers else 0.0] * servers]
        return [
            actor.options(
                num_cpus=cpu, scheduling_strategy=ray_bundles.on_bundle(self._group, bundle)
            ).remote()
            for bundle, cpu in zip(bundles, cpus, strict=True)
        ]

    def _gather(self, calls: list[Any], order: Sequence[int]) -> list[Any]:
        """All results, or the first failure once the others have ended."""
        import ray

        waiting: list[Any] = list(calls)
        failures: list[RankError] = []
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1, timeout=_GRACE_S if failures else None)
            if not done:
                break
            for call in done:
                try:
                    ray.get(call)
                except Exception as error:
                    failures.append(self._failure(calls.index(call), order, error))
        if not failures:
            return list(ray.get(calls))
        for call in waiting:
            ray.kill(self._ranks[order[calls.index(call)]])
        if waiting:
            self._broken = "ranks that did not end after a failure were killed"
        # Who only lost a peer may be heard before that peer.
        raise next((each for each in failures if not isinstance(each.__cause__, PeerLostError)), failures[0])

    def _failure(self, rank: int, order: Sequence[int], error: Exception) -> RankError:
        import ray.exceptions

        host = self._hosts[order[rank]][1]
        if isinstance(error, ray.exceptions.RayTaskError):
            cause: BaseException = getattr(error, "cause", None) or error
            message = f"rank {rank} on {host} raised {type(cause).__name__}: {cause}"
        else:
            cause = error
            self._broken = f"the actor of rank {rank} has died"
            message = f"rank {rank} on {host}: its actor died: {' '.join(str(error).split())[:400]}"
        failure = RankError(message, rank, host)
        failure.__cause__ = error if cause is error else cause
        return failure

    def _end_services(self) -> None:
        import ray

        try:
            ray.get([service.wait.remote(_SERVICE_S) for service in self._services], timeout=3 * _SERVICE_S)
        except Exception as error:
            self._broken = f"a scheduler or server could not be ended: {type(error).__name__}"
