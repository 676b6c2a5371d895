"""GradientExchange over planes driven by hand: what is pushed, when, from where, and how urgently."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import planes  # noqa: E402

from byteps import config, dtypes  # noqa: E402
from byteps.errors import BytePSError, NotInitializedError, PeerLostError  # noqa: E402
from byteps.torch.compression import Compression  # noqa: E402
from byteps.torch.gradients import GradientExchange  # noqa: E402
from byteps.worker import current  # noqa: E402
from byteps.worker.interface import Place  # noqa: E402
from byteps.worker.session import Session  # noqa: E402


class Client(planes.FakeClient):
    """Operations are done at once."""

    def push_pull(self, *call: Any) -> planes.FakeHandle:
        handle = super().push_pull(*call)
        handle.complete()
        return handle


SECOND_OF_TWO = Place(1, 2, 0, 1)


def make_session(place: Place = SECOND_OF_TWO, arena: bool = False) -> Session:
    return Session(config.load({}), place, planes.FakeControl(), Client(), shares_memory=arena)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = make_session()
    monkeypatch.setattr(current, "session", made)
    return made


def pushed(session: Session) -> list[tuple[str, int]]:
    """Name and priority of every push-pull so far."""
    names = {tensor.native: tensor.name for tensor in session.tensors.values()}
    return [(names[call[1]], call[4]) for call in session._client.calls]


def layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))


MAP = ("Gradient.used parameters", 1)


def test_everything_is_declared_with_one_message_and_pushed_as_it_comes(session: Session) -> None:
    model = layers()
    exchange = GradientExchange(model.named_parameters())
    assert len(session._control.messages) == 1 and session._control.barriers == 1
    loss = model(torch.ones(2, 3)).sum()
    assert not session._client.calls
    loss.backward()
    assert sorted(name for name, _ in pushed(session)) == sorted(
        f"Gradient.{n}" for n, _ in model.named_parameters()
    )
    assert exchange.is_open and list(exchange.handles) == exchange.parameters
    exchange.flush()
    assert pushed(session)[-1] == MAP and not exchange.is_open
    exchange.wait(model[0].bias)
    assert set(exchange.handles) == set(exchange.parameters) - {model[0].bias}
    for parameter in exchange.parameters:
        exchange.wait(parameter)
    assert not exchange.handles


def test_the_first_layer_is_the_most_urgent_however_parameters_were_given(session: Session) -> None:
    model = layers()
    exchange = GradientExchange(list(model.named_parameters())[::-1])
    for _ in range(2):
        before = len(session._client.calls)
        model(torch.ones(2, 3)).sum().backward()
        exchange.synchronize()
    names = [
        name for name, priority in sorted(pushed(session)[before : before + 4], key=lambda each: -each[1])
    ]
    assert {name.split(".")[1] for name in names[:2]} == {"0"}
    exchange.set_order([model[1].bias])
    model(torch.ones(2, 3)).sum().backward()
    assert ("Gradient.1.bias", 0) in pushed(session)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_on_one_machine_the_gradient_is_what_was_pushed_in_shared_memory(
    set_to_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(arena=True)
    monkeypatch.setattr(current, "session", session)
    weight = torch.nn.Parameter(torch.ones(4, 6).t())  # strides of the memory are kept
    exchange = GradientExchange([("w", weight)])
    places = set()
    for step in range(3):
        if weight.grad is not None:
            weight.grad = None if set_to_none else weight.grad.zero_()
        (weight * (step + 1)).sum().backward()
        assert weight.grad is not None and weight.grad.stride() == weight.stride()
        assert weight.grad.eq(step + 1).all()
        call = session._client.calls[-1]
        assert call[2] == call[3] == weight.grad.data_ptr()
        places.add(weight.grad.data_ptr())
        exchange.synchronize()
    assert len(places) == 1


def test_elsewhere_the_gradient_of_autograd_is_pushed_in_place(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(5))
    exchange = GradientExchange([("w", weight)], average=False)
    kept = []
    weight.register_hook(kept.append)
    weight.sum().backward()
    assert weight.grad is not None and session._client.calls[-1][2] == weight.grad.data_ptr()
    assert session._client.calls[-1][5] is False  # a sum
    exchange.remove()
    weight.sum().backward()
    assert len(session._client.calls) == 1


def test_a_cast_travels_in_half_the_bytes(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(5))
    GradientExchange([("w", weight)], compression=Compression.fp16)
    spec, _ = session._control.messages[0][0]
    assert spec.name == "Gradient.w" and spec.dtype == dtypes.NUMBERS["float16"]
    assert Compression.fp16.wire_dtype(torch.bfloat16) is torch.bfloat16
    assert Compression.fp16.wire_dtype(torch.int64) is torch.int64
    half, context = Compression.fp16.compress(torch.ones(3))
    assert half.dtype is torch.float16
    assert Compression.fp16.decompress(half, context).dtype is torch.float32


def test_names_are_used_once_and_are_free_after_remove(session: Session) -> None:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
    first, second = (GradientExchange([("w", weight)]) for weight in weights[:2])
    assert (first.name(weights[0]), second.name(weights[1])) == ("Gradient.w", "Gradient.2.w")
    first.remove()
    third = GradientExchange([("w", weights[2])])
    assert third.name(weights[2]) == "Gradient.w"
    other = GradientExchange([("w", weights[3])], prefix="Other.")
    assert other.name(weights[3]) == "Other.w"


def test_while_it_is_paused_gradients_stay_here(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    exchange = GradientExchange([("w", weight)])
    exchange.paused = True
    for _ in range(2):
        weight.sum().backward()
    exchange.paused = False
    assert not session._client.calls and not exchange.is_open
    weight.sum().backward()
    assert len(session._client.calls) == 1 and weight.grad is not None and weight.grad.tolist() == [3.0, 3.0]


def test_after_resume_everything_is_declared_in_the_new_membership(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    exchange = GradientExchange([("w", weight)])
    for place in (SECOND_OF_TWO, Place(0, 1, 0, 1), Place(2, 3, 0, 1)):
        later = make_session(place)
        monkeypatch.setattr(current, "session", later)
        for _ in range(2):
            weight.sum().backward()
            exchange.synchronize()
        names = {name for name, _ in pushed(later)}
        assert names == (set() if later.size == 1 else {"Gradient.w", MAP[0]})
    monkeypatch.setattr(current, "session", None)
    with pytest.raises(NotInitializedError):
        weight.sum().backward()


def test_a_lost_peer_is_raised_by_synchronize(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    exchange = GradientExchange([("w", weight)])
    weight.sum().backward()
    session._client.handles[-1].complete(PeerLostError("worker 0 is gone", "worker", 0, "host"))
    with pytest.raises(PeerLostError, match="worker 0 is gone"):
        exchange.synchronize()


def test_restart_names_the_operation_and_the_gradient(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    exchange = GradientExchange([("w", weight)], passes_per_step=2)
    weight.sum().backward()
    assert exchange.is_between_passes
    exchange.restart("zero_grad")
    for _ in range(2):
        weight.sum().backward()
    assert not exchange.is_between_passes
    with pytest.raises(BytePSError, match=r"zero_grad: the gradient Gradient\.w"):
        exchange.restart("zero_grad")
