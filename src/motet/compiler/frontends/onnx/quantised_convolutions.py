"""Writes convolutions of bytes in forms that processors compute fast.

    ConvInteger(x, f, zx, zf)           →  f − zf as a matrix of filters · im2col(x) − zx
                                        →  Cast(Conv(x − zx, f − zf)) for groups and dynamic extents
    QLinearConv(x, sx, zx, f, sf, …)    →  QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(f), b · sx · sf))

im2col concatenates one slice of the padded image for each filter element along the channels. The sums of a Conv of
floats that replaces a ConvInteger are exact: it computes in f64 where they may exceed 24 bits. The other Conv is a
convolution of bytes for `narrow-quantised-products`, which leaves its result in the kernel until it is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.pools import pads_of
from motet.compiler.frontends.onnx.quantised import Bytes, byte_product
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
    return _Geometry(sizes, shape, strides, dilations, *pads_of(node, sizes, shape[2:]))


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
    if facts.version < SINCE or not _known(facts, image, filters, *filter(None, (zero_x, zero_f))):
        return None
    at, w = _geometry(node, facts, image, filters), NodeWriter(node, facts)
    if at is None:
        return _float_convolution(w, (image, zero_x), (filters, zero_f))
    found = _sums(w, at, (image, zero_x), (filters, zero_f))
    return w.done([w.reshape(found, [0, at.filters[0], *at.result])])


def _float_convolution(
    w: NodeWriter, image: tuple[str, str], filters: tuple[str, str]
) -> list[onnx.NodeProto] | None:
    """A ConvInteger as a Conv of floats, exact; None for filters of unknown extents."""
    import onnx

    shape = w.facts.shapes.get(filters[0])
    if shape is None:
        return None
    exact = prod(shape[1:]) * 255 * 255 < 1 << 24
    kind = onnx.TensorProto.FLOAT if exact else onnx.TensorProto.DOUBLE
    operands: list[str] = []
    for value, zero in (image, filters):
        value = w.cast(value, onnx.TensorProto.INT32)
        if zero:
            extents = [] if w.facts.shapes.get(zero) in ((), (1,)) else [-1, *[1] * (len(shape) - 1)]
            value = w.add("Sub", value, w.reshape(w.cast(zero, onnx.TensorProto.INT32), extents))
        operands.append(w.cast(value, kind))
    result = w.add("Conv", *operands)
    w.nodes[-1].attribute.extend(w.node.attribute)
    return w.done([w.cast(result, onnx.TensorProto.INT32)])


def _quantised_convolution(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    image, scale_x, zero_x, filters, scale_f, zero_f, scale_y, zero_y = node.input[:8]
    if facts.version < SINCE:
        if attribute(node, "group", 1) != 1:
            raise facts.model.error(
                f"node {node.name!r}: QLinearConv with groups is supported from operator set {SINCE} on, the model is "
                f"of {facts.version}; convert it with onnx.version_converter"
            )
        return None  # the wheel lowers it
    if not _known(facts, *node.input[:8]):
        return None
    w = NodeWriter(node, facts)
    operands = [
        w.add("DequantizeLinear", image, scale_x, zero_x), w.add("DequantizeLinear", filters, scale_f, zero_f, axis=0),
    ]
    if len(node.input) > 8 and node.input[8]:
        unit = w.add("Mul", scale_f, scale_x)
        operands.append(w.add("Mul", w.cast(node.input[8], onnx.TensorProto.FLOAT), unit))
    result = w.add("Conv", *operands)
    w.nodes[-1].attribute.extend(node.attribute)
    return w.done([w.add("QuantizeLinear", result, scale_y, zero_y)])


RULES: dict[str, Rule] = {"ConvInteger": _integer_convolution, "QLinearConv": _quantised_convolution}
