"""The dictionary ``compression_params``: every rule, the documents' dictionaries, and the canonical text."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byteps.compress import CodecSpec, parse
from byteps.compress.params import COMPRESSORS, EF

# As the users' documents have them.
DOCUMENTED: list[tuple[dict[str, Any], str]] = [
    (
        {"compressor": "onebit", "ef": "vanilla", "momentum": "nesterov", "scaling": True},
        "compressor=onebit,scaling=true,ef=vanilla,momentum=nesterov",
    ),
    ({"compressor": "dithering", "k": 2}, "compressor=dithering,k=2,normalize=max,partition=linear"),
    (
        {"compressor": "dithering", "partition": "natural", "k": 2},
        "compressor=dithering,k=2,normalize=max,partition=natural",
    ),
    (
        {"compressor": "topk", "k": 0.001, "ef": "vanilla", "momentum": "nesterov"},
        "compressor=topk,k=0.001,ef=vanilla,momentum=nesterov",
    ),
    (
        {"compressor": "randomk", "k": 0.001, "ef": "vanilla", "momentum": "nesterov"},
        "compressor=randomk,k=0.001,ef=vanilla,momentum=nesterov",
    ),
    ({"fp16": True}, "fp16=true"),
    ({"compressor": "int8"}, "compressor=int8,rounding=stochastic"),
    ({"compressor": "int4", "ef": "vanilla"}, "compressor=int4,ef=vanilla,rounding=nearest"),
    (
        {"compressor": "int8", "ef": "corrected", "rounding": "stochastic"},
        "compressor=int8,ef=corrected,rounding=stochastic",
    ),
]

# The dictionary of a script's arguments, none of which was given.
UNSET = {
    "compressor": None,
    "ef": None,
    "momentum": None,
    "scaling": False,
    "k": None,
    "normalize": None,
    "partition": None,
    "rounding": None,
    "fp16": False,
}


@pytest.mark.parametrize(("params", "text"), DOCUMENTED)
def test_the_dictionaries_of_the_documents(params: dict[str, Any], text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(params).text() == text
        assert parse({**UNSET, **params}) == parse(params)  # a script that passes every argument
    assert CodecSpec.from_text(text) == parse(params)


def test_nothing_given_is_no_codec() -> None:
    assert parse(None) == parse({}) == parse(UNSET) == CodecSpec()
    assert parse({name: "" for name in UNSET}) == CodecSpec()
    assert CodecSpec().codec is None
    assert CodecSpec().text() == "" and CodecSpec.from_text("") == CodecSpec()


def test_the_misspelling_of_one_document() -> None:
    natural = {"compressor": "dithering", "k": 2, "partiton": "natural"}
    assert parse(natural).partition == "natural"
    assert parse({**natural, "partition": "natural"}).partition == "natural"
    with pytest.raises(ValueError, match="given twice"):
        parse({**natural, "partition": "linear"})


def test_momentum_alone_and_fp16_with_error_feedback() -> None:
    assert parse({"momentum": "nesterov"}).codec is None
    assert parse({"fp16": True, "ef": "vanilla"}).codec == "fp16"


def test_fp16_beside_a_compressor_warns() -> None:
    with pytest.warns(UserWarning, match="fp16 together with the compressor 'onebit' only slows"):
        spec = parse({"compressor": "onebit", "fp16": True})
    assert spec.codec == "onebit" and spec.fp16


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"compresor": "onebit"}, "compresor", "unknown key; valid keys are compressor, k, scaling"),
    ({"compressor": "twobit"}, "compressor", "'onebit', 'topk', 'randomk', 'dithering', 'int8', 'int4'"),
    ({"compressor": 1}, "compressor", "'onebit'"),
    ({"compressor": "topk"}, "k", "required for 'topk'"),
    ({"compressor": "randomk"}, "k", "required for 'randomk'"),
    ({"compressor": "dithering"}, "k", "required for 'dithering'"),
    ({"compressor": "onebit", "k": 2}, "k", "only with compressor 'topk' or 'randomk' or 'dithering'"),
    ({"k": 2}, "k", "only with compressor"),
    ({"compressor": "topk", "k": 0}, "k", "0 < k < 1"),
    ({"compressor": "topk", "k": -3}, "k", "0 < k < 1"),
    ({"compressor": "topk", "k": 2.5}, "k", "0 < k < 1"),
    ({"compressor": "topk", "k": float("nan")}, "k", "0 < k < 1"),
    ({"compressor": "topk", "k": float("inf")}, "k", "0 < k < 1"),
    ({"compressor": "topk", "k": True}, "k", "0 < k < 1"),
    ({"compressor": "topk", "k": "0.1"}, "k", "0 < k < 1"),
    ({"compressor": "dithering", "k": 0.5}, "k", "integer number of levels"),
    ({"compressor": "dithering", "k": 128, "partition": "natural"}, "k", "1 to 127 levels"),
    ({"compressor": "dithering", "k": 2**20 + 1}, "k", "1 to 1048576 levels"),
    ({"compressor": "topk", "k": 1, "scaling": True}, "scaling", "only with compressor 'onebit'"),
    ({"compressor": "onebit", "scaling": "yes"}, "scaling", "True and False"),
    ({"compressor": "onebit", "ef": "sparse"}, "ef", "only with compressor 'randomk'"),
    ({"compressor": "onebit", "ef": "plain"}, "ef", "'vanilla', 'corrected', 'sparse'"),
    ({"ef": "vanilla"}, "ef", "only with a compressor or with fp16"),
    ({"compressor": "onebit", "momentum": "heavy"}, "momentum", "'nesterov'"),
    ({"compressor": "onebit", "normalize": "max"}, "normalize", "only with compressor 'dithering'"),
    ({"compressor": "dithering", "k": 2, "normalize": "l1"}, "normalize", "'max', 'l2'"),
    ({"compressor": "dithering", "k": 2, "partition": "log"}, "partition", "'linear', 'natural'"),
    ({"compressor": "topk", "k": 1, "partition": "natural"}, "partition", "only with compressor 'dithering'"),
    ({"compressor": "int8", "rounding": "up"}, "rounding", "'nearest', 'stochastic'"),
    ({"compressor": "onebit", "rounding": "nearest"}, "rounding", "only with compressor 'int8' or 'int4'"),
    ({"compressor": "int8", "k": 8}, "k", "only with compressor 'topk'"),
    ({"compressor": "int4", "ef": "sparse"}, "ef", "only with compressor 'randomk'"),
    ({"compressor": "randomk", "k": 1, "seed": 0}, "seed", "positive integer"),
    ({"compressor": "randomk", "k": 1, "seed": 1.5}, "seed", "positive integer"),
    ({"fp16": "half"}, "fp16", "True and False"),
]


@pytest.mark.parametrize(("params", "key", "valid"), REFUSED)
def test_what_does_not_fit_is_refused(params: dict[str, Any], key: str, valid: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(params)
    message = str(caught.value)
    assert message.startswith(f"compression_params[{key!r}] = {params.get(key)!r}: ")
    assert valid in message


def test_numbers_of_numpy_and_whole_floats() -> None:
    assert parse({"compressor": "topk", "k": np.float32(0.5)}).k == 0.5
    assert parse({"compressor": "topk", "k": 3.0}).text() == "compressor=topk,k=3"
    assert parse({"compressor": "dithering", "k": np.int64(2), "seed": np.int32(7)}).seed == 7
    assert parse({"compressor": "onebit", "scaling": np.bool_(True)}).scaling is True


@pytest.mark.parametrize(
    ("k", "elements", "count"), [(0.001, 1, 1), (0.001, 1_024_000, 1024), (0.5, 3, 1), (1, 9, 1), (10, 4, 4)]
)
def test_how_many_elements_travel(k: float, elements: int, count: int) -> None:
    assert parse({"compressor": "topk", "k": k}).count(elements) == count


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    params: dict[str, Any] = {"compressor": draw(st.sampled_from(COMPRESSORS))}
    if params["compressor"] in ("topk", "randomk"):
        whole = st.integers(1, 2**28)
        params["k"] = draw(whole | st.floats(0, 1, exclude_min=True, exclude_max=True))
    if params["compressor"] == "dithering":
        params["k"] = draw(st.integers(1, 127))
        params["normalize"] = draw(st.sampled_from(["max", "l2", None]))
        params["partition"] = draw(st.sampled_from(["linear", "natural", None]))
    if params["compressor"] == "onebit":
        params["scaling"] = draw(st.booleans())
    if params["compressor"] in ("int8", "int4"):
        params["rounding"] = draw(st.sampled_from(["nearest", "stochastic", None]))
    usable = EF if params["compressor"] == "randomk" else EF[:2]
    params["ef"] = draw(st.sampled_from([*usable, None]))
    params["momentum"] = draw(st.sampled_from(["nesterov", None]))
    params["seed"] = draw(st.integers(1, 2**63 - 1) | st.none())
    return params


@settings(deadline=None)
@given(specs())
def test_the_text_says_everything_and_comes_back(params: dict[str, Any]) -> None:
    spec = parse(params)
    assert CodecSpec.from_text(spec.text()) == spec
    shuffled = dict(reversed(params.items()))
    assert parse(shuffled).text() == spec.text()


@pytest.mark.parametrize(
    "text",
    [
        "onebit",
        "k=2,compressor=topk",
        "compressor=topk,k=2.0",
        "compressor=topk,k=x",
        "compressor=onebit,scaling=false",
        "compressor=dithering,k=2",
        "compressor=onebit,seed=-1",
        "compressor=int8",
        "compressor=onebit,,",
    ],
)
def test_a_text_that_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("text") + "|compression_params"):
        CodecSpec.from_text(text)
