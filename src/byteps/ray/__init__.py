"""Jobs on a Ray cluster: functions run as ranks, in actors that Ray has placed.

    from byteps.ray import BytePSExecutor

    with BytePSExecutor(num_workers=4, num_servers=2, cpus_per_worker=2) as executor:
        losses = executor.run(train, args=[model])      # one result for every rank, in order

Needs Ray (``pip install byteps-train[ray]``). ``bpslaunch --ray`` runs commands instead of functions.
"""

from byteps.ray.executor import BytePSExecutor, RankError

__all__ = ["BytePSExecutor", "RankError"]
