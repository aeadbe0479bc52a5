"""Loops whose number of turns a call decides, and branches, of tensors with dynamic extents."""

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


_BRANCHES = """<ir_version: 9, opset_import: ["": 18]>
g (float[n,4] x, float[n,4] z, bool c, bool d) => (float[n,8] y, float[n] most, float[n,4] one) {
    w = Constant <value_floats = [1.0, -2.0, 3.0, 0.5]> ()
    y, most = If (c) <then_branch = first () => (float[n,8] a, float[n] b) {
        r = Relu(x) a = Concat<axis = 1>(r, x) k = Constant <value_ints = [1]> () b = ReduceMax<keepdims = 0>(r, k) }
      , else_branch = second () => (float[n,8] e, float[n] f) {
        s = Shape(x) g = If (d) <then_branch = third () => (float[n,4] h) { h = Expand(w, s) }
                              , else_branch = fourth () => (float[n,4] i) { i = Neg(z) }>
        e = Concat<axis = 1>(x, g) k = Constant <value_ints = [1]> () f = ReduceSum<keepdims = 0>(g, k) }>
    one = If (d) <then_branch = fifth () => (float[n,4] j) { j = Identity(x) }
                , else_branch = sixth () => (float[n,4] k) { k = Identity(z) }>
}"""


def test_branches_with_a_dynamic_batch() -> None:
    session = motet.load(motet.compile(onnx.parser.parse_model(_BRANCHES)))
    weights = np.array([1, -2, 3, 0.5], np.float32)
    for rows in (0, 1, 2, 3, 7, 17):
        x, z = np.random.default_rng(rows).standard_normal((2, rows, 4)).astype(np.float32)
        for first in (False, True):
            for second in (False, True):
                inner = np.broadcast_to(weights, x.shape) if second else -z
                left, right = (np.maximum(x, 0), x) if first else (x, inner)
                reduced = left.max(1) if first else inner.sum(1)
                y, most, one = session(x, z, np.array(first), np.array(second))
                np.testing.assert_array_equal(y, np.concatenate([left, right], 1))
                np.testing.assert_allclose(most, reduced, 1e-5, 1e-6)
                np.testing.assert_array_equal(one, x if second else z)


@pytest.mark.parametrize(("branch", "said"), [
    ("j = Concat<axis = 0>(x, x)", 'If ".*": a tensor of type .* whose extents depend on data; expected .* equal'),
    ("j = Identity(t)", r"If of outer values with the extents \['m', 4\] and \['n', 4\] is not supported; expected"),
])  # fmt: skip
def test_branches_of_different_extents_name_the_node(branch: str, said: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 18]>
g (float[n,4] x, float[n,4] z, float[m,4] t, bool d) => (float[k,4] one) {{
    one = If (d) <then_branch = fifth () => (float[p,4] j) {{ {branch} }}
                , else_branch = sixth () => (float[q,4] k) {{ k = Identity(z) }}>
}}"""
    with pytest.raises(CompileError, match=said):
        motet.compile(onnx.parser.parse_model(text))


_UNTIL = """<ir_version: 9, opset_import: ["": 18]>
g (float[n] x, float most, int64 turns, bool begins) => (float[n] y, float[k,n] rows, int64[k] numbers, float[n] z) {
    y, rows, numbers = Loop ("", begins, x) <body = first (int64 i, bool going, float[n] v)
        => (bool on, float[n] w, float[n] twice, int64 j) {
            one = Constant <value_float = 1.0> () w = Add(v, one) s = ReduceSum<keepdims = 0>(w)
            on = Less(s, most) twice = Add(w, w) j = Identity(i) }>
    z = Loop (turns, begins, x) <body = second (int64 i, bool going, float[n] v) => (bool on, float[n] w) {
            w = Add(v, v) s = ReduceSum<keepdims = 0>(w) on = Less(s, most) }>
}"""


@pytest.mark.parametrize("extent", [1, 2, 3, 7, 17])
def test_loops_that_a_condition_ends(extent: int) -> None:
    session = motet.load(motet.compile(onnx.parser.parse_model(_UNTIL)))
    x = np.arange(1, extent + 1, dtype=np.float32)
    for most, turns, begins in ((5000, 3, True), (400, 100, True), (-1, 5, True), (90, 0, True), (90, 5, False)):
        rows, y, z = [], x, x
        while begins and (not rows or y.sum() < most):
            y = y + 1
            rows.append(2 * y)
        for turn in range(turns):
            if begins and (not turn or z.sum() < most):
                z = z + z
        got = session(x, np.array(most, np.float32), np.array(turns), np.array(begins))
        expected = [y, np.array(rows, np.float32).reshape(-1, extent), np.arange(len(rows)), z]
        for value, wanted in zip(got, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)
