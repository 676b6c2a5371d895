"""GradientExchange over planes driven by hand: what is pushed, when, from where, and how urgently."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import planes  # noqa: E402

from byteps import config  # noqa: E402
from byteps.errors import BytePSError, NotInitializedError, PeerLostError  # noqa: E402
from byteps.tensor import dtypes  # noqa: E402
from byteps.torch.compression import Compression  # noqa: E402
from byteps.torch.gradients import GradientExchange  # noqa: E402
from byteps.torch.in_flight import InFlight  # noqa: E402
from byteps.worker import current  # noqa: E402
from byteps.worker.interface import Place  # noqa: E402
from byteps.worker.session import Session  # noqa: E402


class Client(planes.FakeClient):
    """Operations are done at once. The roll call is answered as if all ranks did what this one does."""

    ranks = 2
    holds = False  # gradients are not done: the test says when

    def push_pull(self, *call: Any) -> planes.FakeHandle:
        handle = super().push_pull(*call)
        nbytes = {f"native {each[0]}": each[3] for each in self.declared if ROLL_CALL in each[1]}
        if call[0] in nbytes:
            for address in range(call[2], call[2] + nbytes[call[0]], 4):
                ctypes.c_int32.from_address(address).value *= self.ranks
        if call[0] in nbytes or not self.holds:
            handle.complete()
        return handle


ROLL_CALL = "used parameters"
SECOND_OF_TWO = Place(1, 2, 0, 1)


def make_session(place: Place = SECOND_OF_TWO, arena: bool = False) -> Session:
    client = Client()
    client.ranks = place.size
    return Session(config.load({}), place, planes.FakeControl(), client, shares_memory=arena)


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


MAP = (f"Gradient.{ROLL_CALL}", 1)


def test_everything_is_declared_with_one_message_and_pushed_as_it_comes(session: Session) -> None:
    model = layers()
    exchange = GradientExchange(model.named_parameters())
    assert len(session._control.messages) == 1 and session._control.barriers == 1
    loss = model(torch.ones(2, 3)).sum()
    assert not session._client.calls
    exchange.waits = False
    loss.backward()
    assert sorted(name for name, _ in pushed(session)[:-1]) == sorted(
        f"Gradient.{n}" for n, _ in model.named_parameters()
    )
    assert pushed(session)[-1] == MAP and not exchange.is_open and not exchange.needs_exchange
    assert list(exchange.handles) == exchange.parameters
    exchange.wait(model[0].bias)
    assert set(exchange.handles) == set(exchange.parameters) - {model[0].bias}
    for parameter in exchange.parameters:
        exchange.wait(parameter)
    assert not exchange.handles
    exchange.waits = True
    model(torch.ones(2, 3)).sum().backward()
    assert not exchange.handles and len(pushed(session)) == 10  # the end of backward() waits


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


def gradient_calls(session: Session) -> list[Any]:
    """Every push-pull but roll calls, which have a priority of their own."""
    return [call for call in session._client.calls if call[4] != MAP[1]]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_on_one_machine_the_gradient_is_what_was_pushed_in_shared_memory(
    set_to_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(arena=True)
    monkeypatch.setattr(current, "session", session)
    weight = torch.nn.Parameter(torch.ones(4, 6).t())  # strides of the memory are kept
    GradientExchange([("w", weight)])
    places = set()
    for step in range(3):
        if weight.grad is not None:
            weight.grad = None if set_to_none else weight.grad.zero_()
        (weight * (step + 1)).sum().backward()
        assert weight.grad is not None and weight.grad.stride() == weight.stride()
        assert weight.grad.eq(step + 1).all()
        call = gradient_calls(session)[-1]
        assert call[2] == call[3] == weight.grad.data_ptr()
        places.add(weight.grad.data_ptr())
    assert len(places) == 1


def test_elsewhere_the_gradient_of_autograd_is_pushed_in_place(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(5))
    exchange = GradientExchange([("w", weight)], average=False)
    weight.sum().backward()
    assert weight.grad is not None and gradient_calls(session)[-1][2] == weight.grad.data_ptr()
    assert gradient_calls(session)[-1][5] is False  # a sum
    exchange.remove()
    weight.sum().backward()
    assert len(gradient_calls(session)) == 1


@pytest.mark.parametrize("arena", [True, False])
@pytest.mark.parametrize("hold", ["gradient", "view", "data"])
def test_a_gradient_that_a_script_keeps_stays_as_it_is(
    arena: bool, hold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(arena=arena)
    monkeypatch.setattr(current, "session", session)
    weight = torch.nn.Parameter(torch.ones(4, 6).t())
    GradientExchange([("w", weight)])
    kept = []
    for step in range(3):
        weight.grad = None
        (weight * (step + 1)).sum().backward()
        grad = weight.grad
        assert grad is not None
        kept.append({"gradient": grad, "view": grad[1:], "data": grad.data}[hold])
    assert [float(each[0, 0]) for each in kept] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("arena", [True, False])
def test_memory_of_the_user_stays_the_gradients(arena: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(arena=arena)
    monkeypatch.setattr(current, "session", session)
    weight = torch.nn.Parameter(torch.ones(4, 6).t())
    GradientExchange([("w", weight)])
    flat = torch.zeros(100)
    weight.grad = flat[10:34].view(4, 6).t()
    weight.sum().backward()
    assert flat.sum() == 24 and weight.grad.data_ptr() == flat[10:].data_ptr()
    mine = weight.grad = torch.zeros(4, 6).t()
    weight.sum().backward()
    assert weight.grad is mine and mine.sum() == 24
    weight.grad.data = torch.full((4, 6), 5.0).t()  # as old scripts do
    weight.grad = None
    weight.sum().backward()
    assert weight.grad is not None and weight.grad.sum() == 24


def test_whoever_touches_a_gradient_on_its_way_waits_for_it(session: Session) -> None:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    exchange = GradientExchange([(f"w{i}", weight) for i, weight in enumerate(weights)])
    exchange.waits, session._client.holds = False, True
    sum(weight.sum() for weight in weights).backward()
    grads = [weight.grad for weight in weights]
    assert all(type(grad) is InFlight for grad in grads)
    assert grads[0].shape == (2,) and grads[0].dtype is torch.float32 and len(exchange.handles) == 2
    for handle in session._client.handles:
        handle.complete()
    assert sum(float(grad.sum()) for grad in grads) == 4.0
    assert all(type(grad) is torch.Tensor for grad in grads) and not exchange.handles


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
    assert (
        len(gradient_calls(session)) == 1 and weight.grad is not None and weight.grad.tolist() == [3.0, 3.0]
    )


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


def test_a_lost_peer_is_raised_by_backward(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    GradientExchange([("w", weight)])
    lost = PeerLostError("worker 0 is gone", "worker", 0, "host")
    session._client.holds = True
    weight.register_post_accumulate_grad_hook(lambda _: session._client.handles[0].complete(lost))
    with pytest.raises(PeerLostError, match="worker 0 is gone"):
        weight.sum().backward()


def test_restart_names_the_operation_and_the_gradient(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    exchange = GradientExchange([("w", weight)], passes_per_step=2)
    weight.sum().backward()
    assert exchange.is_open and exchange.passes_left == 1
    exchange.restart("zero_grad")
    assert not exchange.is_open and exchange.passes_left == 2
    exchange.waits = False
    for _ in range(2):
        weight.sum().backward()
    with pytest.raises(BytePSError, match=r"zero_grad: the gradient Gradient\.w"):
        exchange.restart("zero_grad")


def test_ranks_that_are_not_equally_far_are_refused(session: Session) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    exchange = GradientExchange([("w", weight)])
    for _ in range(200):  # further than the numbers of a roll call go
        weight.sum().backward()
    session._client.ranks = 3  # a sum that two ranks like this one cannot make
    with pytest.raises(BytePSError, match="not equally far"):
        weight.sum().backward()
    assert exchange.needs_exchange is False
