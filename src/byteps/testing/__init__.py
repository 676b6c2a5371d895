"""Whole jobs on this machine for tests: real processes, deadlines, results, and nothing left behind.

    from byteps.testing import cluster

    def mean(value):
        import byteps as bps, numpy as np
        bps.init()
        return float(bps.push_pull(np.array([value + bps.rank()]), name="x")[0])

    def test_mean():
        with cluster(mean, workers=2, servers=1, args=(1.0,)) as job:
            assert job.wait() == [1.5, 1.5]

``exact`` has tensors whose sums show who was counted and how often.
"""

from __future__ import annotations

from byteps.testing.cluster import Cluster, ClusterError, cluster
from byteps.testing.process import Process
from byteps.testing.report import report

__all__ = ["Cluster", "ClusterError", "Process", "cluster", "report"]
