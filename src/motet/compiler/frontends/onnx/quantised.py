"""Rewrites products of quantised operands that the torch-mlir wheel lacks or lowers wrongly, with plain arithmetic.

    QLinearMatMul(a, sa, za, b, …)      →  round((a − za)(b − zb) · sa·sb/sy) + zy, saturated, the product as below
    MatMulInteger(a, b, za, zb)         →  a·b − Σa · zb − za · Σ(b − zb)

Products of bytes stay products of signed bytes, which processors compute fast: unsigned operands and their zero points
are shifted by 128, and zero points contribute sums of rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.contrib import given
from motet.compiler.frontends.onnx.linear_quantisation import saturated
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx


def _quantised_product(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    a, scale_a, zero_a, b, scale_b, zero_b, scale_y, zero_y = node.input
    numbers = scale_a, zero_a, scale_b, zero_b, scale_y, zero_y
    single = all(facts.shapes.get(name) in ((), (1,)) for name in numbers)
    ranks = facts.rank(a), facts.rank(b)
    if facts.version < 11:
        if single and ranks == (2, 2):
            return None  # the wheel lowers it
        raise facts.model.error(
            f"node {node.name!r}: QLinearMatMul of batches, or with several scales, is supported from operator set 11 "
            f"on, the model is of {facts.version}; convert it with onnx.version_converter"
        )
    if None in ranks or any(name not in facts.types or facts.rank(name) is None for name in (a, b, *numbers)):
        raise facts.model.error(f"node {node.name!r}: QLinearMatMul is supported for operands of known type and rank")
    if min(rank or 0 for rank in ranks) < 2:
        raise facts.model.error(
            f"node {node.name!r}: QLinearMatMul of a vector is not supported; expected matrices: reshape it to one"
        )
    w = NodeWriter(node, facts)
    product = byte_product(w, bytes_of(facts, a, zero_a), bytes_of(facts, b, zero_b))
    scales = _of_rows(w, scale_a), scale_b, _of_rows(w, scale_y)
    return w.done([requantised(w, product, scales, _of_rows(w, zero_y))])


def _of_rows(w: NodeWriter, value: str) -> str:
    """Reshapes a scale or zero point for each row of a matrix to broadcast with it; a scalar is unchanged."""
    rows = w.facts.rank(value) == 1 and w.facts.shapes.get(value) != (1,)
    return w.reshape(value, [-1, 1]) if rows else value


def requantised(w: NodeWriter, product: str, scales: tuple[str, str, str], zero: str) -> str:
    """Converts a 32-bit sum of products to the type of the zero point `zero`. `scales` are those of both operands and
    of the result; they broadcast."""
    import onnx

    first, second, result = (w.cast(name, onnx.TensorProto.FLOAT) for name in scales)
    scaled = w.add("Mul", w.cast(product, onnx.TensorProto.FLOAT), w.add("Div", w.add("Mul", first, second), result))
    return saturated(w, scaled, zero, w.facts.types[w.node.input[7]])


def _integer_product(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    left, right = node.input[:2]
    if left not in facts.types or right not in facts.types:
        return None
    rank_a, rank_b = facts.rank(left) or 0, facts.rank(right) or 0
    zeros = [given(node, 2), given(node, 3)]
    unsigned = [facts.dtype(name).kind == "u" for name in (left, right)]
    if not any(zeros) and not any(unsigned):
        return None
    if min(rank_a, rank_b) < 2 or any(zero and facts.rank(zero) is None for zero in zeros):
        return _with_zero_points(node, facts)
    w = NodeWriter(node, facts)
    return w.done([byte_product(w, bytes_of(facts, left, zeros[0]), bytes_of(facts, right, zeros[1]))])


@dataclass(frozen=True)
class Bytes:
    """An operand of a product: matrices of bytes, and their zero point, "" if absent."""

    value: str
    zero: str
    unsigned: bool
    rank: int


def bytes_of(facts: ModelFacts, value: str, zero: str) -> Bytes:
    return Bytes(value, zero, facts.dtype(value).kind == "u", facts.rank(value) or 0)


def byte_product(w: NodeWriter, left: Bytes, right: Bytes) -> str:
    """The product of two operands of rank 2 or more, minus their zero points, in 32 bits."""
    a, a_zero = _signed(w, left, column=True)
    b, b_zero = _signed(w, right, column=False)
    product = w.add("MatMulInteger", a, b)
    wide_b = _wide(w, b) if a_zero else ""
    if b_zero:
        sums = w.over("ReduceSum", _wide(w, a), [left.rank - 1], keepdims=1)
        product = w.add("Sub", product, w.add("Mul", sums, b_zero))
        wide_b = w.add("Sub", wide_b, b_zero) if a_zero else ""
    if a_zero:
        sums = "" if b_zero else _known_sums(w, right)
        sums = sums or w.over("ReduceSum", wide_b, [right.rank - 2], keepdims=1)
        product = w.add("Sub", product, w.add("Mul", a_zero, sums))
    return product


def _known_sums(w: NodeWriter, right: Bytes) -> str:
    """The sums of the columns of a constant operand as signed bytes; "" if it is not constant."""
    array = w.facts.model.constants.get(right.value)
    if array is None:
        return ""
    sums = (array.astype(np.int64) - (128 if right.unsigned else 0)).sum(axis=-2, keepdims=True)
    return w.constant(sums.astype(np.int32), "sums")


def _wide(w: NodeWriter, value: str) -> str:
    import onnx

    return w.cast(value, onnx.TensorProto.INT32)


def _signed(w: NodeWriter, factor: Bytes, column: bool) -> tuple[str, str]:
    """An operand as signed bytes, and its zero point in 32 bits, "" if absent. Zero points of rows form a `column`."""
    import onnx

    value, half = factor.value, 128 if factor.unsigned else 0
    if factor.unsigned:
        moved = w.add("Sub", _wide(w, value), w.constant(np.array(half, np.int32), "half"))
        value = w.cast(moved, onnx.TensorProto.INT8)
    known = w.facts.model.constants.get(factor.zero)
    if (known is not None and bool((known == half).all())) or not (factor.zero or half):
        return value, ""
    if not factor.zero:
        return value, w.constant(np.array(-half, np.int32), "zero")
    zero = _wide(w, factor.zero)
    if column and w.facts.rank(factor.zero) == 1 and w.facts.shapes.get(factor.zero) != (1,):
        zero = w.reshape(zero, [-1, 1])
    return value, w.add("Sub", zero, w.constant(np.array(half, np.int32), "half")) if half else zero


def _with_zero_points(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Vectors and operands of unknown rank: adds the omitted zero points, which the wheel requires."""
    if all(given(node, number) for number in (2, 3)):
        return None
    w = NodeWriter(node, facts)
    zeros = [
        given(node, 2 + number) or w.constant(np.zeros((), facts.dtype(name)), "zero")
        for number, name in enumerate(node.input[:2])
    ]
    return w.done([w.add("MatMulInteger", *node.input[:2], *zeros)])


RULES: dict[str, Rule] = {"MatMulInteger": _integer_product, "QLinearMatMul": _quantised_product}
