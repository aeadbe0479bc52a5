"""Writes quantisation that the wheel's lowering does not know or gets wrong with plain arithmetic.

    DequantizeLinear(x, s, z)           →  (x − z) · s, the difference in integers of 32 bits
    QuantizeLinear(x, s, z)             →  min(max(round(x / s) + z, least), largest)
    QLinearMatMul(a, sa, za, b, …)      →  round((a − za)(b − zb) · sa·sb/sy) + zy, saturated
    MatMulInteger(a, b, za, zb)         →  a·b − Σa · zb − za · Σ(b − zb)

Unsigned integers are dequantised, 16 bits or several scales quantised, and batches multiplied in this way; others where
they have no zero point, or blocks. Products of bytes stay products of signed bytes, which processors do fast: unsigned
ones are moved by 128, as their zero points are, and what zero points add is sums of rows and of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx_simplify import attribute
from motet.compiler.frontends.onnx_writing import Facts, Rule, Writer

if TYPE_CHECKING:
    import onnx

_NAMES = ("uint8", "int8", "uint16", "int16")


def _given(node: onnx.NodeProto, number: int) -> str:
    return node.input[number] if len(node.input) > number else ""


def _aligned(w: Writer, value: str) -> str | None:
    """A scale or zero point so that it broadcasts with the first input; None where blocks are not of known extent."""
    rank, own = w.facts.rank(w.node.input[0]), w.facts.rank(value)
    if not own:
        return value
    if rank is None:
        return None
    axis = attribute(w.node, "axis", 1)
    if own == 1:
        extents = [1] * rank
        extents[axis] = -1
        return w.reshape(value, extents)
    block, shape = attribute(w.node, "block_size", 0), w.facts.shapes.get(w.node.input[0])
    array = w.facts.model.constants.get(value)
    if not block or shape is None or array is None:
        return None
    blocks = np.repeat(array, block, axis).take(range(shape[axis]), axis)
    return w.constant(blocks, "blocks")


def _dequantize(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    import onnx

    if node.input[0] not in facts.types or node.input[1] not in facts.types:
        return None
    kind, zero = facts.dtype(node.input[0]), _given(node, 2)
    own = facts.rank(node.input[1])
    plain = kind.kind == "i" and zero and own is not None and own < 2
    if plain or kind.name not in (*_NAMES, "int32"):
        return None
    w = Writer(node, facts)
    scale, shift = _aligned(w, node.input[1]), _aligned(w, zero) if zero else ""
    if scale is None or shift is None:
        return None
    value = w.cast(node.input[0], onnx.TensorProto.INT32)
    if shift:
        value = w.add("Sub", value, w.cast(shift, onnx.TensorProto.INT32))
    product = w.add("Mul", w.cast(value, onnx.TensorProto.FLOAT), w.cast(scale, onnx.TensorProto.FLOAT))
    return w.done([w.cast(product, facts.types[node.input[1]])])


def _saturated(w: Writer, value: str, zero: str, kind: int) -> str:
    """`value`, of float32, rounded, moved by the zero point, which may be absent, and saturated to `kind`."""
    import onnx

    rounded = w.add("Round", value)
    if zero:
        rounded = w.add("Add", rounded, w.cast(zero, onnx.TensorProto.FLOAT))
    info = np.iinfo(onnx.helper.tensor_dtype_to_np_dtype(kind))
    ends = [w.constant(np.array(end, np.float32), "end") for end in (info.min, info.max)]
    return w.cast(w.add("Clip", rounded, *ends), kind)


def _quantize(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    import onnx

    zero = _given(node, 2)
    kind = facts.types.get(zero) if zero else attribute(node, "output_dtype", 0) or onnx.TensorProto.UINT8
    own = facts.rank(node.input[1])
    if kind is None or own is None or node.input[0] not in facts.types:
        return None
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).name
    if name not in _NAMES or (own == 0 and zero and name in ("uint8", "int8")):
        return None
    w = Writer(node, facts)
    scale, shift = _aligned(w, node.input[1]), _aligned(w, zero) if zero else ""
    if scale is None or shift is None:
        return None
    value, scale = (w.cast(one, onnx.TensorProto.FLOAT) for one in (node.input[0], scale))
    return w.done([_saturated(w, w.add("Div", value, scale), shift, kind)])


def _quantised_product(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    import onnx

    a, scale_a, zero_a, b, scale_b, zero_b, scale_y, zero_y = node.input
    numbers = scale_a, zero_a, scale_b, zero_b, scale_y, zero_y
    if any(facts.rank(name) != 0 for name in numbers) or zero_y not in facts.types:
        return None
    if facts.rank(a) == facts.rank(b) == 2:
        return None
    if facts.version < 11:
        raise facts.model.error(
            f"node {node.name!r}: QLinearMatMul of batches is supported from operator set 11 on, the model is of "
            f"{facts.version}; convert it with onnx.version_converter"
        )
    w = Writer(node, facts)
    factors = [
        w.add("Sub", w.cast(value, onnx.TensorProto.INT32), w.cast(zero, onnx.TensorProto.INT32))
        for value, zero in ((a, zero_a), (b, zero_b))
    ]
    product = w.cast(w.add("MatMul", *factors), onnx.TensorProto.FLOAT)
    scales = [w.cast(name, onnx.TensorProto.FLOAT) for name in (scale_a, scale_b, scale_y)]
    scale = w.add("Div", w.add("Mul", *scales[:2]), scales[2])
    return w.done([_saturated(w, w.add("Mul", product, scale), zero_y, facts.types[zero_y])])


def _integer_product(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    left, right = node.input[:2]
    if left not in facts.types or right not in facts.types:
        return None
    rank_a, rank_b = facts.rank(left) or 0, facts.rank(right) or 0
    zeros = [_given(node, 2), _given(node, 3)]
    unsigned = [facts.dtype(name).kind == "u" for name in (left, right)]
    if not any(zeros) and not any(unsigned):
        return None
    if min(rank_a, rank_b) < 2 or any(zero and facts.rank(zero) is None for zero in zeros):
        return _with_zero_points(node, facts)
    w = Writer(node, facts)
    a, a_zero = _signed(w, left, zeros[0], unsigned[0], column=True)
    b, b_zero = _signed(w, right, zeros[1], unsigned[1], column=False)
    product = w.add("MatMulInteger", a, b)
    wide_a, wide_b = _wide(w, a), _wide(w, b)
    if b_zero:
        sums = w.over("ReduceSum", wide_a, [rank_a - 1], keepdims=1)
        product = w.add("Sub", product, w.add("Mul", sums, b_zero))
        wide_b = w.add("Sub", wide_b, b_zero)
    if a_zero:
        sums = w.over("ReduceSum", wide_b, [rank_b - 2], keepdims=1)
        product = w.add("Sub", product, w.add("Mul", a_zero, sums))
    return w.done([product])


def _wide(w: Writer, value: str) -> str:
    import onnx

    return w.cast(value, onnx.TensorProto.INT32)


def _signed(w: Writer, value: str, zero: str, unsigned: bool, column: bool) -> tuple[str, str]:
    """A factor in signed bytes and its zero point in 32 bits, or "" for none. Zero points of rows lie in a `column`."""
    import onnx

    wide = _wide(w, zero) if zero else ""
    if wide and column and w.facts.rank(zero) == 1:
        wide = w.reshape(wide, [-1, 1])
    if not unsigned:
        return value, wide
    half = w.constant(np.array(128, np.int32), "half")
    moved = w.cast(w.add("Sub", _wide(w, value), half), onnx.TensorProto.INT8)
    return moved, w.add("Sub", wide, half) if wide else w.constant(np.array(-128, np.int32), "zero")


def _with_zero_points(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    """Vectors, and factors of unknown rank: with the zero points that are not given, which the wheel wants."""
    if all(_given(node, number) for number in (2, 3)):
        return None
    w = Writer(node, facts)
    zeros = [
        _given(node, 2 + number) or w.constant(np.zeros((), facts.dtype(name)), "zero")
        for number, name in enumerate(node.input[:2])
    ]
    return w.done([w.add("MatMulInteger", *node.input[:2], *zeros)])


RULES: dict[str, Rule] = {
    "DequantizeLinear": _dequantize, "MatMulInteger": _integer_product, "QLinearMatMul": _quantised_product,
    "QuantizeLinear": _quantize,
}  # fmt: skip
