"""Sequences whose lengths are known when compiling are resolved; others are refused, by the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import motet
from motet.errors import CompileError, OptionError

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


INTERFACE = """<ir_version: 9, opset_import: ["": 18]>
g (seq(float) s, optional(seq(float[2])) o, optional(float[2]) p, float[2] x, bool c)
    => (seq(float) doubled, int64[] count, bool there, seq(float) chosen, seq(float) joined) {
    doubled = SequenceMap <body = twice (float[N] e) => (float[N] f) { f = Add(e, e) }> (s)
    n = SequenceLength(s)
    count = Identity(n)
    there = OptionalHasElement(p)
    chosen = If (c) <
        then_branch = t () => (seq(float) a) { a = SequenceConstruct(x, x) },
        else_branch = e () => (seq(float) b) { z = Neg(x) b = SequenceConstruct(z, x) }>
    q = OptionalGetElement(o)
    joined = SequenceInsert(q, x)
}"""


def test_sequences_and_optionals_as_inputs_and_results() -> None:
    text = "s=3xf32,?xf32;o=2xf32;p=none"
    source = onnx.parser.parse_model(INTERFACE)
    session = motet.load(motet.compile(source, options={"sequences": text}))
    names = [spec.name for spec in session.signature.inputs]
    assert names == ["s[0]", "s[1]", "o[0]", "x", "c"]
    names = [spec.name for spec in session.signature.results]
    assert names == ["doubled[0]", "doubled[1]", "count", "there", "chosen[0]", "chosen[1]", "joined[0]", "joined[1]"]
    a, b, x = (np.arange(n, dtype=np.float32) + 1 for n in (3, 5, 2))
    for condition in (True, False):
        found = session(a, b, -x, x, np.array(condition))
        wanted = [2 * a, 2 * b, np.array(2), np.array(False), x if condition else -x, x, -x, x]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_empty_sequence_as_an_input_and_a_result() -> None:
    body = "g (seq(float) s, float[2] x) => (seq(float) s2, seq(float) t) { s2 = Identity(s) t = SequenceInsert(s, x) }"
    source = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {body}')
    session = motet.load(motet.compile(source, options={"sequences": "s="}))
    assert [spec.name for spec in session.signature.results] == ["t[0]"]
    np.testing.assert_array_equal(session(np.ones(2, np.float32)), np.ones(2, np.float32))


@pytest.mark.parametrize(("option", "what"), [
    ("", "input 's': how many elements this sequence has, only a call knows.*: --option sequences=s=3x4xf32,3x4xf32"),
    ("s=2xf32;o=none", "node that computes ..q..: OptionalGetElement of what is absent; expected an element"),
    ("s=2xf32;o=;y=none", "no input 'y' is a sequence or optional; there are: o, p, s"),
    ("s=2xf64;o=", "element 0 of input 's': f64 given, float32 expected"),
    ("s=none;o=", "input 's' is not optional; expected its elements"),
    ("s=2xf32;o=;p=2xf32", "input 'p' is an optional tensor, which every call gives"),
])  # fmt: skip
def test_a_sequence_must_fit_the_model(option: str, what: str) -> None:
    with pytest.raises(CompileError, match=what):
        motet.compile(onnx.parser.parse_model(INTERFACE), options={"sequences": option} if option else {})


@pytest.mark.parametrize("option", ["s", "=2xf32", "s=2x", "s=2xf32;s=", "s=-1xf32", "s=2xfoo"])
def test_the_option_must_parse(option: str) -> None:
    with pytest.raises(OptionError, match=f"option sequences={option.replace('?', '.')}"):
        motet.compile(onnx.parser.parse_model(INTERFACE), options={"sequences": option})


def test_branches_give_sequences_of_equal_lengths() -> None:
    text = INTERFACE.replace("b = SequenceConstruct(z, x)", "b = SequenceConstruct(z)")
    with pytest.raises(CompileError, match="If whose branches give sequences of different lengths is not supported"):
        motet.compile(onnx.parser.parse_model(text), options={"sequences": "s=2xf32;o="})
