"""Checks of compression that every rank of a job of two runs, one after the other."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

import byteps.torch as bps
import byteps.torch.cross_barrier as crossing
from byteps.compress import CodecSpec, set_rates
from byteps.compress.reference.pipeline import Pipeline
from byteps.errors import BytePSError, ConfigError, DeclarationError
from byteps.tensor.tuning import USUAL_BYTES
from byteps.testing.checks import Checks
from byteps.torch.parallel import DistributedDataParallel
from byteps.worker import current

check = Checks()
# Every dictionary of the original's documents, as written there.
DOCUMENTED: list[dict[str, Any]] = [
    {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov", "scaling": True},
    {"compressor": "dithering", "k": 2},
    {"compressor": "dithering", "partition": "natural", "k": 2},
    {"compressor": "topk", "k": 0.001, "ef": "vanilla", "momentum": "nesterov"},
    {"compressor": "randomk", "k": 0.001, "ef": "vanilla", "momentum": "nesterov"},
    {"fp16": True},
    {
        "compressor": "dithering",
        "ef": None,
        "momentum": None,
        "scaling": None,
        "k": 4,
        "normalize": "max",
        "partiton": "linear",
        "fp16": False,
    },
]
ALL = [*DOCUMENTED, {"compressor": "onebit", "ef": "corrected", "momentum": "nesterov", "scaling": True}]


def worker() -> dict[str, str]:
    """The outcome of every check."""
    torch.set_num_threads(1)
    bps.init()
    return check.run(bps.barrier)


def _network() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.Linear(20, 4))


def _loss(model: torch.nn.Module, step: int, rank: int | None = None) -> torch.Tensor:
    rng = np.random.default_rng([step, bps.rank() if rank is None else rank])
    inputs = torch.from_numpy(rng.standard_normal((8, 12)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 4, 8))
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def _train(model: torch.nn.Module, optimizer: Any, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        optimizer.zero_grad()
        _loss(model, step).backward()
        optimizer.step()


def _weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def _same_on_all(value: torch.Tensor) -> None:
    root = bps.broadcast(value.clone(), root_rank=0, name="compared")
    assert torch.equal(root, value), "ranks have different numbers"


def _sgd(model: torch.nn.Module, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **options})


@check
def every_documented_dictionary_trains_and_ranks_agree() -> None:
    for params in ALL:
        for make in ("optimizer", "crossing", "ddp"):
            model = _network()
            before = _weights(model)
            if make == "ddp":
                model = DistributedDataParallel(model, compression_params=params)
                optimizer: Any = _sgd(model)
            else:
                optimizer = bps.DistributedOptimizer(
                    _sgd(model), model.named_parameters(), compression_params=params
                )
            if make == "crossing":
                optimizer = crossing.CrossBarrier(model, optimizer, num_steps=4)
            _train(model, optimizer, 4)
            if make != "ddp":
                optimizer.synchronize()
            after = _weights(model)
            assert torch.isfinite(after).all() and not torch.equal(before, after), (make, params)
            _same_on_all(after)


@check
def crossing_changes_no_bit() -> None:
    for params in (ALL[0], ALL[4] | {"k": 0.1, "seed": 3}):
        found = []
        for crosses in (False, True):
            model = _network()
            optimizer = bps.DistributedOptimizer(
                _sgd(model, weight_decay=0.01), model.named_parameters(), compression_params=params
            )
            if crosses:
                optimizer = crossing.CrossBarrier(model, optimizer, num_steps=6)
            _train(model, optimizer, 6)
            found.append(_weights(model))
        # The names differ, and with them the positions that randomk draws.
        if params["compressor"] == "onebit":
            assert torch.equal(*found)


@check
def momentum_in_the_core_is_that_of_sgd() -> None:
    """Tolerance: torch may fuse a product and a sum that the core rounds one by one."""
    for decay, maximize in ((0.0, False), (0.1, False), (0.1, True)):
        options = {"nesterov": True, "weight_decay": decay, "maximize": maximize}
        ours, reference = _network(), _network()
        optimizer = bps.DistributedOptimizer(
            _sgd(ours, **options), ours.named_parameters(), compression_params={"momentum": "nesterov"}
        )
        plain = _sgd(reference, **options)
        for step in range(12):
            lr = 0.05 / (1 + step // 4)
            for group in (*optimizer.param_groups, *plain.param_groups):
                group["lr"] = lr
            optimizer.zero_grad()
            _loss(ours, step).backward()
            optimizer.step()
            plain.zero_grad()
            (sum(_loss(reference, step, rank) for rank in range(bps.size())) / bps.size()).backward()
            plain.step()
        torch.testing.assert_close(_weights(ours), _weights(reference), rtol=1e-5, atol=1e-6)
        assert optimizer.param_groups[0]["momentum"] == 0.9
        assert optimizer.param_groups[0]["weight_decay"] == decay
        assert not any("momentum_buffer" in state for state in optimizer.state.values())


@check
def optimizers_without_momentum_are_refused_for_it() -> None:
    for make, text in (
        (lambda p: torch.optim.Adam(p), "SGD"),
        (lambda p: torch.optim.SGD(p, lr=0.1), "momentum of the optimizer is 0"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5), "dampening"),
    ):
        model = _network()
        try:
            bps.DistributedOptimizer(
                make(model.parameters()),
                model.named_parameters(),
                compression_params={"momentum": "nesterov"},
            )
        except ConfigError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


@check
def other_types_are_compressed_in_float32() -> None:
    spec = CodecSpec.from_text("compressor=onebit,scaling=true,ef=vanilla,seed=1")
    params = {"compressor": "onebit", "scaling": True, "ef": "vanilla", "seed": 1}
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        name, machines = f"type {dtype}", [[rank] for rank in range(bps.size())]
        pipeline = Pipeline(spec, name, 500, machines, 1 << 20, 1)
        for step in range(3):
            mine = [
                torch.from_numpy(np.random.default_rng([rank, step]).standard_normal(500)).to(dtype)
                for rank in range(bps.size())
            ]
            expected = torch.from_numpy(pipeline.push_pull([g.float().numpy() for g in mine])).to(dtype)
            result = bps.push_pull(mine[bps.rank()], name=name, compression_params=params)
            assert result.dtype is dtype and torch.equal(result, expected), (dtype, step)


@check
def integers_and_broadcasts_are_exact() -> None:
    params = {"compressor": "onebit"}
    counts = torch.arange(100, dtype=torch.int64)
    total = bps.push_pull(counts, average=False, name="counts", compression_params=params)
    assert torch.equal(total, counts * bps.size())
    value = torch.full((3000,), float(bps.rank() + 1))
    bps.push_pull(value.clone(), name="both", compression_params=params)
    assert (bps.broadcast(value, root_rank=1, name="both") == 2).all()


@check
def different_parameters_are_a_declaration_error() -> None:
    k = 0.1 + 0.1 * bps.rank()
    try:
        bps.push_pull(torch.ones(50), name="differs", compression_params={"compressor": "topk", "k": k})
    except DeclarationError as error:
        assert "k=0.1" in str(error) and "k=0.2" in str(error), error
    else:
        raise AssertionError("ranks with different codecs were summed")
    assert (bps.push_pull(torch.ones(50), name="agrees", average=False) == bps.size()).all()


@check
def the_same_name_with_another_codec_is_declared_anew() -> None:
    for params in ({"fp16": True}, {"compressor": "topk", "k": 100}, None, {"fp16": True}):
        value = torch.arange(100.0)
        if params is None:
            current.required("test").tensor("push_pull", "changes", 0, (100,), "")
        result = bps.push_pull(value, name="changes", compression_params=params)
        assert torch.equal(result, value), params


@check
def a_declared_codec_holds_without_being_repeated() -> None:
    value = torch.randn(5000)
    bps.declare("declared", value, {"compressor": "onebit"})
    result = bps.push_pull(value, name="declared")
    assert set(result.tolist()) <= {-1.0, 1.0}


@check
def counters_tell_both_directions() -> None:
    value = torch.randn(40_000)
    before = bps.counters()
    for _ in range(4):
        bps.push_pull(value, name="counted", compression_params={"compressor": "onebit"})
    after = bps.counters()
    for direction in ("pushed", "pulled"):
        raw = after[f"{direction}_bytes"] - before[f"{direction}_bytes"]
        wire = after[f"{direction}_wire_bytes"] - before[f"{direction}_wire_bytes"]
        assert raw == 4 * value.numel() * 4, raw
        parts = -(-value.numel() * 4 // (current.required("test").config.partition_bytes or USUAL_BYTES))
        assert 4 * value.numel() // 8 <= wire <= 4 * (value.numel() // 8 + 5 * parts), wire


@check
def the_hook_of_ddp_compresses() -> None:
    class Bucket:
        def __init__(self, memory: torch.Tensor) -> None:
            self.memory = memory

        def buffer(self) -> torch.Tensor:
            return self.memory

        def index(self) -> int:
            return 0

        def is_last(self) -> bool:
            return True

    for number, params in enumerate(DOCUMENTED):
        state = bps.CommHookState(params, name=f"hook {number}")
        bucket: Any = Bucket(torch.randn(3000))
        result = bps.push_pull_hook(state, bucket).wait()
        assert torch.isfinite(result).all()
        _same_on_all(result)


@check
def rates_are_checked() -> None:
    for wrong in ({"lr": -1.0}, {"momentum": float("nan")}):
        try:
            set_rates(**wrong)
        except ValueError as error:
            assert next(iter(wrong)) in str(error)
        else:
            raise AssertionError(wrong)


@check
def fp16_beside_a_compressor_warns_and_halves_values() -> None:
    params = {"compressor": "topk", "k": 1000, "fp16": True}
    before = bps.counters()["pushed_wire_bytes"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = torch.arange(1000.0)
        result = bps.push_pull(value, name="both kinds", compression_params=params)
    assert torch.equal(result, value) and any("slows" in str(each.message) for each in caught)
    assert bps.counters()["pushed_wire_bytes"] - before < 2200 + 200


@check
def a_worker_keeps_its_state_over_suspension() -> None:
    params = {"compressor": "randomk", "k": 0.1, "ef": "vanilla", "momentum": "nesterov", "seed": 9}
    found = []
    for suspended in (False, True):
        model = _network()
        optimizer = bps.DistributedOptimizer(_sgd(model), model.named_parameters(), compression_params=params)
        _train(model, optimizer, 3)
        if suspended:
            before = optimizer.state_dict()["byteps"]
            session = current.required("test")
            workers, servers = session.size, session.config.num_server
            bps.suspend()
            bps.resume(workers, servers)
            after = optimizer.state_dict()["byteps"]
            assert before.keys() == after.keys() and before
            for name, state in before.items():
                assert state["steps"] == after[name]["steps"] == 3
                assert torch.equal(state["momentum"], after[name]["momentum"])
                for part, error in state["errors"].items():
                    assert torch.equal(error, after[name]["errors"][part]) and error.abs().sum() > 0
        _train(model, optimizer, 3, first=3)
        found.append(_weights(model))
        _same_on_all(found[-1])


@check
def a_failing_codec_of_the_users_names_itself() -> None:
    try:
        bps.push_pull(
            torch.full((10,), float(bps.rank())), name="raises", compression_params={"compressor": "moody"}
        )
    except BytePSError as error:
        assert "raises" in str(error) and "rank 1 is moody" in str(error), error
    else:
        raise AssertionError("a codec raised, and nobody heard of it")
    assert (bps.push_pull(torch.ones(5), name="after", average=False) == bps.size()).all()


@check
def a_codec_in_python_is_like_one_of_ours() -> None:
    for ef in (None, "vanilla"):
        for step in range(3):
            value = torch.from_numpy(np.random.default_rng([step, bps.rank()]).standard_normal(2000)).float()
            theirs, ours = (
                bps.push_pull(value, name=f"{name} {ef}", compression_params={"compressor": name, "ef": ef})
                for name in ("signs", "onebit")
            )
            assert torch.equal(theirs, ours), (ef, step)
