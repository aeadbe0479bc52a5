"""Rewrites products and convolutions that the torch-mlir wheel lacks or lowers wrongly.

- MatMul of a batch and a vector: the vector becomes a matrix of one column or row.
- Gemm of two matrices: the wheel ignores alpha.
- Einsum without a result in its equation: the result is added. Einsum of scalars: a multiplication. Einsum of bytes, of
  which the wheel dies: by 32-bit integers, whose low bytes are the result. Einsum of axes of 1 that broadcast: without
  them.
- ConvTranspose with unequal padding: cropped from a result without padding. With filters that may be infinite or NaN:
  the wheel multiplies them by zeros inserted between and around the pixels, which gives NaN where the definition has no
  product.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from string import ascii_letters
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import Chain, ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_TO_THE_END = np.iinfo(np.int64).max
_KEEPS = ("Cast", "Identity", "Neg", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_DEEPEST = 16  # operators between a value and the constants that bound it


def _matmul(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    left, right = (facts.rank(name) for name in node.input[:2])
    if left is None or right is None or 1 not in (left, right) or max(left, right) < 3:
        return None
    w = NodeWriter(node, facts)
    if right == 1:
        column = w.over("Unsqueeze", node.input[1], [1])
        return w.done([w.over("Squeeze", w.add("MatMul", node.input[0], column), [left - 1])])
    row = w.over("Unsqueeze", node.input[0], [0])
    return w.done([w.over("Squeeze", w.add("MatMul", row, node.input[1]), [right - 2])])


def _einsum(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    if not arrow:
        letters = Counter(terms.replace("...", "").replace(",", ""))
        once = "".join(sorted(letter for letter, count in letters.items() if count == 1))
        result = f"{'...' if '...' in terms else ''}{once}"
    w, kind = NodeWriter(node, facts), facts.types.get(node.input[0])
    narrow = kind in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    values = [w.cast(value, onnx.TensorProto.INT32) if narrow else value for value in node.input]
    given = list(zip(terms.split(","), values, strict=True))
    met, result = _met(w, given, result)
    scalars = [value for term, value in met if not term]
    if arrow and not scalars and not narrow and met == given:
        return None
    kept = [(term, value) for term, value in met if term]
    if kept:
        full = f"{','.join(term for term, _ in kept)}->{result}"
        scalars.append(w.add("Einsum", *(value for _, value in kept), equation=full))
    product = w.joined("Mul", scalars)
    return w.done([w.cast(product, kind) if narrow and kind else product])


def _met(w: NodeWriter, given: list[tuple[str, str]], result: str) -> tuple[list[tuple[str, str]], str]:
    """The terms with their operands, and the term of the result, without the axes of 1 that broadcast to those of
    other operands; as they are if there are none."""
    extents = [w.facts.extents(name) or [] for name in w.node.input]
    dots = max(len(known) - len(term.replace("...", "")) for (term, _), known in zip(given, extents, strict=True))
    axes = "".join(letter for letter in ascii_letters if not any(letter in term for term, _ in given))[: max(dots, 0)]
    terms = [term.replace("...", axes) for term, _ in given]
    if any(len(term) != len(known) for term, known in zip(terms, extents, strict=True)):
        return given, result  # an operand of unknown rank
    spread = {
        letter for term, known in zip(terms, extents, strict=True)
        for letter, extent in zip(term, known, strict=True) if extent != 1
    }
    found: list[tuple[str, str]] = []
    for term, known, (_, value) in zip(terms, extents, given, strict=True):
        ones = [axis for axis, extent in enumerate(known) if extent == 1 and term[axis] in spread]
        left = "".join(letter for axis, letter in enumerate(term) if axis not in ones)
        found.append((left, w.over("Squeeze", value, ones) if ones else value))
    changed = any(value != before for (_, value), (_, before) in zip(found, given, strict=True))
    return (found, result.replace("...", axes)) if changed else (given, result)


def _transposed_convolution(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """ConvTranspose by the full result, without padding, from which the requested elements are sliced; zeros past its
    end."""
    extents, filters = facts.extents(node.input[0]), facts.shapes.get(node.input[1])
    if extents is None or filters is None:
        return None
    sizes, rank, shape = extents[2:], len(extents) - 2, facts.shapes.get(node.input[0])
    pads = list(attribute(node, "pads", [0] * 2 * rank))
    auto = attribute(node, "auto_pad", b"NOTSET")
    finite = 0 in (*extents, *filters) or _is_finite(facts, node.input[1])
    asked = attribute(node, "output_shape", [])
    if finite and auto in (b"NOTSET", b"VALID") and pads[:rank] == pads[rank:] and not asked:
        return None
    w = NodeWriter(node, facts)
    strides, dilations = (list(attribute(node, name, [1] * rank)) for name in ("strides", "dilations"))
    reach = [(filters[axis + 2] - 1) * dilations[axis] + 1 for axis in range(rank)]
    places = [_kept(node, axis, sizes[axis], strides[axis], reach[axis]) for axis in range(rank)]
    if finite and not any(place is None for place in places):
        whole = w.add("ConvTranspose", *node.input[:2])
        kept = ("strides", "dilations", "group", "kernel_shape")
        w.nodes[-1].attribute.extend(item for item in node.attribute if item.name in kept)
    elif shape is not None:
        whole = _overlapped(w, shape, filters, strides, dilations)
    else:
        return None
    for axis, place in enumerate(places):
        before, after = place or (0, 0)
        if after < 0:
            around = np.zeros((2, rank + 2), np.int64)
            around[1, axis + 2] = -after
            whole = w.add("Pad", whole, w.constant(around.reshape(-1), "pads"))
        if before or after > 0:
            whole = w.slice(whole, axis + 2, before, -after if after > 0 else _TO_THE_END)
    if len(node.input) > 2 and node.input[2]:
        whole = w.add("Add", whole, w.reshape(node.input[2], [1, -1, *[1] * rank]))
    return w.done([whole])


def _kept(node: onnx.NodeProto, axis: int, size: int | None, stride: int, reach: int) -> tuple[int, int] | None:
    """The number of elements to crop from the full result along spatial `axis`, before and after; negative if elements
    are missing. None if it depends on a dynamic extent."""
    rank, auto = len(attribute(node, "pads", [])) // 2, attribute(node, "auto_pad", b"NOTSET")
    asked, more = attribute(node, "output_shape", []), attribute(node, "output_padding", [])
    added = more[axis] if more else 0
    if auto not in (b"SAME_UPPER", b"SAME_LOWER") and not asked:
        before, after = (attribute(node, "pads", [])[side * rank + axis] if rank else 0 for side in (0, 1))
        return before, after - added
    if size is None:
        return None
    length = (size - 1) * stride + reach
    count = asked[axis] if asked else size * stride
    total = max(0, length + added - count)
    before = total // 2 if auto == b"SAME_UPPER" else total - total // 2
    return before, length - before - count


def _overlapped(
    w: NodeWriter, shape: Sequence[int], filters: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> str:
    """The full result by definition: each pixel times the filters, accumulated where they overlap."""
    groups, pixels, rank = attribute(w.node, "group", 1), math.prod(shape[2:]), len(strides)
    image, matrices = (w.widened(name) for name in w.node.input[:2])
    image = w.reshape(image, [shape[0], groups, shape[1] // groups, pixels])
    matrices = w.reshape(matrices, [groups, shape[1] // groups, math.prod(filters[1:])])
    whole = w.add("MatMul", w.add("Transpose", matrices, perm=[0, 2, 1]), image)
    extents = [shape[0], groups * filters[1], *filters[2:], *shape[2:]]  # filter elements, then pixels, by axis
    whole = w.reshape(whole, extents)
    for stride, dilation in zip(strides, dilations, strict=True):
        taps = extents.pop(2)
        parts: list[str] = []
        for tap in range(taps):
            own = w.reshape(w.slice(whole, 2, tap, tap + 1), extents)
            around = np.zeros((2, len(extents)), np.int64)
            around[:, rank + 1] = tap * dilation, (taps - 1 - tap) * dilation
            own = _spread(w, own, extents, rank + 1, stride)
            parts.append(w.add("Pad", own, w.constant(around.reshape(-1), "pads")) if around.any() else own)
        whole = w.joined("Add", parts)
        extents[rank + 1] = (extents[rank + 1] - 1) * stride + (taps - 1) * dilation + 1
    return w.cast(whole, w.facts.types[w.node.input[0]])


def _spread(w: NodeWriter, value: str, extents: Sequence[int], axis: int, stride: int) -> str:
    """`value`, of `extents`, with zeros inserted along `axis` so that its elements are `stride` apart."""
    if stride == 1:
        return value
    separated = [*extents[: axis + 1], 1, *extents[axis + 1 :]]
    around = np.zeros((2, len(separated)), np.int64)
    around[1, axis + 1] = stride - 1
    value = w.add("Pad", w.reshape(value, separated), w.constant(around.reshape(-1), "pads"))
    joined = [*extents[:axis], extents[axis] * stride, *extents[axis + 1 :]]
    return w.slice(w.reshape(value, joined), axis, 0, (extents[axis] - 1) * stride + 1)


def _gemm(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    alpha = attribute(node, "alpha", 1.0)
    if (len(node.input) > 2 and node.input[2]) or alpha == 1 or node.input[0] not in facts.types:
        return None
    chain = Chain(node).then("Gemm", node.input[1])
    chain.nodes[0].attribute.extend(item for item in node.attribute if item.name in ("transA", "transB"))
    factor = np.array(alpha).astype(facts.dtype(node.input[0]))
    return chain.then("Mul", facts.constant(node, "alpha", factor)).done()


def _is_finite(facts: ModelFacts, name: str) -> bool:
    """Whether all elements of a value are known to be finite, such as those of a constant or of dequantised bytes."""
    if (constant := facts.model.constants.get(name)) is not None:
        return bool(np.isfinite(constant).all())
    if name not in facts.types:
        return False
    dtype = facts.dtype(name)
    if dtype.kind not in "fiu":
        return False  # types that numpy lacks, such as bfloat16
    largest = _largest(facts, name, _DEEPEST)
    return largest < (np.finfo(dtype).max if dtype.kind == "f" else math.inf)


def _largest(facts: ModelFacts, name: str, deepest: int) -> float:
    """A bound on the magnitude of the elements of a value before rounding; infinite if none is known."""
    constant = facts.model.constants.get(name)
    if constant is not None:
        magnitudes = np.abs(constant.astype(np.float64))
        return float(magnitudes.max(initial=0)) if np.isfinite(magnitudes).all() else math.inf
    dtype = facts.dtype(name) if name in facts.types else None
    if dtype is not None and dtype.kind in "iu":
        return float(max(np.iinfo(dtype).max, -np.iinfo(dtype).min))
    node = facts.producers.get(name)
    if node is None or not deepest:
        return math.inf
    own = [_largest(facts, each, deepest - 1) for each in node.input if each]
    if node.op_type in _KEEPS:
        return own[0]
    if node.op_type in ("Add", "Sub"):
        return own[0] + own[1]
    if node.op_type == "Mul":
        return own[0] * own[1]
    if node.op_type == "DequantizeLinear":
        return (own[0] + sum(own[2:])) * own[1]
    return math.inf



RULES: dict[str, Rule] = {
    "ConvTranspose": _transposed_convolution, "Einsum": _einsum, "Gemm": _gemm, "MatMul": _matmul,
}  # fmt: skip
