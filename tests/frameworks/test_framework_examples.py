"""The examples of the frameworks in this environment run on two ranks, and say what they promise."""

from __future__ import annotations

import importlib.util
import re
import struct
from pathlib import Path
from random import Random

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


def bmp(pixels: bytes, side: int) -> bytes:
    """A picture that OpenCV reads, without a library that writes one."""
    head = struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54)
    size = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, len(pixels), 2835, 2835, 0, 0)
    return head + size + pixels


def write_records(folder: Path, name: str, count: int, side: int = 32) -> None:
    """A RecordIO file and its index, as im2rec.py makes them: dark pictures are of class 0, bright of 1."""
    import mxnet as mx

    file = mx.recordio.MXIndexedRecordIO(str(folder / f"{name}.idx"), str(folder / f"{name}.rec"), "w")
    random = Random(name)
    for index in range(count):
        label = index % 2
        pixels = bytes(random.randrange(128) + 128 * label for _ in range(side * side * 3))
        head = mx.recordio.IRHeader(0, float(label), index, 0)
        file.write_idx(index, mx.recordio.pack(head, bmp(pixels, side)))
    file.close()


GUIDE = {
    "resnet50_v2": ("--lr-mode", "cosine"),
    "vgg16": ("--lr-decay-epoch", "2,3", "--fp16-pushpull", *CODECS),
}


@pytest.mark.timeout(180)
@pytest.mark.skipif(not has("mxnet"), reason="MXNet has an environment of its own: make test-mxnet")
@pytest.mark.parametrize("model", GUIDE)
def test_the_commands_for_imagenet(model: str, tmp_path: Path) -> None:
    """The options of the guide; the networks are small ones with the same parts, or two cores take hours."""
    write_records(tmp_path, "train", 45)  # not a multiple of two ranks and the batch
    write_records(tmp_path, "val", 13)
    log = tmp_path / "guide.log"
    small = {"resnet50_v2": "resnet18_v2", "vgg16": "mobilenet0.25"}[model]
    run(
        "mxnet/train_imagenet.py",
        *("--model", small, "--mode", "hybrid", "--use-rec", "--num-gpus", 1, "-j", 2, "--batch-size", 4),
        *("--rec-train", tmp_path / "train.rec", "--rec-train-idx", tmp_path / "train.idx"),
        *("--rec-val", tmp_path / "val.rec", "--rec-val-idx", tmp_path / "val.idx"),
        *("--num-epochs", 3, "--warmup-epochs", 1, "--warmup-lr", 0.001, "--lr", 0.01),
        *("--image-size", 32, "--num-classes", 2, "--logging-file", log, *GUIDE[model]),
    )
    lines = log.read_text().splitlines()
    assert len(lines) == 3, lines
    for epoch, line in enumerate(lines, 1):
        assert re.match(rf"epoch {epoch}/3  loss \d+\.\d+  accuracy [01]\.\d+  \d+\.\d s$", line), line
