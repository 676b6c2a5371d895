"""The table of declared tensors: batches, generations, refusals, names made from the order of calls."""

from __future__ import annotations

import threading
from typing import cast

import planes
import pytest

from byteps import config
from byteps.errors import ConfigError, DeclarationError, OutOfMemoryError
from byteps.worker.interface import Spec
from byteps.worker.tensors import Tensors, codec_of

FLOAT32, FLOAT64, INT32 = 0, 1, 4


@pytest.fixture
def control() -> planes.FakeControl:
    return planes.FakeControl()


@pytest.fixture
def client() -> planes.FakeClient:
    return planes.FakeClient()


@pytest.fixture
def tensors(control: planes.FakeControl, client: planes.FakeClient) -> Tensors:
    return Tensors(control, client, config.load({}))


def test_many_tensors_are_declared_with_one_message(tensors: Tensors, control: planes.FakeControl) -> None:
    tensors.declare(Spec(f"t{i}", FLOAT32, (i, 2)) for i in range(1, 200))
    assert len(control.messages) == 1
    assert len(tensors.by_name) == 199


def test_the_core_gets_bytes_and_the_partition_size_of_the_scheduler(
    tensors: Tensors, client: planes.FakeClient
) -> None:
    tensors.declare([Spec("x", FLOAT64, (3, 5))])
    assert client.declared == [(0, "x", FLOAT64, 120, planes.PARTITION_BYTES, [(0, 0)], False)]


def test_a_tensor_declared_alike_costs_no_message(tensors: Tensors, control: planes.FakeControl) -> None:
    for _ in range(3):
        tensors.declare([Spec("x", FLOAT32, (2,)), Spec("y", FLOAT32, ())])
    assert len(control.messages) == 1


@pytest.mark.parametrize(
    "changed",
    [Spec("x", FLOAT32, (3,)), Spec("x", FLOAT64, (2,)), Spec("x", FLOAT32, (2,), "compressor=onebit")],
)
def test_a_changed_tensor_is_the_next_generation(
    tensors: Tensors, control: planes.FakeControl, changed: Spec
) -> None:
    first = Spec("x", FLOAT32, (2,))
    for spec in (first, changed, first):
        tensors.declare([spec])
    assert control.messages == [[(first, 0)], [(changed, 1)], [(first, 2)]]


def test_a_part_has_the_generation_of_its_whole(tensors: Tensors, control: planes.FakeControl) -> None:
    rail = Spec("x.rail.0", FLOAT32, (2,), direct=True, generation=2)
    for spec in (rail, rail, rail._replace(generation=3)):
        tensors.declare([spec])
    assert [number for batch in control.messages for _, number in batch] == [2, 3]


def test_the_next_generation_waits_for_operations_in_flight(tensors: Tensors) -> None:
    tensors.declare([Spec("x", FLOAT32, (2,))])
    handle = planes.FakeHandle()
    tensors.by_name["x"].track(handle)
    thread = threading.Thread(target=tensors.declare, args=([Spec("x", FLOAT32, (3,))],))
    thread.start()
    # Meanwhile another thread may declare: the one we wait for could need it.
    tensors.declare([Spec("y", FLOAT32, ())])
    assert tensors.by_name["x"].generation == 0
    handle.complete(planes.FakeOpError("how it ended is the business of its handle"))
    thread.join(10.0)
    assert tensors.by_name["x"].generation == 1


def test_finished_operations_are_forgotten(tensors: Tensors) -> None:
    tensors.declare([Spec("x", FLOAT32, (2,))])
    tensor = tensors.by_name["x"]
    for _ in range(1000):
        handle = planes.FakeHandle()
        handle.complete()
        tensor.track(handle)
    assert len(tensor.pending) <= 8


def test_zero_elements_are_declared_but_unknown_to_the_core(
    tensors: Tensors, control: planes.FakeControl, client: planes.FakeClient
) -> None:
    tensors.declare([Spec("empty", FLOAT32, (4, 0))])
    assert len(control.messages) == 1
    assert client.declared == []
    assert tensors.by_name["empty"].native is None


class TestRefused:
    def test_only_the_refused_one_of_a_batch_is_unusable(
        self, tensors: Tensors, control: planes.FakeControl
    ) -> None:
        def refuse(specs: object) -> None:
            for spec, _ in cast("list[tuple[Spec, int]]", specs):
                if spec.name == "bad":
                    raise DeclarationError("ranks disagree on bad")

        control.on_declare = refuse
        with pytest.raises(DeclarationError, match="disagree on bad"):
            tensors.declare(Spec(name, FLOAT32, (1,)) for name in ("good", "bad", "fine"))
        assert tensors.by_name["good"].native and tensors.by_name["fine"].native
        with pytest.raises(DeclarationError, match="disagree on bad"):  # again, without asking again
            tensors.declare([Spec("bad", FLOAT32, (1,))])

    def test_generations_stay_in_step_with_the_other_ranks(
        self, tensors: Tensors, control: planes.FakeControl
    ) -> None:
        def refuse(specs: object) -> None:
            raise DeclarationError("no")

        control.on_declare = refuse
        with pytest.raises(DeclarationError):
            tensors.declare([Spec("x", FLOAT32, (1,))])
        control.on_declare = lambda specs: None
        tensors.declare([Spec("x", FLOAT32, (2,))])
        assert control.messages[-1] == [(Spec("x", FLOAT32, (2,)), 1)]

    def test_a_conflict_found_later_fails_the_tensor(
        self, tensors: Tensors, client: planes.FakeClient
    ) -> None:
        tensors.declare([Spec("x", FLOAT32, (1,))])
        tensors.refuse("x", 0, "worker 1 says float64")
        assert client.failures == [(0, "worker 1 says float64", False)]
        with pytest.raises(DeclarationError, match="worker 1 says float64"):
            tensors.declare([Spec("x", FLOAT32, (1,))])

    def test_a_lack_of_memory_elsewhere_is_one_here(
        self, tensors: Tensors, client: planes.FakeClient
    ) -> None:
        tensors.declare([Spec("x", FLOAT32, (1,))])
        tensors.refuse("x", 0, "worker 1 cannot hold it", True)
        assert client.failures == [(0, "worker 1 cannot hold it", True)]
        with pytest.raises(OutOfMemoryError, match="worker 1 cannot hold it"):
            tensors.declare([Spec("x", FLOAT32, (1,))])

    def test_who_has_no_memory_for_a_tensor_tells_the_others(
        self, tensors: Tensors, control: planes.FakeControl, client: planes.FakeClient
    ) -> None:
        def declare(tensor_id: int, name: str, *arguments: object, **options: object) -> str:
            if name == "large":
                raise MemoryError("large: worker 1: no memory for 4 bytes")
            return "native"

        client.declare = declare  # type: ignore[method-assign,assignment]
        with pytest.raises(OutOfMemoryError, match="large: worker 1: no memory for 4 bytes"):
            tensors.declare(Spec(name, FLOAT32, (1,)) for name in ("small", "large", "other"))
        assert control.lacks == [(1, "worker 1: no memory for 4 bytes")]
        assert tensors.by_name["small"].native and tensors.by_name["other"].native

    def test_a_conflict_may_come_before_the_declaration_returns(
        self, tensors: Tensors, control: planes.FakeControl, client: planes.FakeClient
    ) -> None:
        control.on_declare = lambda specs: tensors.refuse("x", 0, "worker 1 says float64")
        with pytest.raises(DeclarationError, match="worker 1 says float64"):
            tensors.declare([Spec("x", FLOAT32, (1,))])
        assert client.failures == [(0, "worker 1 says float64", False)]

    def test_a_conflict_of_an_older_generation_is_no_longer_of_interest(
        self, tensors: Tensors, client: planes.FakeClient
    ) -> None:
        tensors.declare([Spec("x", FLOAT32, (1,))])
        tensors.declare([Spec("x", FLOAT32, (2,))])
        tensors.refuse("x", 0, "too late")
        assert client.failures == []


@pytest.mark.parametrize("name", ["", 5, None, b"x", "x" * 4097, "\u00e9" * 2049, "a\nb", "a\0", "\ud800"])
def test_a_name_that_cannot_be_sent_is_refused_here(
    tensors: Tensors, control: planes.FakeControl, name: str
) -> None:
    with pytest.raises(ConfigError, match="the name of a tensor is"):
        tensors.declare([Spec(name, FLOAT32, (1,))])
    assert control.messages == []


class TestAutomaticNames:
    def test_the_same_order_gives_the_same_names(self) -> None:
        calls = [((2,), FLOAT32), ((3,), FLOAT32), ((2,), FLOAT32), ((2,), FLOAT64), ((3,), FLOAT32)]

        def names() -> list[str]:
            table = Tensors(planes.FakeControl(), planes.FakeClient(), config.load({}))
            return [table.automatic_name("push_pull", dtype, shape, "") for shape, dtype in calls]

        assert names() == names() == [f"push_pull.noname.{i}" for i in (0, 1, 0, 3, 1)]

    def test_the_first_difference_in_order_meets_in_one_name(self, tensors: Tensors) -> None:
        other = Tensors(planes.FakeControl(), planes.FakeClient(), config.load({}))
        assert tensors.automatic_name("push_pull", FLOAT32, (2,), "") == other.automatic_name(
            "push_pull", FLOAT32, (3,), ""
        )

    def test_verbs_count_apart(self, tensors: Tensors) -> None:
        assert tensors.automatic_name("broadcast", 0, (), "") == "broadcast.noname.0"
        assert tensors.automatic_name("push_pull", 0, (), "") == "push_pull.noname.0"

    def test_a_loop_does_not_make_new_names(self, tensors: Tensors) -> None:
        assert len({tensors.automatic_name("push_pull", 0, (5,), "") for _ in range(1000)}) == 1


def test_the_codec_of_parameters_is_their_canonical_text() -> None:
    assert codec_of(None) == codec_of({}) == codec_of({"compressor": None, "fp16": False}) == ""
    assert codec_of({"scaling": True, "compressor": "onebit"}) == "compressor=onebit,scaling=true"
    with pytest.raises(ValueError, match=r"compressor.*'twobit'.*onebit"):
        codec_of({"compressor": "twobit"})
    with pytest.raises(ValueError, match="k"):
        codec_of({"compressor": "topk", "k": []})
    codec_of({"compressor": "topk", "k": 1})
    with pytest.raises(ValueError, match="True"):  # equal to 1 in a table, and yet no number
        codec_of({"compressor": "topk", "k": True})


def test_what_is_compressed(control: planes.FakeControl, client: planes.FakeClient) -> None:
    limit = {"BYTEPS_MIN_COMPRESS_BYTES": "64", "DMLC_NUM_WORKER": "2"}
    tensors = Tensors(control, client, config.load(limit))
    codec = "compressor=onebit,momentum=nesterov"
    specs = [
        Spec("large", FLOAT32, (16,), codec),
        Spec("small", FLOAT32, (15,), codec),
        Spec("integer", INT32, (16,), codec),
        Spec("plain", FLOAT32, (16,)),
    ]
    tensors.declare(specs)
    told = {spec.name: spec.codec for spec, _ in control.messages[0]}
    assert told["large"] == told["integer"] == codec
    assert told["small"].startswith(codec) and "fewer than 64 bytes" in told["small"]
    options = dict(zip(("large", "small", "integer", "plain"), client.options, strict=True))
    assert options["large"]["codec"] is not None and options["large"]["momentum"]
    assert options["small"] == {"codec": None, "momentum": True}
    assert options["integer"] == options["plain"] == {}
    assert [tensors.by_name[spec.name].is_rated for spec in specs] == [True, True, False, False]
    tensors.declare(specs)
    assert len(control.messages) == 1


def test_rates_reach_tensors_before_and_after_they_are_declared(tensors: Tensors) -> None:
    codec = "momentum=nesterov"
    tensors.declare([Spec("a", FLOAT32, (2,), codec)])
    assert (tensors.by_name["a"].lr, tensors.by_name["a"].mu) == (0.0, 0.9)
    tensors.set_rates(None, 0.1, None)
    tensors.set_rates(["b"], None, 0.5)
    tensors.declare([Spec("b", FLOAT32, (2,), codec)])
    assert [(tensors.by_name[name].lr, tensors.by_name[name].mu) for name in "ab"] == [(0.1, 0.9), (0.1, 0.5)]
