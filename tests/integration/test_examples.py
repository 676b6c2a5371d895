"""The examples run on two ranks with tiny settings, and say what they promise."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from byteps.testing import cluster

FOLDER = Path(__file__).parents[2] / "examples" / "torch"
ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "60", "BYTEPS_CONNECT_TIMEOUT_S": "60"}


def run(script: str, *args: object) -> str:
    """What rank 0 says; the other one must be silent."""
    with cluster(FOLDER / script, nproc=2, args=args, env=ENVIRONMENT, deadline_s=110) as job:
        job.wait()
        said, silent = (worker.output for worker in job.workers)
    assert silent == ""
    return said


@pytest.mark.parametrize(
    ("model", "method"),
    [("resnet50", "optimizer"), ("vgg16", "ddp"), ("alexnet", "cross-barrier"), ("bert", "optimizer")],
)
def test_benchmark(model: str, method: str) -> None:
    said = run(
        "benchmark.py",
        *("--model", model, "--method", method, "--width", 0.1, "--image-size", 32, "--classes", 10),
        *("--batch-size", 2, "--num-warmup-batches", 1, "--num-batches-per-iter", 1, "--num-iters", 2),
        *(("--fp16-pushpull",) if model == "alexnet" else ()),
    )
    unit = "Seq" if model == "bert" else "Img"
    assert re.search(rf"^{unit}/sec per worker: \d+\.\d \+-\d+\.\d$", said, re.MULTILINE), said
    assert re.search(rf"^Total {unit.lower()}/sec on 2 worker\(s\): \d+\.\d \+-\d", said, re.MULTILINE), said


def accuracy(said: str) -> float:
    return float(re.findall(r"accuracy (\d\.\d+)", said)[-1])


def test_cifar_learns_what_is_made_up() -> None:
    said = run("train_cifar.py", "--synthetic", "--synthetic-images", 400, "--epochs", 3, "--batch-size", 10)
    assert accuracy(said) > 0.5, said  # 0.1 would be chance


@pytest.mark.parametrize("form", ["python", "binary"])
def test_cifar_reads_its_files(form: str, tmp_path: Path, rng: np.random.Generator) -> None:
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        images = rng.integers(0, 256, (8, 3072), dtype=np.uint8)
        labels = rng.integers(0, 10, 8)
        if form == "python":
            content = pickle.dumps({b"data": images, b"labels": labels.tolist()})
            (tmp_path / name).write_bytes(content)
        else:
            records = np.concatenate([labels.astype(np.uint8)[:, None], images], 1)
            (tmp_path / f"{name}.bin").write_bytes(records.tobytes())
    said = run("train_cifar.py", "--data", tmp_path, "--epochs", 1, "--batch-size", 4)
    assert 0 <= accuracy(said) <= 1


TINY = ("--epochs", 1, "--batch-size", 2, "--image-size", 32, "--classes", 3, "--width", 0.1)


def test_imagenet_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    options = ("--synthetic", "--synthetic-images", 8, "--checkpoint", tmp_path / "last.pt", *TINY)
    assert "epoch 1/1" in run("train_imagenet.py", *options)
    said = run("train_imagenet.py", *options, "--epochs", 2)
    assert "epoch 2/2" in said and "epoch 1/2" not in said


def test_imagenet_reads_pictures(tmp_path: Path, rng: np.random.Generator) -> None:
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "val"):
        for name in ("cat", "dog", "owl"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(2):
                pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
                image.fromarray(pixels).save(folder / f"{number}.jpg")
    assert "accuracy" in run("train_imagenet.py", "--data", tmp_path, *TINY)
