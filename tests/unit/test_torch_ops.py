"""``byteps.torch`` in a job of one: what is refused, and how it gets along with autograd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

import byteps.torch as bps  # noqa: E402
from byteps.errors import UnsupportedTensorError  # noqa: E402


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
        "device meta": torch.empty(3, device="meta"),
        "torch.sparse_coo": torch.eye(3).to_sparse(),
        "torch.complex64": torch.zeros(3, dtype=torch.complex64),
        "torch.bool": torch.zeros(3, dtype=torch.bool),
    }
    for words, tensor in cases.items():
        with pytest.raises(UnsupportedTensorError) as caught:
            verb(tensor, name="embedding.weight")  # type: ignore[operator]
        assert words in str(caught.value) and "of embedding.weight" in str(caught.value)


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
