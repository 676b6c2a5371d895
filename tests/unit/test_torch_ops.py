"""``byteps.torch`` in a job of one: what is refused, and how it gets along with autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

torch = pytest.importorskip("torch")

import byteps.torch as bps  # noqa: E402
from byteps.errors import ConfigError, UnsupportedTensorError  # noqa: E402
from byteps.torch.parallel import DistributedDataParallel  # noqa: E402


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    bps.init()
    yield
    bps.shutdown()


VERBS = [
    bps.push_pull,
    bps.push_pull_async,
    bps.push_pull_inplace,
    bps.push_pull_async_inplace,
    lambda tensor, name: bps.broadcast(tensor, 0, name=name),
    lambda tensor, name: bps.declare(name, tensor),
]


@pytest.mark.parametrize("verb", VERBS)
def test_other_devices_layouts_and_dtypes_are_refused(verb: object) -> None:
    cases = {
        "device meta and has no values yet; make them first with model.to_empty()": torch.empty(
            3, device="meta"
        ),
        "torch.sparse_coo": torch.eye(3).to_sparse(),
        "torch.complex64": torch.zeros(3, dtype=torch.complex64),
        "torch.bool": torch.zeros(3, dtype=torch.bool),
    }
    for words, tensor in cases.items():
        with pytest.raises(UnsupportedTensorError) as caught:
            verb(tensor, name="embedding.weight")  # type: ignore[operator]
        assert words in str(caught.value) and "of embedding.weight" in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("value", [[1.0, 2.0], 1.5, {"a": 1}, torch.ones(2).numpy()])
def test_what_is_no_tensor_is_answered_in_a_line(verb: object, value: object) -> None:
    with pytest.raises(UnsupportedTensorError) as caught:
        verb(value, name="loss")  # type: ignore[operator]
    said = str(caught.value)
    assert f"of loss: it is a {type(value).__name__}, expected a torch.Tensor" in said and "\n" not in said


def test_compression_params_that_are_no_dictionary_are_answered_in_a_line() -> None:
    model, wrong = torch.nn.Linear(2, 2), cast("dict[str, object]", "onebit")
    expected = r"^compression_params='onebit': expected a dictionary, for example {'compressor': 'onebit'}$"
    for use in (
        lambda: bps.push_pull(torch.ones(2), name="x", compression_params=wrong),
        lambda: bps.declare("x", torch.ones(2), wrong),
        lambda: bps.DistributedOptimizer(torch.optim.SGD(model.parameters()), compression_params=wrong),
        lambda: DistributedDataParallel(model, compression_params=wrong),
    ):
        with pytest.raises(ValueError, match=expected):
            use()


def test_an_optimizer_is_told_what_it_expects() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=r"expected an optimizer of torch.optim, got Linear"):
        bps.DistributedOptimizer(model)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"compression='fp16': expected Compression.none or .fp16"):
        bps.DistributedOptimizer(torch.optim.SGD(model.parameters()), compression="fp16")  # type: ignore[arg-type]


def test_a_parameter_can_be_sent_and_replaced() -> None:
    parameter = torch.nn.Parameter(torch.arange(4.0))
    out = bps.push_pull(parameter, name="p")
    assert out.requires_grad and out.data_ptr() != parameter.data_ptr()
    assert bps.push_pull_inplace(parameter, name="p") is parameter
    assert bps.broadcast(parameter, 0, name="p") is parameter
    assert parameter.requires_grad and parameter.is_leaf


def test_a_backward_pass_notices_what_was_replaced_under_it() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    loss = (weight * weight).sum()
    bps.push_pull_inplace(weight, name="w")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_lazy_negation_is_done_before_sending() -> None:
    lazy = torch.tensor([1 + 2j]).conj().imag
    assert lazy.is_neg() and lazy.is_contiguous()
    assert bps.push_pull(lazy, name="n").tolist() == [-2.0]
    assert bps.push_pull_inplace(lazy, name="n").tolist() == [-2.0]


def test_strange_strides_come_back_right() -> None:
    whole = torch.arange(24.0).reshape(2, 3, 4)
    views = [
        whole.permute(2, 0, 1),
        whole[:, 1],
        whole.expand(1, 2, 3, 4),
        whole.to(memory_format=torch.contiguous_format),
    ]
    for i, view in enumerate(views):
        assert torch.equal(bps.push_pull(view, name=f"v{i}"), view)


def test_broadcast_parameters_takes_what_models_have() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model.register_buffer("mask", torch.tensor([True, False]))
    model.register_buffer("phase", torch.tensor([1 + 2j, 3 - 4j]))
    state = model.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    bps.broadcast_parameters(state, root_rank=0)
    bps.broadcast_parameters(model.named_parameters(), root_rank=0)
    bps.broadcast_parameters({"epoch": 3, "nothing": None, "w": torch.ones(2)}, root_rank=0)
    assert all(torch.equal(value, before[name]) for name, value in state.items())
