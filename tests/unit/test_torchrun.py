"""Processes that torchrun has started, in the words of our own launcher; and ranks that met at a store."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from byteps.config import load
from byteps.errors import ConfigError
from byteps.torch.process_group import agree
from byteps.torch.process_group.agree import place
from byteps.worker import current
from byteps.worker.torchrun import adopted


def started(rank: int, size: int, local_size: int, **more: str) -> dict[str, str]:
    """What torchrun sets."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank % local_size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(rank // local_size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        **more,
    }


def test_one_machine_is_a_job_without_servers() -> None:
    configs = []
    for rank in range(3):
        environ = started(rank, 3, 3)
        config = load({**environ, **adopted(environ)})
        config.check()
        assert config.serverless and config.warnings == ()
        assert (config.local_rank, config.local_size) == (rank, 3)
        configs.append(config)
    assert len({(config.root_uri, config.root_port, config.job_id) for config in configs}) == 1
    assert 10_000 <= configs[0].root_port < 29_000


def test_a_restart_and_another_job_have_other_ports() -> None:
    ports = [
        adopted(started(0, 2, 2, **more))["DMLC_PS_ROOT_PORT"]
        for more in ({}, {"TORCHELASTIC_RESTART_COUNT": "1"}, {"MASTER_PORT": "29501"})
    ]
    assert len(set(ports)) == 3


def test_what_is_set_stays() -> None:
    environ = started(1, 2, 2, DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT="4711", BYTEPS_JOB_ID="own")
    config = load({**environ, **adopted(environ)})
    assert (config.root_port, config.job_id, config.local_rank) == (4711, "own", 1)


def test_several_machines_need_servers() -> None:
    with pytest.raises(ConfigError) as caught:
        adopted(started(3, 4, 2))
    for word in ("2 machines", "DMLC_PS_ROOT_URI", "DMLC_NUM_SERVER", "bpslaunch"):
        assert word in str(caught.value)
    named = {"DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9000", "DMLC_NUM_SERVER": "1"}
    environ = started(3, 4, 2, **named)
    config = load({**environ, **adopted(environ)})
    config.check()
    assert (config.num_worker, config.worker_id, config.local_rank, config.root_uri) == (2, 1, 1, "10.0.0.1")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "2"},  # of some other launcher, which says nothing of the machine
        started(0, 1, 1),
        started(0, 2, 2, BYTEPS_LOCAL_SIZE="2", BYTEPS_LOCAL_RANK="0"),  # under bpslaunch
    ],
    ids=["nothing", "half of it", "alone", "bpslaunch"],
)
def test_nothing_is_adopted(environ: dict[str, str]) -> None:
    assert adopted(environ) == {}


def test_a_wrong_number_is_named() -> None:
    with pytest.raises(ConfigError, match="LOCAL_RANK='x'"):
        adopted(started(0, 2, 2, LOCAL_RANK="x"))


def test_places_of_ranks_that_met_at_a_store() -> None:
    places = [place(["b", "a", "b"], rank) for rank in range(3)]
    names = ("DMLC_WORKER_ID", "BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE", "BYTEPS_GLOBAL_RANK")
    assert [[each[name] for name in names] for each in places] == [
        ["0", "0", "2", "0"],
        ["1", "0", "1", "1"],
        ["0", "1", "2", "2"],
    ]
    assert {each["DMLC_NUM_WORKER"] for each in places} == {"2"}


def test_ranks_on_several_machines_are_told_to_start_servers() -> None:
    store = dist.HashStore()
    store.set("byteps/machine/1", "elsewhere")
    with pytest.raises(ConfigError, match=r"init_process_group.* 2 machines.*DMLC_NUM_SERVER"):
        agree.membership(store, 0, 2)
    assert current.session is None


def test_a_membership_of_another_job_is_refused() -> None:
    current.init()
    try:
        with pytest.raises(ConfigError, match=r"rank 1 of 2, byteps says rank 0 of 1.*torchrun"):
            agree.membership(dist.HashStore(), 1, 2)
    finally:
        current.shutdown()
