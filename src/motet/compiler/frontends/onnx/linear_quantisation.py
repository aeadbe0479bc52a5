"""Writes linear quantisation with plain arithmetic; the torch-mlir wheel supports only its simplest forms.

    DequantizeLinear(x, s, z)   →  (x − z) · s, the difference in integers of 32 bits where they are integers
    QuantizeLinear(x, s, z)     →  min(max(round(x / s) + z, least), largest), or Cast(x / s + z) to a short float

Scales and zero points are per tensor, per index of an axis, or per block of it. The division is in the type of the
scale, or in `precision`; the product is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from motet.compiler.frontends.onnx.contrib import given
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule
from motet.compiler.ir.short_types import ShortInteger, short_type

if TYPE_CHECKING:
    import onnx

_WORDS = ("uint8", "int8", "uint16", "int16")


def dequantize(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """DequantizeLinear in any form; None if types are unknown or blocks do not fit."""
    import onnx

    if node.input[0] not in facts.types or node.input[1] not in facts.types:
        return None
    kind, zero = facts.dtype(node.input[0]), given(node, 2)
    w = NodeWriter(node, facts)
    blocks = _divided(w)
    if blocks is None:
        scale, shift = _aligned(w, node.input[1]), _aligned(w, zero) if zero else ""
    else:
        scale, shift = (w.reshape(name, blocks.sides) if name else "" for name in (node.input[1], zero))
    if scale is None or shift is None:
        return None
    exact = onnx.TensorProto.INT32 if _is_integer(kind) else onnx.TensorProto.FLOAT
    value = w.cast(node.input[0] if blocks is None else w.reshape(node.input[0], blocks.divided), exact)
    if shift:
        value = w.add("Sub", value, w.cast(shift, exact))
    product = w.add("Mul", w.cast(value, onnx.TensorProto.FLOAT), w.cast(scale, onnx.TensorProto.FLOAT))
    if blocks is not None:
        product = w.reshape(product, blocks.shape)
    result = attribute(node, "output_dtype", 0) or facts.types.get(node.output[0], facts.types[node.input[1]])
    return w.done([w.cast(product, result)])


@dataclass(frozen=True)
class _Blocks:
    """The shape of the input of a node, that with its axis divided into blocks, and that of its scales."""

    shape: list[int]
    divided: list[int]
    sides: list[int]


def _divided(w: NodeWriter) -> _Blocks | None:
    """The shapes of a node whose scales are those of equal blocks; None if there are no blocks, extents are not known,
    or the last block is shorter."""
    block, axis = attribute(w.node, "block_size", 0), attribute(w.node, "axis", 1)
    name = w.node.input[0]
    array = w.facts.model.constants.get(name)
    known = w.facts.shapes.get(name) if array is None else array.shape
    rank = 0 if known is None else len(known)
    if known is None or not block or not -rank <= axis < rank or w.facts.rank(w.node.input[1]) != rank:
        return None
    shape, place = [int(extent) for extent in known], axis % rank
    if shape[place] % block or not shape[place]:
        return None
    before, after, count = shape[:place], shape[place + 1:], shape[place] // block
    return _Blocks(shape, [*before, count, block, *after], [*before, count, 1, *after])


def quantize(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """QuantizeLinear in any form; None if types are unknown or blocks do not fit."""
    zero, kind = given(node, 2), quantized_type(node, facts)
    if kind is None or node.input[0] not in facts.types or node.input[1] not in facts.types:
        return None
    w = NodeWriter(node, facts)
    scale, shift = _aligned(w, node.input[1]), _aligned(w, zero) if zero else ""
    if scale is None or shift is None:
        return None
    precision = _precision(node, facts)
    quotient = w.add("Div", w.cast(node.input[0], precision), w.cast(scale, precision))
    return w.done([saturated(w, quotient, shift, kind, bool(attribute(node, "saturate", 1)))])


def quantized_type(node: onnx.NodeProto, facts: ModelFacts) -> int | None:
    """The element type of a QuantizeLinear's result; None if unknown."""
    import onnx

    zero = given(node, 2)
    return facts.types.get(zero) if zero else attribute(node, "output_dtype", 0) or onnx.TensorProto.UINT8


def _precision(node: onnx.NodeProto, facts: ModelFacts) -> int:
    """The type of a QuantizeLinear's division."""
    import onnx

    kind = attribute(node, "precision", 0) or facts.types[node.input[1]]
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
    return kind if kind in floats else onnx.TensorProto.FLOAT


def saturated(w: NodeWriter, value: str, zero: str, kind: int, saturate: bool = True) -> str:
    """The float `value` plus the optional zero point, converted to `kind`: rounded and clamped for integers, converted
    for floats."""
    import onnx

    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    if not _is_integer(dtype):
        if zero:
            value = w.add("Add", w.cast(value, onnx.TensorProto.FLOAT), w.cast(zero, onnx.TensorProto.FLOAT))
        return w.add("Cast", value, to=kind, saturate=int(saturate))
    rounded = w.add("Round", w.cast(value, onnx.TensorProto.FLOAT))
    if zero:
        rounded = w.add("Add", rounded, w.cast(zero, onnx.TensorProto.FLOAT))
    info: Any = ml_dtypes.iinfo(dtype)
    ends = [w.constant(np.array(end, np.float32), "end") for end in (int(info.min), int(info.max))]
    return w.cast(w.add("Clip", rounded, *ends), kind)


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or isinstance(short_type(dtype), ShortInteger)


def _aligned(w: NodeWriter, value: str) -> str | None:
    """Reshapes a scale or zero point to broadcast with the first input; None if ranks do not determine how."""
    rank, own = w.facts.rank(w.node.input[0]), w.facts.rank(value)
    block = attribute(w.node, "block_size", 0)
    if own == 0 or (own is not None and w.facts.shapes.get(value) == (1,) * own):
        return value if own == 0 else w.reshape(value, [])
    if own is None or rank is None or own not in (1, rank):
        return None
    axis = attribute(w.node, "axis", 1)
    if not -rank <= axis < rank and not (rank == own == 1 and not block):
        return None
    if block and own == rank:
        return _of_blocks(w, value, block, axis % rank)
    if own != 1:
        return None
    extents = [1] * rank
    extents[axis % rank] = -1
    return w.reshape(value, extents) if rank > 1 else value


def _of_blocks(w: NodeWriter, value: str, block: int, axis: int) -> str:
    """Repeats `value` so that each index of the axis gets the element of its block."""
    name = w.node.input[0]
    extent = (w.facts.extents(name) or w.facts.shapes.get(name) or {axis: None})[axis]
    array, sides = w.facts.model.constants.get(name), w.facts.model.constants.get(value)
    extent = extent if array is None else array.shape[axis]
    if extent is not None and sides is not None and -(-extent // block) == sides.shape[axis]:
        before, after = list(sides.shape[: axis + 1]), list(sides.shape[axis + 1 :])
        single = w.reshape(value, [*before, 1, *after])
        repeated = w.add("Expand", single, w.constant(np.array([*before, block, *after], np.int64), "extents"))
        whole = w.reshape(repeated, [*before[:-1], before[-1] * block, *after])
        return w.slice(whole, axis, 0, extent)
    if extent is not None:
        blocks = w.constant(np.arange(extent, dtype=np.int64) // block, "blocks")
    else:
        zero, one, size = (w.constant(np.array(number, np.int64), "number") for number in (0, 1, block))
        places = w.add("Range", zero, w.extent(name, axis), one)
        blocks = w.add("Div", places, size)
    return w.add("Gather", value, blocks, axis=axis)


def _dequantize(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """All forms of integers of 8 to 32 bits: the wheel's quantised convolutions round their bias, and clamp zero points
    in each call."""
    if node.input[0] not in facts.types or node.input[1] not in facts.types:
        return None
    return dequantize(node, facts) if facts.dtype(node.input[0]).name in (*_WORDS, "int32") else None


def _quantize(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Forms that the wheel does not support; it lowers bytes with one zero point."""
    import onnx

    kind = quantized_type(node, facts)
    if kind is None:
        return None
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).name
    simple = facts.rank(node.input[1]) == 0 and given(node, 2) and not attribute(node, "precision", 0)
    if name not in _WORDS or (simple and name in ("uint8", "int8")):
        return None
    return quantize(node, facts)


RULES: dict[str, Rule] = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
