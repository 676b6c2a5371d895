"""The program of a worker that runs a function: ``python -m byteps.testing.call FILE NAME ARGUMENTS``.

The function is found by file and name, its arguments are JSON, and what it returns becomes the worker's
result.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from byteps.testing.report import send

__all__ = ["load"]


def load(file: str, name: str) -> Any:
    """The function ``name`` of the module at ``file``, with its folder on the path, as for a script."""
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and the like look their module up
    spec.loader.exec_module(module)
    return getattr(module, name)


if __name__ == "__main__":
    _, _file, _name, _arguments = sys.argv
    send("result", load(_file, _name)(*json.loads(_arguments)))
