"""Writes GatherBlockQuantized, of the domain `com.microsoft`, with ONNX's operators.

    GatherBlockQuantized(table, places, scales)  →  (Gather(bytes, places) - zero) · Gather(scales, places)

Rows are gathered as they are stored, two numbers of 4 bits in a byte, and dequantised then: the table is never written
as floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.contrib import constant, done, given
from motet.compiler.frontends.onnx.contrib_quantised import unpacked
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, refused

if TYPE_CHECKING:
    import onnx


def _numbers(node: onnx.NodeProto, facts: ModelFacts, place: int, columns: int | None, what: str) -> np.ndarray:
    """Unsigned numbers of 4 or 8 bits, one in each byte; of `columns` columns where the last one may be half a byte."""
    found, bits = constant(node, facts, place, what), attribute(node, "bits", 4)
    if found.dtype == np.uint8:
        return (unpacked(found, bits) if bits == 4 else found)[..., :columns]
    if found.dtype.name not in ("int4", "uint4"):
        raise refused(node, facts, f"of {what} of {found.dtype}", "uint8, int4 or uint4")
    wide = found.astype(np.int8)
    return (wide + np.int8(8 if found.dtype.name == "int4" else 0)).view(np.uint8)


def _gathered(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """GatherBlockQuantized of rows of a matrix with blocks along them."""
    import onnx

    bits, block = attribute(node, "bits", 4), attribute(node, "block_size", 128)
    table, scales = constant(node, facts, 0, "tables"), constant(node, facts, 2, "scales")
    axes = attribute(node, "gather_axis", 0), attribute(node, "quantize_axis", 1) % max(table.ndim, 1)
    if table.ndim != 2 or axes != (0, 1) or bits not in (4, 8):
        raise refused(
            node, facts, f"of {bits} bits and {table.ndim} dimensions, with axes {axes}",
            "a matrix of 4 or 8 bits, gather_axis 0 and quantize_axis 1")
    numbers = _numbers(node, facts, 0, None, "tables")
    rows, columns = numbers.shape
    blocks = -(-columns // block)
    if scales.shape != (rows, blocks):
        raise refused(node, facts, f"with scales of {scales.shape}", f"{rows}x{blocks} for blocks of {block}")
    w, places = NodeWriter(node, facts), given(node, 1)
    padded = np.pad(numbers, [(0, 0), (0, blocks * block - columns)])
    value = _rows(w, padded, places, [-1, blocks, block], bits)
    if given(node, 3):
        zeros = _numbers(node, facts, 3, blocks, "zero points")
        zero = _rows(w, zeros, places, [-1, blocks, 1], 8)
    else:
        # Bytes are numbers around the middle of their range; `_numbers` has moved those of 4 bits with a sign.
        middle = 0 if table.dtype.name == "uint4" else 1 << (bits - 1)
        zero = w.constant(np.array(middle, np.float32), "zero point")
    factor = w.reshape(w.add("Gather", w.constant(scales, "scales"), places, axis=0), [-1, blocks, 1])
    product = w.add("Mul", w.add("Sub", value, zero), w.cast(factor, onnx.TensorProto.FLOAT))
    whole = w.reshape(product, [-1, blocks * block])
    if blocks * block != columns:
        whole = w.slice(whole, 1, 0, columns)
    last = w.constant(np.array([columns], np.int64), "columns")
    shaped = w.add("Reshape", whole, w.add("Concat", w.add("Shape", places), last, axis=0))
    return done(w, {0: w.cast(shaped, facts.types[given(node, 2)])})


def _rows(w: NodeWriter, numbers: np.ndarray, places: str, shape: list[int], bits: int) -> str:
    """Rows of `numbers` as floats of `shape`. Those of 4 bits are stored in pairs."""
    import onnx

    if bits == 8 or numbers.shape[1] % 2:
        rows = w.add("Gather", w.constant(np.ascontiguousarray(numbers), "table"), places, axis=0)
        return w.cast(w.reshape(rows, shape), onnx.TensorProto.FLOAT)
    pairs = w.constant(numbers[:, ::2] | numbers[:, 1::2] << np.uint8(4), "table")
    flat = w.reshape(w.add("Gather", pairs, places, axis=0), [-1, numbers.shape[1] // 2, 1])
    both, radix = w.cast(flat, onnx.TensorProto.INT32), w.constant(np.array(16, np.int32), "radix")
    high = w.add("Div", both, radix)
    low = w.add("Sub", both, w.add("Mul", high, radix))
    halves = w.reshape(w.add("Concat", low, high, axis=2), shape)
    return w.cast(halves, onnx.TensorProto.FLOAT)


RULES: dict[str, Rule] = {"GatherBlockQuantized": _gathered}
