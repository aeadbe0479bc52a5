"""Writes convolutions of bytes as products of bytes, which processors compute fast.

    ConvInteger(x, f, zx, zf)           →  f − zf as a matrix of filters · im2col(x) − zx
    QLinearConv(x, sx, zx, f, sf, …)    →  the same, with its bias, scaled and saturated

im2col concatenates one slice of the padded image for each filter element along the channels. Grouped convolutions and
those of dynamic extents are left unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.quantised import Bytes, byte_product, requantised
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

SINCE = 11  # from this operator set on, Pad and Clip take their numbers as inputs


@dataclass(frozen=True)
class _Geometry:
    """The geometry of a convolution along each axis of the image."""

    image: list[int]
    filters: tuple[int, ...]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.filters[2:]

    @property
    def result(self) -> list[int]:
        padded = zip(self.image, self.before, self.after, strict=True)
        spread = zip(self.kernel, self.dilations, strict=True)
        rooms = [sum(sizes) - ((k - 1) * d + 1) for sizes, (k, d) in zip(padded, spread, strict=True)]
        return [room // stride + 1 for room, stride in zip(rooms, self.strides, strict=True)]


def _geometry(node: onnx.NodeProto, facts: ModelFacts, image: str, filters: str) -> _Geometry | None:
    extents, shape = facts.extents(image), facts.shapes.get(filters)
    if extents is None or shape is None or attribute(node, "group", 1) != 1 or facts.version < SINCE:
        return None
    sizes = [size for size in extents[2:] if size is not None]
    if len(sizes) != len(extents) - 2 or extents[1] is None or 0 in (*sizes, *shape):
        return None
    rank = len(sizes)
    strides, dilations = (list(attribute(node, name, [1] * rank)) for name in ("strides", "dilations"))
    pads, auto = list(attribute(node, "pads", [0] * 2 * rank)), attribute(node, "auto_pad", b"NOTSET")
    before, after = pads[:rank], pads[rank:]
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        totals = [
            max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
            for size, stride, kernel, dilation in zip(sizes, strides, shape[2:], dilations, strict=True)
        ]
        halves = [total // 2 for total in totals]
        rest = [total - half for total, half in zip(totals, halves, strict=True)]
        before, after = (halves, rest) if auto == b"SAME_UPPER" else (rest, halves)
    elif auto == b"VALID":
        before, after = [0] * rank, [0] * rank
    return _Geometry(sizes, shape, strides, dilations, before, after)


def _sums(w: NodeWriter, at: _Geometry, image: tuple[str, str], filters: tuple[str, str]) -> str:
    """The convolution in 32 bits, its pixels flattened, of both operands with their zero points."""
    value, zero = image
    unsigned = w.facts.dtype(value).kind == "u"
    if any((*at.before, *at.after)):
        pads = w.constant(np.array([0, 0, *at.before, 0, 0, *at.after], np.int64), "pads")
        padding = zero or w.constant(np.zeros((), w.facts.dtype(value)), "nothing")
        value = w.add("Pad", value, pads, w.reshape(padding, []) if w.facts.rank(zero) else padding)
    ends = [(extent - 1) * stride + 1 for extent, stride in zip(at.result, at.strides, strict=True)]
    plain = prod(at.kernel) == 1 and all(stride == 1 for stride in at.strides)
    under: list[str] = [value] if plain else []
    for place in product(*map(range, at.kernel)) if not plain else ():
        starts = np.array([i * dilation for i, dilation in zip(place, at.dilations, strict=True)], np.int64)
        numbers = (starts, starts + ends, np.arange(2, 2 + len(place)), np.array(at.strides, np.int64))
        under.append(w.add("Slice", value, *(w.constant(array, "slice") for array in numbers)))
    columns = w.add("Concat", *under, axis=1) if len(under) > 1 else under[0]
    depth = at.filters[1] * prod(at.kernel)
    columns = w.reshape(columns, [0, depth, prod(at.result)])
    weights, weights_zero = filters
    order = [0, *range(2, len(at.filters)), 1]
    matrix = w.reshape(w.add("Transpose", weights, perm=order), [at.filters[0], depth])
    return byte_product(
        w, Bytes(matrix, weights_zero, w.facts.dtype(weights).kind == "u", 2), Bytes(columns, zero, unsigned, 3)
    )


def _known(facts: ModelFacts, *names: str) -> bool:
    return all(name in facts.types and facts.rank(name) is not None for name in names)


def _integer_convolution(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    image, filters, zero_x, zero_f = [*node.input, "", ""][:4]
    at = _geometry(node, facts, image, filters)
    if at is None or not _known(facts, image, filters, *filter(None, (zero_x, zero_f))):
        return None
    w = NodeWriter(node, facts)
    found = _sums(w, at, (image, zero_x), (filters, zero_f))
    return w.done([w.reshape(found, [0, at.filters[0], *at.result])])


def _quantised_convolution(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    image, scale_x, zero_x, filters, scale_f, zero_f, scale_y, zero_y = node.input[:8]
    at = _geometry(node, facts, image, filters)
    if at is None or not _known(facts, *node.input[:8]):
        return None
    w = NodeWriter(node, facts)
    found = _sums(w, at, (image, zero_x), (filters, zero_f))
    if len(node.input) > 8 and node.input[8]:
        found = w.add("Add", found, w.reshape(node.input[8], [-1, 1]))
    per_filter = w.reshape(scale_f, [-1, 1]) if facts.rank(scale_f) else scale_f
    found = requantised(w, found, (scale_x, per_filter, scale_y), zero_y)
    return w.done([w.reshape(found, [0, at.filters[0], *at.result])])


RULES: dict[str, Rule] = {"ConvInteger": _integer_convolution, "QLinearConv": _quantised_convolution}
