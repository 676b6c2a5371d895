"""Run by the Python of a clean environment: the installed package works, and says which one it is.

Only what the package itself brings: NumPy and msgspec, and what an extra brings that the command line names.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

EXTRAS = {
    "": [],
    "k8s": ["yaml"],
    "demo": ["sklearn", "rich"],
    "bench": ["matplotlib", "rich"],
    "metrics": ["prometheus_client"],
}
JOB = """
import numpy as np, byteps as bps
bps.init()
print(bps.push_pull(np.full(3, 4.0 ** bps.rank()), average=False, name="x").tolist())
"""


def main() -> None:
    import byteps
    from byteps import _core

    prefix = Path(sys.prefix)
    assert prefix in Path(byteps.__file__).parents, f"{byteps.__file__} is not the installed package"
    for name in EXTRAS[sys.argv[1] if len(sys.argv) > 1 else ""]:
        importlib.import_module(name)
    programs = prefix / "bin"
    said = subprocess.run([programs / "bps", "--version"], capture_output=True, text=True, check=True).stdout
    assert byteps.__version__ in said, said
    for shape in (["-n", "2"], ["--workers", "2", "--servers", "1"]):
        words = [programs / "bpslaunch", *shape, sys.executable, "-c", JOB]
        job = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        expected = [f"[worker {rank}] [5.0, 5.0, 5.0]" for rank in range(2)]
        assert sorted(job.stdout.splitlines()) == expected, f"{job.stdout}\n{job.stderr}"
    print(f"{byteps.__version__}, protocol {_core.PROTOCOL_VERSION}: two jobs passed")


main()
