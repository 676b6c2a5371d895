"""The examples of the frameworks in this environment run on two ranks, and say what they promise."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from byteps.testing import cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {
    "BYTEPS_OP_TIMEOUT_S": "60",
    "BYTEPS_CONNECT_TIMEOUT_S": "60",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
}


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in modules)


def run(script: str, *args: object, **environment: str) -> str:
    """What rank 0 says; with servers, so that options of compression mean something."""
    with cluster(
        EXAMPLES / script,
        workers=2,
        servers=1,
        args=args,
        env={**ENVIRONMENT, **environment},
        deadline_s=170,
    ) as job:
        job.wait()
        return job.workers[0].output


DIGITS = [
    (folder, backend)
    for folder, backend in [
        ("tensorflow", "tensorflow"),
        ("mxnet", "mxnet"),
        ("jax", "jax"),
        ("keras", "tensorflow"),
        ("keras", "torch"),
        ("keras", "jax"),
    ]
    if has(folder, backend)
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("folder", "backend"), DIGITS)
def test_the_digits_are_learned(folder: str, backend: str) -> None:
    keras = {"KERAS_BACKEND": backend} if folder == "keras" else {}
    said = run(f"{folder}/train_digits.py", "--epochs", 5, "--min-accuracy", 0.85, **keras)
    found = re.search(r"workers 2  test accuracy (\d\.\d+)", said)
    assert found is not None and float(found[1]) >= 0.85, said


TINY = ("--image-size", 64, "--batch-size", 2)


@pytest.mark.timeout(180)
@pytest.mark.skipif(not has("mxnet"), reason="MXNet has an environment of its own: make test-mxnet")
def test_the_first_command_of_the_front_page() -> None:
    few = ("--num-warmup-batches", 1, "--num-batches", 3, "--num-classes", 10, "--network", "mobilenet0.25")
    said = run("mxnet/train_imagenet.py", "--benchmark", 1, *TINY, *few)
    assert re.search(r"^Img/sec per worker: \d+\.\d \+-\d+\.\d$", said, re.MULTILINE), said
    assert re.search(r"^Total img/sec on 2 worker\(s\): \d+\.\d$", said, re.MULTILINE), said


HAS_CODECS = has("byteps.worker.codecs")
CODECS = ("--compressor", "onebit", "--onebit-scaling", "--ef", "vanilla", "--compress-momentum", "nesterov")


@pytest.mark.timeout(180)
@pytest.mark.skipif(not has("mxnet"), reason="MXNet has an environment of its own: make test-mxnet")
@pytest.mark.parametrize("options", [(), *([CODECS, (*CODECS, "--fp16-pushpull")] if HAS_CODECS else [])])
def test_the_commands_of_the_reproduction_guide(options: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "guide.log"
    guide = ("--model", "mobilenet0.25", "--mode", "hybrib", "--num-epochs", 2, "-j", 2, "--lr", 0.01)
    few = ("--synthetic-images", 64, "--batch-size", 16, "--warmup-epochs", 1, "--warmup-lr", 0.001)
    run("mxnet/train_cifar100.py", *guide, *few, *options, "--logging-file", log)
    assert re.search(r"^epoch 2/2  loss \d+\.\d+  accuracy \d\.\d+", log.read_text(), re.MULTILINE)
