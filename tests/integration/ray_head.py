"""A Ray cluster of two nodes on this machine; prints its address and ends with its input."""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

SMALL = {"object_store_memory": 80_000_000, "include_dashboard": False}
cluster = Cluster(head_node_args={**SMALL, "num_cpus": 8}, initialize_head=True)
cluster.add_node(num_cpus=4, object_store_memory=80_000_000)
print("address", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
