"""Writes the operators of onnxruntime's quantiser, of the domain `com.microsoft`, with ONNX's operators.

    QLinearAdd(a, b)                     →  QuantizeLinear(DequantizeLinear(a) + DequantizeLinear(b))
    MatMulNBits(a, packed, scales)       →  MatMul(a, bytes · scales), the weights kept as bytes
    DynamicQuantizeMatMul(a, b)          →  DynamicQuantizeLinear, and a product of bytes as below
    MatMulIntegerToFloat(a, b)           →  MatMulInteger(a, b) · scale of a · scale of b
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.contrib import constant, done, given
from motet.compiler.frontends.onnx.ml import dtype_of
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, copy, refused

if TYPE_CHECKING:
    import onnx


def _real(w: NodeWriter, place: int, axis: int = 1) -> str:
    """The dequantised input at `place`; its scale and zero point are the inputs after it."""
    value, scale, zero = (given(w.node, place + step) for step in range(3))
    scales = w.facts.rank(scale)
    along = {"axis": axis} if scales and w.facts.shapes.get(scale) != (1,) else {}
    if scales and not along:
        scale, zero = (w.reshape(name, []) if name else "" for name in (scale, zero))
    return w.add("DequantizeLinear", *[name for name in (value, scale, zero) if name], **along)


def _narrow(w: NodeWriter, value: str, scale: str, zero: str) -> str:
    if w.facts.rank(scale):
        scale, zero = (w.reshape(name, []) if name else "" for name in (scale, zero))
    return w.add("QuantizeLinear", value, *[name for name in (scale, zero) if name])


# Places of the quantised inputs and of the result's scale; operators that are not listed have one input, the first.
_PLACES = {"Add": ((0, 3), 6), "Mul": ((0, 3), 6), "Where": ((1, 4), 7)}


def _of_floats(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Dequantises the operands, applies the operator to floats, and quantises."""
    w, operator = NodeWriter(node, facts), node.op_type.removeprefix("QLinear")
    rank, last = facts.rank(node.input[0]) or 0, attribute(node, "channels_last", 0)
    if last and not rank:
        return None
    places, scale = _PLACES.get(operator, ((0,), 3))
    if operator == "Concat":
        places, scale = range(2, len(node.input), 3), 0
    operands = [*(node.input[:1] if operator == "Where" else ()), *(_real(w, place) for place in places)]
    if last:
        operands[0] = w.add("Transpose", operands[0], perm=[0, rank - 1, *range(1, rank - 1)])
    value = w.add(operator, *operands)
    w.nodes[-1].attribute.extend(item for item in node.attribute if item.name not in ("channels_last", "opset"))
    if last:
        value = w.add("Transpose", value, perm=[0, *range(2, rank), 1])
    return done(w, {0: _narrow(w, value, node.input[scale], given(node, scale + 1))})


def _softmax(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, axis = facts.rank(node.input[0]), attribute(node, "axis", -1)
    if rank is None:
        return None
    if attribute(node, "opset", 13) < 13 and axis % rank != rank - 1:
        raise refused(node, facts, f"of operator set {attribute(node, 'opset', 13)} over several axes", "the last one")
    w = NodeWriter(node, facts)
    return done(w, {0: _narrow(w, w.add("Softmax", _real(w, 0), axis=axis), node.input[3], given(node, 4))})


def _mean(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank = facts.rank(node.input[0])
    if rank is None:
        return None
    w, axes = NodeWriter(node, facts), list(attribute(node, "axes", range(rank)))
    value = w.over("ReduceMean", _real(w, 0), axes, keepdims=attribute(node, "keepdims", 1))
    return done(w, {0: _narrow(w, value, node.input[3], given(node, 4))})


def _gemm(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """QGemm. The bias has the product of both scales as unit; without a scale of the result, the result is float."""
    import onnx

    w = NodeWriter(node, facts)
    product = w.add("MatMul", *(_turned(w, place, flag) for place, flag in ((0, "transA"), (3, "transB"))))
    product = w.add("Mul", product, w.constant(np.array(attribute(node, "alpha", 1.0), np.float32), "alpha"))
    if given(node, 6):
        unit = w.add("Mul", w.add("Mul", node.input[1], node.input[4]), w.constant(
            np.array(attribute(node, "alpha", 1.0), np.float32), "alpha"))  # fmt: skip
        product = w.add("Add", product, w.add("Mul", w.cast(node.input[6], onnx.TensorProto.FLOAT), unit))
    if not given(node, 7):
        return done(w, {0: product})
    return done(w, {0: _narrow(w, product, node.input[7], given(node, 8))})


def _turned(w: NodeWriter, place: int, flag: str) -> str:
    turned = attribute(w.node, flag, 0)
    value = _real(w, place, axis=0 if turned else 1)
    return w.add("Transpose", value, perm=[1, 0]) if turned else value


# -- products -------------------------------------------------------------------------------------------


def _product(
    w: NodeWriter, operands: tuple[str, str], zeros: tuple[str, str], scales: tuple[str, str], bias: str
) -> str:
    import onnx

    inputs = [*operands, *zeros]
    while not inputs[-1]:
        inputs.pop()
    product = w.cast(w.add("MatMulInteger", *inputs), onnx.TensorProto.FLOAT)
    result = w.add("Mul", product, w.add("Mul", *scales))
    return w.add("Add", result, bias) if bias else result


def _integer_to_float(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w = NodeWriter(node, facts)
    zeros = given(node, 4), given(node, 5)
    value = _product(w, (node.input[0], node.input[1]), zeros, (node.input[2], node.input[3]), given(node, 6))
    return done(w, {0: value})


def _dynamic_product(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w = NodeWriter(node, facts)
    value, scale, zero = w.add_all("DynamicQuantizeLinear", 3, node.input[0])
    result = _product(w, (value, node.input[1]), (zero, given(node, 3)), (scale, node.input[2]), given(node, 4))
    return done(w, {0: result})


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits along the last axis; the lowest bits of a byte come first."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> places) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def _signed(numbers: np.ndarray, half: int) -> np.ndarray:
    """Unsigned numbers minus `half`, as bytes."""
    return (numbers ^ np.uint8(half)).view(np.int8) if half == 128 else numbers.view(np.int8) - np.int8(half)


def _zero_points(node: onnx.NodeProto, facts: ModelFacts, shape: tuple[int, int], bits: int) -> np.ndarray:
    """The zero points of a MatMulNBits minus half of the range, [columns, blocks]: packed like weights, or floats."""
    found, half = constant(node, facts, 3, "zero points"), 1 << (bits - 1)
    outer, blocks = shape
    row = -(-blocks * bits // 8)
    if found.dtype == np.uint8 and found.size == outer * row:
        return _signed(unpacked(found.reshape(outer, row), bits)[:, :blocks], half)
    if found.dtype != np.uint8 and found.dtype == constant(node, facts, 2, "scales").dtype and (
        found.size == outer * blocks
    ):
        return (found.reshape(shape).astype(np.float32) - np.float32(half)).astype(found.dtype)
    raise refused(
        node, facts, f"with zero points of {found.dtype}, {found.shape}",
        f"{outer * row} bytes, or {outer * blocks} numbers of the scales' type")


def _packed_product(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """A product with weights of 2, 4 or 8 bits, quantised in blocks along K."""
    inner, outer, bits = (attribute(node, name, 0) for name in ("K", "N", "bits"))
    bits, block, kind = bits or 4, attribute(node, "block_size", 32), facts.types[node.input[0]]
    if bits not in (2, 4, 8) or given(node, 4):
        raise refused(node, facts, f"of {bits} bits" if not given(node, 4) else "with g_idx", "2, 4 or 8, and no g_idx")
    if block <= 0 or block * bits % 8:
        raise refused(node, facts, f"with block_size {block}", "a positive number of whole bytes")
    blocks, half = -(-inner // block), 1 << (bits - 1)
    packed, scales = constant(node, facts, 1, "weights"), constant(node, facts, 2, "scales")
    if packed.size != outer * blocks * (block * bits // 8) or scales.size != outer * blocks:
        raise refused(
            node, facts, f"with weights of {packed.shape} and scales of {scales.shape}",
            f"{outer}x{blocks}x{block * bits // 8} bytes and {outer * blocks} scales for K={inner}, N={outer}")
    unscaled = _signed(unpacked(packed.reshape(outer, blocks, -1), bits), half).transpose(1, 2, 0)
    w, dtype = NodeWriter(node, facts), dtype_of(kind)
    wide = w.cast(w.constant(np.ascontiguousarray(unscaled), "weights"), kind)
    if given(node, 3):
        zeros = _zero_points(node, facts, (outer, blocks), bits)
        small = w.constant(np.ascontiguousarray(zeros.T[:, None, :]), "zero points")
        wide = w.add("Sub", wide, w.cast(small, kind))
    factors = np.ascontiguousarray(scales.reshape(outer, blocks).T[:, None, :]).astype(dtype)
    wide = w.add("Mul", wide, w.constant(factors, "scales"))
    matrix = w.reshape(wide, [blocks * block, outer])
    if blocks * block != inner:
        matrix = w.slice(matrix, 0, 0, inner)
    result = w.add("MatMul", node.input[0], matrix)
    return done(w, {0: w.add("Add", result, node.input[5]) if given(node, 5) else result})


def _convolution(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, last = facts.rank(node.input[0]), attribute(node, "channels_last", 0)
    if rank is None:
        return None
    w, inputs = NodeWriter(node, facts), list(node.input)
    if last:
        inputs[0] = w.add("Transpose", inputs[0], perm=[0, rank - 1, *range(1, rank - 1)])
    value = w.add("QLinearConv", *inputs)
    w.nodes[-1].attribute.extend(item for item in node.attribute if item.name != "channels_last")
    return done(w, {0: w.add("Transpose", value, perm=[0, *range(2, rank), 1]) if last else value})


def _moved(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """QuantizeLinear and DequantizeLinear, which onnxruntime supports for more types than older operator sets."""
    made = copy(node)
    made.domain = ""
    return [made]


def _recurrent(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """DynamicQuantizeLSTM: an LSTM with dequantised weights; the operands stay floats."""
    weights: list[str] = []
    for place, scale, zero in ((1, 8, 9), (2, 10, 11)):
        value = constant(node, facts, place, "weights").astype(np.float32)
        factor, shift = (constant(node, facts, number, "scales and zero points") for number in (scale, zero))
        factor, shift = (each.reshape(each.shape[0], 1, -1).astype(np.float32) for each in (factor, shift))
        real = np.ascontiguousarray(((value - shift) * factor).transpose(0, 2, 1))
        weights.append(facts.constant(node, "weights", real))
    inputs = [node.input[0], *weights, *node.input[3:8]]
    while not inputs[-1]:
        inputs.pop()
    w = NodeWriter(node, facts)
    results = w.add_all("LSTM", len(node.output), *inputs)
    w.nodes[-1].attribute.extend(node.attribute)
    return done(w, dict(enumerate(results)))


RULES: dict[str, Rule] = {
    "DequantizeLinear": _moved, "DynamicQuantizeLSTM": _recurrent,
    "DynamicQuantizeMatMul": _dynamic_product, "MatMulIntegerToFloat": _integer_to_float,
    "MatMulNBits": _packed_product, "QGemm": _gemm, "QLinearAdd": _of_floats, "QLinearAveragePool": _of_floats,
    "QLinearConcat": _of_floats, "QLinearConv": _convolution, "QLinearGlobalAveragePool": _of_floats,
    "QLinearLeakyRelu": _of_floats, "QLinearMul": _of_floats, "QLinearReduceMean": _mean, "QLinearSigmoid": _of_floats,
    "QLinearSoftmax": _softmax, "QLinearWhere": _of_floats, "QuantizeLinear": _moved,
}  # fmt: skip
