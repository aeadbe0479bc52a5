"""Writes operators that scatter elements of windows, or return their indices, with gathers.

- Col2Im: each pixel is the sum of the elements of all windows that contain it.
- MaxPool's second result: the index, in the whole operand, of the first largest element of each window.
- MaxUnpool: elements at the given indices, zeros elsewhere.
- TensorScatter: the update where it is written, the cache elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.pools import pads_of
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, Rule, unsupported

if TYPE_CHECKING:
    import onnx

_INT64 = 7  # of onnx.TensorProto


# -- Col2Im ----------------------------------------------------------------------------------------


def _col2im(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    columns, result = facts.extents(node.input[0]), facts.extents(node.output[0])
    image, block = (facts.model.constants.get(name) for name in node.input[1:3])
    wanted = image.tolist() if image is not None else (result or [None] * 3)[2:]
    pixels = [extent for extent in wanted if extent is not None]
    channels = (result or [None] * 2)[1]
    taps = int(block.prod()) if block is not None else None
    if columns is None or columns[1] is None or columns[2] is None or len(pixels) < len(wanted):
        raise unsupported(node, facts, "the extents of its operand and of its result, but for the batch, are known")
    if taps is None and channels:
        taps = columns[1] // channels
    if not taps or columns[1] % taps or node.input[0] not in facts.types:
        raise unsupported(node, facts, "the extents of its blocks are known, whose product divides the channels")
    w = Numbers(node, facts)
    places, inside = _columns(w, pixels, taps, columns[2])
    value, kind = _wide(w, node.input[0])
    value = w.reshape(value, [-1 if columns[0] is None else columns[0], columns[1] // taps, taps * columns[2]])
    value = w.add("Gather", value, places, axis=2)
    value = w.add("Where", inside, value, w.cast(w.of(0), kind))
    value = w.over("ReduceSum", value, [len(pixels) + 2], keepdims=0)
    return w.done([w.cast(value, facts.types[node.input[0]])])


def _wide(w: Numbers, value: str) -> tuple[str, int]:
    """`value`, converted to float32 from narrower types, and its original type."""
    import onnx

    kind = w.facts.types[value]
    if kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
        return w.cast(value, onnx.TensorProto.FLOAT), onnx.TensorProto.FLOAT
    return value, kind


def _columns(w: Numbers, pixels: Sequence[int], taps: int, count: int) -> tuple[str, str]:
    """For each pixel and filter element, the index (by filter element and block) of the addend, and whether it exists.
    Arithmetic on constants is folded."""
    rank = len(pixels)
    strides, dilations = (list(attribute(w.node, name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(attribute(w.node, "pads", [0] * 2 * rank))
    image, block = (w.cast(name, _INT64) for name in w.node.input[1:3])
    rest, tap = w.of(np.arange(taps)), [""] * rank
    counts, blocks, inside = [""] * rank, [""] * rank, [""] * rank
    for axis in reversed(range(rank)):
        extent = w.slice(block, 0, axis, axis + 1)
        extent = w.add("Max", extent, w.of([1]))
        tap[axis] = w.add("Mod", rest, extent)
        rest = w.add("Div", rest, extent)
        covered = w.add("Mul", w.add("Sub", extent, w.of(1)), w.of(dilations[axis]))
        free = w.add("Sub", w.of([pixels[axis] + pads[axis] + pads[axis + rank] - 1]), covered)
        counts[axis] = w.add("Add", w.add("Div", free, w.of(strides[axis])), w.of(1))
        own = [pixels[axis] if each == axis else 1 for each in range(rank)]
        at = w.of((np.arange(pixels[axis]) + pads[axis]).reshape(*own, 1))
        start = w.add("Sub", at, w.add("Mul", tap[axis], w.of(dilations[axis])))
        blocks[axis] = w.add("Div", start, w.of(strides[axis]))
        whole = w.add("Equal", w.add("Mul", blocks[axis], w.of(strides[axis])), start)
        first = w.add("Not", w.add("Less", start, w.of(0)))
        inside[axis] = w.joined("And", [whole, first, w.add("Less", blocks[axis], counts[axis])])
    place, whole = blocks[0], counts[0]
    for number, extent in zip(blocks[1:], counts[1:], strict=True):
        place = w.add("Add", w.add("Mul", place, extent), number)
        whole = w.add("Mul", whole, extent)
    fits = [w.add("Equal", whole, w.of(count))]
    if w.node.input[1] not in w.facts.model.constants:
        fits += [w.add("Equal", w.slice(image, 0, each, each + 1), w.of(pixels[each])) for each in range(rank)]
    fits.append(w.add("Equal", w.over("ReduceProd", block, [0], keepdims=1), w.of(taps)))
    said = f"an image of {list(pixels)} by blocks of {taps} elements must have {count} blocks"
    fine = w.required(w.reshape(w.joined("And", fits), []), said)
    there = w.add("And", fine, w.joined("And", inside))
    place = w.add("Add", place, w.of(np.arange(taps) * count))
    return w.add("Where", there, place, w.of(0)), there


# -- MaxPool and MaxUnpool -------------------------------------------------------------------------


def _max_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """MaxPool with indices as second result."""
    import onnx

    if len(node.output) < 2 or not node.output[1]:
        return None
    extents, result = facts.extents(node.input[0]), facts.extents(node.output[0])
    sizes, made = ([each for each in (found or [])[2:] if each is not None] for found in (extents, result))
    if extents is None or result is None or len(sizes) != len(made) or None in extents[1:]:
        raise unsupported(node, facts, "the extents of its operand are known, where it has indices as a result")
    w = Numbers(node, facts)
    places, inside = _windows(node, sizes, made)
    double = facts.types[node.input[0]] == onnx.TensorProto.DOUBLE
    value = node.input[0] if double else w.cast(node.input[0], onnx.TensorProto.FLOAT)
    batch = -1 if extents[0] is None else extents[0]
    flat = w.reshape(value, [batch, extents[1] or 0, math.prod(sizes)])
    parts = w.add("Gather", flat, w.of(places), axis=2)
    least = w.constant(np.array(-np.inf, np.float64 if double else np.float32), "least")
    parts = w.add("Where", w.constant(inside, "inside"), parts, least)
    largest = w.add("ArgMax", parts, axis=3, keepdims=0)
    starts = w.of(np.arange(len(places)) * places.shape[1])
    found = w.add("Gather", w.of(_by_storage(node, places, sizes).reshape(-1)), w.add("Add", largest, starts))
    images = w.of(np.arange((extents[0] or 1) * (extents[1] or 0)).reshape(extents[0] or 1, -1, 1))
    if extents[0] is None:
        batches = w.extent(value, 0)
        numbers = w.add("Range", w.of(0), batches, w.of(1))
        firsts = w.add("Mul", w.over("Unsqueeze", numbers, [1, 2]), w.of(extents[1] or 0))
        images = w.add("Add", images, firsts)
    found = w.add("Add", found, w.add("Mul", images, w.of(math.prod(sizes))))
    pooled = w.add("MaxPool", node.input[0])
    w.nodes[-1].attribute.extend(item for item in node.attribute if item.name != "storage_order")
    return w.done([pooled, w.reshape(found, [batch, extents[1] or 0, *made])])


def _windows(node: onnx.NodeProto, sizes: Sequence[int], made: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each window, the indices of its elements in an image of `sizes`, and which of them are inside; those outside
    get the index of one inside."""
    rank = len(sizes)
    kernel = list(attribute(node, "kernel_shape", [1] * rank))
    strides, dilations = (list(attribute(node, name, [1] * rank)) for name in ("strides", "dilations"))
    before, _ = pads_of(node, sizes, kernel)
    places, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for axis, (size, count) in enumerate(zip(sizes, made, strict=True)):
        at = np.arange(count)[:, None] * strides[axis] + np.arange(kernel[axis]) * dilations[axis] - before[axis]
        own = (at >= 0) & (at < size)
        places = places[:, None, :, None] * size + np.clip(at, 0, size - 1)[None, :, None, :]
        inside = inside[:, None, :, None] & own[None, :, None, :]
        places = places.reshape(places.shape[0] * count, -1)
        inside = inside.reshape(places.shape)
    first = np.take_along_axis(places, inside.argmax(1)[:, None], 1)
    return np.where(inside, places, first), inside


def _by_storage(node: onnx.NodeProto, places: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The indices in the order of the attribute `storage_order`."""
    if not attribute(node, "storage_order", 0):
        return places
    return np.ravel_multi_index(np.unravel_index(places, sizes), sizes, order="F")


def _max_unpool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """MaxUnpool. The indices refer to an image of the pool's input extents; a larger result is padded by zeros."""
    extents, result = facts.shapes.get(node.input[0]), facts.extents(node.output[0])
    asked = facts.model.constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    given = len(node.input) > 2 and node.input[2] and asked is None
    if extents is None or (given and (result is None or None in result)) or node.input[0] not in facts.types:
        raise unsupported(node, facts, "the extents of its operand and of its result are known")
    rank, kernel = len(extents) - 2, list(attribute(node, "kernel_shape", []))
    strides, pads = attribute(node, "strides", [1] * rank), attribute(node, "pads", [0] * 2 * rank)
    whole = list(extents[:2])
    whole += [(size - 1) * strides[axis] - pads[axis] - pads[axis + rank] + kernel[axis]
              for axis, size in enumerate(extents[2:])]  # fmt: skip
    wanted = [each or 0 for each in result or []] if given else whole if asked is None else asked.tolist()
    if any(more < extent for more, extent in zip(wanted, whole, strict=True)):
        raise unsupported(node, facts, f"output_shape has at least extents {whole}; it is {wanted}")
    w = Numbers(node, facts)
    zeros = w.constant(np.zeros(math.prod(whole), facts.dtype(node.input[0])), "zeros")
    places = w.reshape(node.input[1], [-1])
    if given:
        same = [w.add("Equal", w.slice(node.input[2], 0, axis, axis + 1), w.of(extent))
                for axis, extent in enumerate(wanted)]  # fmt: skip
        fine = w.required(w.reshape(w.joined("And", same), []), f"{node.input[2]} must be {wanted}")
        places = w.add("Where", fine, places, w.of(0))
    value = w.add("ScatterElements", zeros, places, w.reshape(node.input[0], [-1]), axis=0)
    value = w.reshape(value, whole)
    if wanted != whole:
        behind = [more - extent for more, extent in zip(wanted, whole, strict=True)]
        value = w.add("Pad", value, w.of([*[0] * len(whole), *behind]))
    return w.done([value])


# -- TensorScatter ---------------------------------------------------------------------------------


def _tensor_scatter(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    extents, update = (facts.extents(name) for name in node.input[:2])
    if extents is None or update is None or len(extents) != len(update):
        raise unsupported(node, facts, "the ranks of its operands are known")
    rank = len(extents)
    axis = attribute(node, "axis", -2) % rank
    if axis == 0:
        raise unsupported(node, facts, "axis is not that of the batch")
    w, own = Numbers(node, facts), [1] * rank
    lengths = [_extent(w, name, found[axis], axis) for name, found in zip(node.input, (extents, update), strict=False)]
    own[axis] = -1
    at = w.reshape(w.add("Range", w.of(0), lengths[0], w.of(1)), own)
    if len(node.input) > 2 and node.input[2]:
        starts = w.reshape(w.cast(node.input[2], _INT64), [-1, *[1] * (rank - 1)])
        if attribute(node, "mode", b"linear") == b"linear":
            first = w.add("Not", w.add("Less", starts, w.of(0)))
            last = w.add("Not", w.add("Less", lengths[0], w.add("Add", starts, lengths[1])))
            fine = w.add("Cast", w.add("And", first, last), to=_INT64)
            every = w.over("ReduceMin", fine, list(range(rank)), keepdims=0)
            said = f"{node.input[2]} must leave room for the update"
            starts = w.require(starts, w.add("Greater", every, w.of(0)), said)
            facts.model.demands.add(starts)
        at = w.add("Sub", at, starts)
    if attribute(node, "mode", b"linear") == b"circular":
        at = w.add("Mod", at, lengths[0])
    written = w.add("And", w.add("Not", w.add("Less", at, w.of(0))), w.add("Less", at, lengths[1]))
    value = node.input[1]
    if update[axis] != 1:
        places = w.add("Where", written, at, w.of(0))
        places = w.add("Expand", places, w.add("Shape", node.input[0]))
        if update[axis] is None:  # perhaps 0: an element more, so that there is a first one
            value = w.add("Pad", value, w.of([0] * rank + [int(each == axis) for each in range(rank)]))
        value = w.add("GatherElements", value, places, axis=axis)
    return w.done([w.add("Where", written, value, node.input[0])])


def _extent(w: Numbers, value: str, extent: int | None, axis: int) -> str:
    return w.extent(value, axis) if extent is None else w.of(extent)


RULES: dict[str, Rule] = {
    "Col2Im": _col2im, "MaxPool": _max_pool, "MaxUnpool": _max_unpool, "TensorScatter": _tensor_scatter,
}  # fmt: skip
