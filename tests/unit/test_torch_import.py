"""What ``import byteps.torch`` loads, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")


def test_the_compiler_is_not_loaded() -> None:
    """It takes as long as PyTorch itself, in every rank, and few scripts compile anything."""
    program = "import sys, byteps.torch; print('torch._dynamo' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert said.stdout.strip() == "False", said.stdout + said.stderr
