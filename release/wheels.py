"""Build wheels with every Python that needs one, let auditwheel repair them, and test them.

    python release/wheels.py --pythons python3.11 python3.12     wheels into dist/
    python release/wheels.py --sdist dist/byteps_train-*.tar.gz  from the source distribution; keeps nothing

Called by ``make wheels`` and ``make sdist``. A Python that is not on this machine is left out, and said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECK = Path(__file__).with_name("check_installed.py")
STABLE_FROM = (3, 12)  # wheel.py-api in pyproject.toml


def run(*words: str | Path, **more: str) -> str:
    """Run a command; its output is shown only when it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, words))}: exit code {done.returncode}")
    return done.stdout


def found(names: list[str]) -> dict[tuple[int, int], str]:
    """The interpreters among ``names`` that run here, by version."""
    versions = {}
    for name in names:
        path = shutil.which(name)
        asked = "import sys; print(*sys.version_info[:2])"
        done = path and subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False)
        if not path or not done or done.returncode:
            print(f"{name}: not on this machine, so nothing is built or tested with it")
            continue
        major, minor = map(int, done.stdout.split())
        versions[major, minor] = path
    return versions


def builders(versions: dict[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Those that a wheel is built with: each one before the stable ABI, and the first one that has it."""
    stable = min((version for version in versions if version >= STABLE_FROM), default=None)
    return {version: path for version, path in versions.items() if version < STABLE_FROM or version == stable}


def wheel_for(version: tuple[int, int], wheels: list[Path]) -> Path:
    """The wheel that this Python installs."""
    own = f"cp{version[0]}{version[1]}-cp{version[0]}{version[1]}-"
    wanted = "-abi3-" if version >= STABLE_FROM else own
    return next(wheel for wheel in wheels if wanted in wheel.name)


def test(version: tuple[int, int], python: str, wheel: Path, extra: str = "") -> None:
    """Install a wheel where nothing else is, away from the sources, and run a job with it."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", Path(folder) / "venv")
        inside = Path(folder) / "venv" / "bin" / "python"
        run(inside, "-m", "pip", "install", "--quiet", f"{wheel}{extra}")
        said = run(inside, "-I", CHECK, extra.strip("[]"))
    print(f"{wheel.name}{extra}, Python {version[0]}.{version[1]}: {said.strip()}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pythons", nargs="+", default=["python3"])
    parser.add_argument("--sdist", type=Path, help="build from this archive and test, with the last Python")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    args = parser.parse_args()
    versions = found(args.pythons)
    if not versions:
        sys.exit("none of the Pythons is on this machine; name one: make wheels PYTHONS=python3.12")
    with tempfile.TemporaryDirectory() as folder:
        raw, repaired = Path(folder) / "raw", Path(folder) / "repaired"
        chosen = builders(versions) if args.sdist is None else dict([max(versions.items())])
        for python in chosen.values():
            run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, args.sdist or ROOT,
                CMAKE_ARGS="-DBYTEPS_PORTABLE=ON")  # fmt: skip
        for wheel in raw.glob("*.whl"):
            run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, wheel)
        wheels = sorted(repaired.glob("*.whl"))
        for version, python in (versions if args.sdist is None else chosen).items():
            test(version, python, wheel_for(version, wheels))
        if args.sdist is None:
            version = max(versions)
            for extra in ("[k8s]", "[demo]", "[bench]", "[metrics]"):
                test(version, versions[version], wheel_for(version, wheels), extra)
            args.output.mkdir(exist_ok=True)
            for wheel in wheels:
                shutil.copy(wheel, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
