"""Sequences whose lengths are known when compiling are resolved; others are refused, by the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import motet
from motet.errors import CompileError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = X + 100


def model(results: str, body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> g (float[3,4] x, float[3,4] y, int64 p) => ({results}) {{ {body} }}'
    )


def test_sequences_of_known_length() -> None:
    steps = {
        "a": ("int64[]", "s = SequenceConstruct(x, y, x) a = SequenceLength(s)", np.array(3)),
        "b": ("int64[]", "none = SequenceEmpty() b = SequenceLength(none)", np.array(0)),
        "c": ("float[3,4]", "last = Constant<value_int=-2>() c = SequenceAt(s, last)", Y),
        "d": ("float[6,4]", "one = SequenceErase(s, last) d = ConcatFromSequence<axis=0>(one)", np.concatenate([X, X])),
        "e": ("float[3,2,4]", "t = SequenceInsert(one, y, last) u = SequenceErase(t) "
              "e = ConcatFromSequence<axis=1, new_axis=1>(u)", np.stack([Y, X], 1)),
        "f": ("int64[]", "k = Constant<value_ints=[1, 3]>() v = SplitToSequence<axis=1>(x, k) f = SequenceLength(v)",
              np.array(2)),
        "h": ("float[3,3]", "w = Identity(v) one_ = Constant<value_int=1>() h = SequenceAt(w, one_)", X[:, 1:]),
        "i": ("float[4]", "rows = SplitToSequence<axis=0, keepdims=0>(y) i = SequenceAt(rows, one_)", Y[1]),
        "j": ("float[3,1]", "three = Constant<value_int=3>() l = SplitToSequence<axis=1>(x, three) "
              "j = SequenceAt(l, one_)", X[:, 3:]),
    }  # fmt: skip
    results = ", ".join(f"{kind} {name}" for name, (kind, _, _) in steps.items())
    session = motet.load(motet.compile(model(results, "\n".join(body for _, body, _ in steps.values()))))
    for name, found, (_, _, want) in zip(steps, session(X, Y, np.array(0)), steps.values(), strict=True):
        np.testing.assert_array_equal(found, want, name)


@pytest.mark.parametrize(("body", "what"), [
    ("s = SequenceConstruct(x, y) r = SequenceAt(s, p)", "SequenceAt with a position that a call decides"),
    ("s = SequenceConstruct(x, y) i = Constant<value_int=2>() r = SequenceAt(s, i)",
     "SequenceAt: position 2 is outside of a sequence of 2; expected -2 to 1"),
    ("s = SequenceEmpty() r = ConcatFromSequence<axis=0>(s)", "ConcatFromSequence with a sequence without elements"),
    ("s = SplitToSequence<axis=0>(x, p) i = Constant<value_int=0>() r = SequenceAt(s, i)",
     "SplitToSequence with parts, or an extent, that a call decides"),
])  # fmt: skip
def test_sequences_that_a_call_decides_are_refused(body: str, what: str) -> None:
    with pytest.raises(CompileError, match=rf"node '\w+#\d': {what}"):
        motet.compile(model("float[3,4] r", body))
