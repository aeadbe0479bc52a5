"""Extents to measure with: as they are written, what they give symbols, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from motet.artifact.schema import SCHEMA_VERSION, Manifest, Plan, Signature, Step, Symbol, TensorSpec
from motet.compiler.tuning.inputs import parse_inputs, random_inputs, region_symbols, symbols_of
from motet.errors import OptionError

ROWS = Signature(
    "rows", [TensorSpec("x", ["n", 4], "f32"), TensorSpec("i", ["n"], "i64")],
    [TensorSpec("y", [["*", "n", 2]], "f32")], [Symbol("n", 0, 0)],
)


def test_shapes_give_symbols_their_values() -> None:
    assert symbols_of(ROWS, parse_inputs("7x4xf32,7xi64")) == {"n": 7}
    assert symbols_of(ROWS, parse_inputs("other:f32;rows: 3x4xf32, 3xi64")) == {"n": 3}
    assert symbols_of(Signature("f", [TensorSpec("x", [2], "f32")], [], []), {}) == {}


@pytest.mark.parametrize("text", ["7x4xf32", "7x4xf32,8xi64", "7x5xf32,7xi64", "7x4xf32,7xi32", "f32,i64"])
def test_shapes_that_do_not_fit_are_refused_with_those_that_would(text: str) -> None:
    with pytest.raises(OptionError, match=r"does not fit rows; expected nx4xf32,nxi64 with numbers for n"):
        symbols_of(ROWS, parse_inputs(text))


def test_dynamic_extents_have_to_be_given() -> None:
    with pytest.raises(OptionError, match=r"rows has dynamic extents; .*tune-inputs=nx4xf32,nxi64 with numbers for n"):
        symbols_of(ROWS, {})


@pytest.mark.parametrize("text", ["7x4", "x4xf32", "7x?xf32", "4xf33", "a:4xf32;a:4xf32"])
def test_text_that_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option tune-inputs="):
        parse_inputs(text)


def test_regions_have_the_extents_that_values_have_in_the_plan() -> None:
    first = Signature("first", ROWS.inputs, ROWS.results, ROWS.symbols)
    second = Signature("second", [TensorSpec("y", ["k"], "f32")], [TensorSpec("z", ["k"], "f32")], [Symbol("k", 0, 0)])
    steps = [
        Step("run", 0, [0, 1], [2], "first"), Step("transfer", 1, [2], [3]), Step("run", 1, [3], [4], "second"),
    ]
    plan = Plan(5, [0, 1], [4], [0, 0], [0], steps)
    manifest = Manifest(
        SCHEMA_VERSION, "test", [ROWS], [], [], {}, plans={"rows": plan}, regions={"first": first, "second": second},
    )
    found = region_symbols(manifest, parse_inputs("5x4xf32,5xi64"))
    assert found == {"first": {"n": 5}, "second": {"k": 10}}


def test_inputs_are_of_the_signature_and_integers_serve_as_indices() -> None:
    x, i = random_inputs(ROWS, {"n": 1000})
    assert x.shape == (1000, 4) and x.dtype == np.float32 and 0.9 < x.std() < 1.1
    assert i.shape == (1000,) and i.dtype == np.int64 and set(np.unique(i)) == {0, 1}
