"""What ranks must agree on: names, declarations, barriers; and what is said when they do not."""

from __future__ import annotations

import numpy as np
from suite import Context, check, raises

from byteps.errors import ConfigError, DeclarationError, UnsupportedTensorError
from byteps.testing import exact


@check
def another_shape_or_dtype_under_one_name(c: Context) -> None:
    uses = [((4,), "float32"), ((9, 2), "float32"), ((9, 2), "int32"), ((4,), "float32"), ((0,), "int8")] * 3
    handles = [
        c.bps.push_pull_async(c.mine(shape, dtype, i), average=False, name=c.name("x"))
        for i, (shape, dtype) in enumerate(uses)
    ]
    for i, (shape, dtype) in enumerate(uses):
        c.expect(c.bps.synchronize(handles[i]), shape, dtype, average=False, salt=i)


@check
def without_a_name(c: Context) -> None:
    for i, shape in enumerate([(3,), (4, 2), (3,), (), (4, 2), (3,)]):
        c.expect(c.bps.push_pull(c.mine(shape, salt=i), average=False), shape, average=False, salt=i)
    handles = [c.bps.push_pull_async(c.mine((8,), salt=i)) for i in range(5)]
    for i, handle in enumerate(handles):
        c.expect(c.bps.synchronize(handle), (8,), average=True, salt=i)
    root = c.size - 1
    got = c.bps.broadcast(c.mine((6,)), root)
    np.testing.assert_array_equal(c.api.values(got), exact.contribution(root, (6,)))


@check
def declared_ahead(c: Context) -> None:
    tensors = {c.name(i): c.mine((i,), salt=i) for i in range(20)}
    c.bps.declare(tensors)
    c.bps.declare(c.name("alone"), c.mine((2,)))
    c.bps.declare(c.name("only a name"))
    for i, (name, tensor) in enumerate(tensors.items()):
        c.expect(c.bps.push_pull(tensor, average=False, name=name), (i,), average=False, salt=i)


@check
def poll_tells_when_it_is_done(c: Context) -> None:
    handle = c.bps.push_pull_async(c.mine((10,)), name=c.name("x"))
    assert c.bps.poll(handle) in (True, False)
    first = c.bps.synchronize(handle)
    assert c.bps.poll(handle) is True
    assert c.bps.synchronize(handle) is first
    for nonsense in (None, 7, "handle"):
        for verb in (c.bps.poll, c.bps.synchronize):
            raises(TypeError, "push_pull_async", verb, nonsense)


@check
def barrier_waits_for_everybody(c: Context) -> None:
    for i in range(5):
        (c.folder / c.name(i, c.rank)).touch()
        c.bps.barrier()
        missing = [r for r in range(c.size) if not (c.folder / c.name(i, r)).exists()]
        assert not missing, f"left barrier {i} before ranks {missing}"


@check
def ranks_that_disagree_are_named(c: Context) -> None:
    if c.size == 1:
        return
    odd = c.rank == c.size - 1
    cases: dict[str, tuple[tuple[int, ...], str, list[str]]] = {
        "shape": ((3, 4) if odd else (4, 3), "float32", ["[3, 4]", "[4, 3]"]),
        "dtype": ((5,), "float64" if odd else "float32", ["float64", "float32"]),
    }
    for case, (shape, dtype, words) in cases.items():
        name = c.name(case)
        error = raises(DeclarationError, name, c.bps.push_pull, c.mine(shape, dtype), name=name)
        for word in (*words, f"worker {c.size - 1}"):
            assert word in str(error), f"{word!r} is not in: {error}"
        assert any(f"worker {rank}" in str(error) for rank in range(c.size - 1)), error
        raises(DeclarationError, name, c.bps.push_pull, c.mine(shape, dtype), name=name)  # and again
        c.bps.barrier()  # now all of them know
        # The job goes on, and so does the name, once ranks agree.
        c.expect(c.bps.push_pull(c.mine((2, 2)), name=name), (2, 2), average=True)


@check
def zero_elements_are_compared_too(c: Context) -> None:
    if c.size == 1:
        return
    tensor = c.mine((0,) if c.rank == 0 else (1,))
    c.bps.declare(c.name("only declared"), c.mine((0, 3)))
    if c.rank == 0:
        c.bps.declare(c.name("x"), tensor)
    c.bps.barrier()
    if c.rank != 0:
        raises(DeclarationError, "[0]", c.bps.push_pull, tensor, name=c.name("x"))
    c.bps.barrier()  # now rank 0 has been told, too
    raises(DeclarationError, "[1]", c.bps.push_pull, tensor, name=c.name("x"))


@check
def ranks_that_disagree_on_what_to_do_are_told(c: Context) -> None:
    if c.size == 1:
        return
    name = c.name("average")
    average = c.rank == 0
    error = raises(Exception, name, c.bps.push_pull, c.mine((5,)), name=name, average=average)
    assert "average" in str(error) and "sum" in str(error), error
    c.bps.barrier()


@check
def what_cannot_be_sent_is_refused(c: Context) -> None:
    raises(ConfigError, "root_rank", c.bps.broadcast, c.mine((3,)), c.size, name=c.name("root"))
    raises(
        ValueError,
        "twobit",
        c.bps.push_pull,
        c.mine((3,)),
        name=c.name("codec"),
        compression_params={"compressor": "twobit"},
    )
    for dtype in c.api.refused:
        tensor = c.api.make(np.zeros(3, np.int64), dtype)
        for verb in (c.bps.push_pull, c.bps.push_pull_async):
            error = raises(UnsupportedTensorError, dtype, verb, tensor, name=c.name(dtype))
            assert "bfloat16" in str(error) and c.name(dtype) in str(error)
