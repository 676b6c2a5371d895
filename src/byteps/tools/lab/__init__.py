"""A cluster on one machine: hosts with network links of a chosen speed, for tests and benchmarks.

    with Lab([Host("a"), Host("b")], rate_mbit=1000) as lab:
        process = lab.start("a", ["iperf3", "-c", lab.address("b")])
        ...
        print(lab.traffic())

Every host is a network namespace with a host name of its own; a bridge in one more namespace joins them.
``plan.py`` decides, ``network.py`` does, ``relay.py`` adds latency, ``run.py`` runs a job (``bps lab``).
"""

from byteps.tools.lab.network import Lab
from byteps.tools.lab.plan import USUAL, Host, Losses, Traffic, Wire

__all__ = ["USUAL", "Host", "Lab", "Losses", "Traffic", "Wire"]
