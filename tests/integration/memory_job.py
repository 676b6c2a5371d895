"""What workers do in jobs with a process that has too little memory."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

import byteps as bps

sys.path.insert(0, str(Path(__file__).parent))

from memory_limit import MIB, wait_for_limit


def small_sum() -> float:
    return float(bps.push_pull(np.full(1000, 4.0 ** bps.rank(), np.float32), name="small", average=False)[0])


def too_much(fifos: str, large_mib: int) -> Any:
    """Declare what the server has no room for, then use what it has."""
    bps.init()
    wait_for_limit(fifos, bps.rank())
    errors = []
    for _ in range(2):  # it stays refused
        try:
            bps.declare("large", np.empty(large_mib * MIB // 4, np.float32))
        except bps.OutOfMemoryError as error:
            errors.append(str(error))
    total = small_sum()
    bps.shutdown()
    return [errors, total]


def more_and_more(fifos: str, each_mib: int, tensors: int) -> Any:
    """Each tensor has room when it is declared, but rounds need more: one of them finds none left."""
    bps.init()
    wait_for_limit(fifos, bps.rank())
    error, sums = "", 0
    values = np.full(each_mib * MIB // 4, 4.0 ** bps.rank(), np.float32)
    for number in range(tensors):
        try:
            total = bps.push_pull(values, name=f"tensor.{number}", average=False)
        except bps.OutOfMemoryError as caught:
            error = str(caught)
            break
        assert total[0] == total[-1] == 5.0
        sums += 1
    bps.barrier()
    total = small_sum()
    bps.shutdown()
    return [error, sums, total]


def compressed(fifos: str, each_mib: int, tensors: int) -> None:
    """Rank 1 declares compressed tensors until it has no memory for the state of a codec; rank 0 waits."""
    bps.init()
    if bps.rank() == 1:
        values = np.empty(each_mib * MIB // 4, np.float32)  # never touched
        wait_for_limit(fifos, 1)
        for number in range(tensors):
            bps.declare(f"tensor.{number}", values, compression_params=EF)
    bps.barrier()


def caught(fifos: str, each_mib: int, tensors: int) -> Any:
    """Rank 1 has no memory left, and goes on without a tensor that rank 0 pushes."""
    bps.init()
    values = np.zeros(each_mib * MIB // 4, np.float32)
    error, handle = "", None
    if bps.rank() == 0:
        handle = bps.push_pull_async(values, name="late", compression_params=EF)
    else:
        wait_for_limit(fifos, 1)
        names = [f"own.{number}" for number in range(tensors)]
        for name in [*names, "late"]:
            try:
                bps.declare(name, values, compression_params=EF)
            except bps.OutOfMemoryError as caught:
                error = str(caught)
    if handle is not None:
        try:
            handle.wait()
        except bps.OutOfMemoryError as caught:
            error = str(caught)
    total = small_sum()
    bps.shutdown()
    return [error, total]


EF = {"compressor": "onebit", "ef": "vanilla"}  # the error that is left is as large as the tensor

# A member that knows the secret, and sends what it likes.

PUSH, DECLARE, ONEBIT, FLOAT32 = 17, 16, 1, 0


def frame(kind: int, key: int, payload: bytes, *, codec: int = 0) -> bytes:
    """A frame of this worker, in epoch 1."""
    from byteps import _core
    from byteps.control.hello import job_number

    job = job_number(bps._current.session.config.job_id)  # type: ignore[union-attr]
    fields = (0x32535042, _core.PROTOCOL_VERSION, kind, 0, job, 1, bps.rank(), FLOAT32, codec, key, 0)
    header = struct.pack("<IBBHQIHBBQIIiIQI", *fields, len(payload), 0, 0, 1, 0)
    return header + struct.pack("<I", _core.crc32c(header)) + payload


def send_raw(*frames: bytes) -> None:
    """Over the only data connection, which nobody else uses at the moment."""
    import os

    fd = bps._current.session._control._sockets[-1][0]  # type: ignore[union-attr]
    for each in frames:
        assert os.write(fd, each) == len(each)


def attack(fifos: str, way: str) -> Any:
    """Rank 0 pushes a few bytes of compressed tensors of gigabytes; rank 1 is honest."""
    from byteps.control.messages import TensorSpec
    from byteps.worker.codecs import codec_of

    bps.init()
    wait_for_limit(fifos, bps.rank())
    bps.barrier()
    if bps.rank() == 0:
        large, part = 512 * MIB, 128 * MIB
        pushes = [frame(PUSH, 7 << 32 | piece, b"\0" * 4, codec=ONEBIT) for piece in range(4)]
        if way == "undeclared":
            send_raw(*pushes)
        elif way == "declared to the server":  # as it was done until version 5
            text = struct.pack("<QQBBBBIdQII", large, part, ONEBIT, 0, 0, 0, 0, 0.0, 1, 1, 64 * 1024) + b"x"
            send_raw(frame(DECLARE, 7 << 32, text), *pushes)
        else:
            codec = codec_of({"compressor": "onebit"})
            spec = TensorSpec("huge", 0, FLOAT32, [large // 4], codec)
            (placed,) = bps._current.session._control.place([spec])  # type: ignore
            key = placed.tensor_id << 32
            send_raw(*(frame(PUSH, key | piece, b"\0" * 4, codec=ONEBIT) for piece in range(4)))
    total = small_sum()
    bps.shutdown()
    return total
