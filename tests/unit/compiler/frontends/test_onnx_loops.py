"""Loops whose number of turns a call decides, while the model declares how many slices their results have."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import motet
from motet.errors import CallError, CompileError

TEXT = """<ir_version: 9, opset_import: ["": 18]>
g (int64 n, bool c, float[2] x, float most) => (float[2] last, float[4,2] powers, float[3,2] sums, float16[2] halves) {
    last, powers = Loop (n, c, x) <body = first (int64 i, bool going, float[2] v)
        => (bool on, float[2] w, float[2] all) { on = Identity(going) w = Add(v, v) all = Identity(w) }>
    none, sums = Loop ("", c, x) <body = second (int64 i, bool going, float[2] v)
        => (bool on, float[2] w, float[2] all) { w = Add(v, x) k = Constant <value_ints=[0]> ()
        s = ReduceMax<keepdims=0>(w, k) on = Less(s, most)
        all = Identity(w) }>
    f = Cast<to=1>(n)
    two = Constant <value = int64 {2}> ()
    m = Sub(n, two)
    end, steps = Loop (m, c, f) <body = third (int64 i, bool going, float v) => (bool on, float w, float all) {
        on = Identity(going) w = Sub(v, most) all = Identity(v) }>
    halves = Cast<to=10>(steps)
}"""


def test_declared_slices_say_how_many_turns_there_are() -> None:
    session = motet.load(motet.compile(onnx.parser.parse_model(TEXT)))
    x, four, most = np.array([1, 1.5], np.float32), np.array(4), np.array(5.5, np.float32)
    last, powers, sums, halves = session(four, np.array(True), x, most)
    np.testing.assert_array_equal(powers, x * 2.0 ** np.arange(1, 5)[:, None])
    np.testing.assert_array_equal(last, x * 16)
    np.testing.assert_array_equal(sums, x * np.arange(2, 5)[:, None])
    np.testing.assert_array_equal(halves, np.array([4, -1.5], np.float16))
    for n, going, limit in ((3, True, 5.5), (5, True, 5.5), (4, False, 5.5), (4, True, 4), (4, True, 7)):
        with pytest.raises(CallError, match=r"its results have [432] slices, those of as many turns"):
            session(np.array(n), np.array(going), x, np.array(limit, np.float32))


def test_a_value_of_unknown_rank_is_named() -> None:
    source = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[n,2] x) => (float y) '
        "{ q = Squeeze(x) t = Transpose(q) y = ReduceMax<keepdims=0>(t) }"
    )
    with pytest.raises(CompileError, match=r"operator Squeeze .*: the rank of its result is not known"):
        motet.compile(source)
