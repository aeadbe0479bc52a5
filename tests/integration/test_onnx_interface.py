"""What ONNX models say of themselves that does not fit: extents of outputs, operator sets of functions."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest

import motet
from motet.errors import CallError, CompileError

DECLARED = """<ir_version: 9, opset_import: ["": 17]>
g (float[n,3] x) => (float[n,3] y) { k = Constant <value = float[3,1] {1, 2, 3}> () y = MatMul(x, k) }"""

FUNCTIONS = """<ir_version: 10, opset_import: ["": 22, "own": 1, "other": 1]>
g (float[n,2] x) => (float[n,2] y) { a = other.Strange(x) y = own.OPERATOR(a) }
<opset_import: ["": 21], domain: "own"> twice (v) => (w) { w = Add(v, v) }
<opset_import: ["": 21], domain: "own"> older (v) => (w) { u = Neg(v) w = Cos(u) }"""


def test_an_output_that_is_declared_with_another_extent(caplog: pytest.LogCaptureFixture) -> None:
    """As skl2onnx declares the results of PLSRegression; ONNX Runtime runs such models with a warning as well."""
    with caplog.at_level(logging.WARNING, "motet"):
        session = motet.load(motet.compile(onnx.parser.parse_model(DECLARED), cache=False))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(session(x), [[8], [26]])
    said = [record.getMessage() for record in caplog.records if "declared" in record.getMessage()]
    assert len(said) == 1
    assert "output 'y' is declared with 3 elements along axis 1, but has 1" in said[0]


@pytest.mark.parametrize(
    ("operator", "said"),
    [("twice", "unknown operator Strange"), ("older", "its functions cannot be inlined: Type unknown for a; expected")],
)
def test_functions_of_another_operator_set(operator: str, said: str) -> None:
    """ONNX's inliner converts them, for which it needs all types; where the operators are the same, it need not."""
    with pytest.raises(CompileError, match=said):
        motet.compile(onnx.parser.parse_model(FUNCTIONS.replace("OPERATOR", operator)))


def test_equal_names_are_equal_extents_of_unrelated_inputs() -> None:
    """To ONNX Runtime such names are advice."""
    text = """<ir_version: 9, opset_import: ["": 18]>
g (float[n,2] x, float[3,n] y) => (float[n,2] a, float[3,n] b) { a = Add(x, x) b = Mul(y, y) }"""
    session = motet.load(motet.compile(onnx.parser.parse_model(text)))
    x = np.ones((4, 2), np.float32)
    a, b = session(x, np.full((3, 4), 3, np.float32))
    assert (a == 2).all() and (b == 9).all()
    with pytest.raises(CallError, match="both called n must be equal: 5 and 4; axis 0 of x is 4, axis 1 of y is 5"):
        session(x, np.ones((3, 5), np.float32))
