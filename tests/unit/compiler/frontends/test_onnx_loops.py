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
        with pytest.raises(CallError, match=r"its results have [432] slices, those of as many iterations"):
            session(np.array(n), np.array(going), x, np.array(limit, np.float32))


def test_a_value_of_unknown_rank_is_named() -> None:
    source = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[n,2] x) => (float y) '
        "{ q = Squeeze(x) t = Transpose(q) y = ReduceMax<keepdims=0>(t) }"
    )
    with pytest.raises(CompileError, match=r"operator Squeeze .*: the rank of its result is not known"):
        motet.compile(source)


COUNTED = """<ir_version: 9, opset_import: ["": 18]>
g (float[b,2] x) => (float[b,2] last, float[n,b,2] all) {{
    zero = Constant <value = int32 {{0}}> ()
    most = Constant <value = int64 {{{most}}}> ()
    limit = Constant <value = float {{3}}> ()
    start = Cast<to=1>(zero)
    begins = Less(start, limit)
    end, last, all = Loop (most, begins, zero, x) <body = steps (int64 i, bool going, int32 time, float[b,2] v)
        => (bool on, int32 later, float[b,2] w, float[b,2] each) {{
        one = Constant <value = int32 {{1}}> ()
        later = Add(time, one)
        t = Cast<to=1>(later)
        on = Less(t, limit)
        w = Add(v, x)
        each = Identity(w) }}>
}}"""


@pytest.mark.parametrize(("most", "steps"), [(7, 3), (3, 3), (2, 2), (9223372036854775807, 3)])
def test_a_condition_of_constants_says_how_many_turns_there_are(most: int, steps: int) -> None:
    """Keras' recurrent layers become such loops: the condition compares a step's number, converted to float."""
    session = motet.load(motet.compile(onnx.parser.parse_model(COUNTED.format(most=most))))
    for batch in (1, 3):
        x = np.arange(2 * batch, dtype=np.float32).reshape(batch, 2)
        last, every = session(x)
        np.testing.assert_array_equal(last, x * (steps + 1))
        np.testing.assert_array_equal(every, x * np.arange(2, steps + 2)[:, None, None].astype(np.float32))
