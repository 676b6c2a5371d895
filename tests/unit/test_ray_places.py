"""Ranks of actors, from the nodes on which Ray has put them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from byteps.config import load
from byteps.ray.places import Job, places, rank_environment, service_environment

NODES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


@given(NODES)
def test_ranks_are_a_numbering_and_those_of_a_node_follow_each_other(nodes: list[str]) -> None:
    found, sizes = places(nodes)
    assert sorted(place.rank for place in found) == list(range(len(nodes)))
    assert sum(sizes) == len(nodes) and found[0].rank == 0
    for node in set(nodes):
        own = [place for place, name in zip(found, nodes, strict=True) if name == node]
        assert len({place.machine for place in own}) == 1
        assert [place.local_rank for place in own] == list(range(len(own)))
        assert [place.rank - own[0].rank for place in own] == list(range(len(own)))


@given(NODES, st.integers(0, 3))
def test_every_environment_is_without_contradictions(nodes: list[str], servers: int) -> None:
    found, sizes = places(nodes)
    servers = max(servers, int(len(sizes) > 1))
    job = Job(tuple(sizes), servers, "10.0.0.1", 9000, "10.0.0.1", 9001, "id", "s3cret")
    for place in found:
        env = rank_environment(job, place)
        config = load(env)
        config.check()
        assert env["RANK"] == str(place.rank) and config.warnings == ()
        assert config.launch_id == "id"
    if servers:
        for role in ("scheduler", "server"):
            config = load(service_environment(job, role))
            config.require_distributed()
            assert config.launch_id == "id"
