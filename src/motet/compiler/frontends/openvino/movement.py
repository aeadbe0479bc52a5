"""Operators that rename, repeat and reorder elements."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _reshape(op: OpenvinoOperation, w: GraphWriter) -> str:
    copies_zeros = bool(op.attribute("special_zero", True))
    extents = op.value(1)
    if extents is not None:
        numbers = [int(each) for each in extents.reshape(-1)]
        return w.add("Reshape", op.inputs[0], w.ints(numbers), allowzero=int(not copies_zeros and 0 in numbers))
    return w.add("Reshape", op.inputs[0], w.cast(op.inputs[1], np.int64), allowzero=int(not copies_zeros))


def _transpose(op: OpenvinoOperation, w: GraphWriter) -> str:
    rank = op.rank(0)
    order = op.numbers(1, "order") or list(reversed(range(rank)))
    return w.transpose(op.inputs[0], [axis % rank for axis in order])


def _squeeze(op: OpenvinoOperation, w: GraphWriter) -> str:
    if not op.has(1) or op.extents(1) == [0]:
        extents = op.extents(0)
        if extents is None or None in extents:
            raise NoLowering("no axes, of a tensor of dynamic extents; expected constant axes")
        return w.reshape(op.inputs[0], [extent for extent in extents if extent is not None and extent != 1])
    axes = op.axes(1, op.rank(0))
    extents = op.extents(0) or []
    kept = [axis for axis in dict.fromkeys(axes) if extents[axis] in (1, None)]
    return w.squeeze(op.inputs[0], *kept) if kept else op.inputs[0]


def _unsqueeze(op: OpenvinoOperation, w: GraphWriter) -> str:
    numbers = op.numbers(1, "axes")
    rank = op.rank(0) + len(numbers)
    return w.unsqueeze(op.inputs[0], *dict.fromkeys(number % rank for number in numbers))


def _concat(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Concat", *op.inputs, axis=int(op.attribute("axis")))


def _split(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    axis, count = op.axes(1, op.rank(0))[0], int(op.attribute("num_splits"))
    extent = (op.extents(0) or [])[axis]
    if extent is None:
        return w.add_all("Split", count, op.inputs[0], axis=axis, num_outputs=count)
    return w.add_all("Split", count, op.inputs[0], w.ints([extent // count] * count), axis=axis)


def _variadic_split(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    axis = op.axes(1, op.rank(0))[0]
    if op.results == 1:
        return [op.inputs[0]]
    if op.value(2) is None:
        return _split_in_call(op, w, axis)
    lengths, extent = op.numbers(2, "lengths"), (op.extents(0) or [])[axis]
    if -1 in lengths:
        if extent is None:
            return _split_around(op, w, axis, lengths)
        lengths[lengths.index(-1)] = extent - sum(length for length in lengths if length >= 0)
    return w.add_all("Split", len(lengths), op.inputs[0], w.ints(lengths), axis=axis)


def _split_in_call(op: OpenvinoOperation, w: GraphWriter, axis: int) -> list[str]:
    """Parts whose lengths a call computes, of which one may be -1: what the others leave."""
    given, nothing = w.cast(op.inputs[2], np.int64), w.ints(0)
    is_open = w.add("Equal", given, w.ints(-1))
    others = w.reduce("ReduceSum", w.add("Where", is_open, nothing, given), [0])
    rest = w.add("Sub", w.extent(op.inputs[0], axis), others)
    parts = w.add_all("Split", op.results, op.inputs[0], w.add("Where", is_open, rest, given), axis=axis)
    # ONNX infers no rank for parts of computed lengths; a Reshape that copies all extents has one.
    return [w.add("Reshape", part, w.ints([0] * op.rank(0))) for part in parts]


def _split_around(op: OpenvinoOperation, w: GraphWriter, axis: int, lengths: list[int]) -> list[str]:
    """The parts before the one of the remaining length count from the start, those after it from the end."""
    rest = lengths.index(-1)
    parts: list[str] = []
    for place in range(len(lengths)):
        after = sum(lengths[place + 1 :])
        start = sum(lengths[:place]) if place <= rest else -sum(lengths[place:])
        if place < rest:
            parts.append(w.slice(op.inputs[0], axis, start, start + lengths[place]))
        elif after:
            parts.append(w.slice(op.inputs[0], axis, start, -after))
        else:
            parts.append(w.slice(op.inputs[0], axis, start))
    return parts


def _tile(op: OpenvinoOperation, w: GraphWriter) -> str:
    rank, repeats = op.rank(0), op.value(1)
    if repeats is None:
        return w.add("Tile", op.inputs[0], w.cast(op.inputs[1], np.int64))
    numbers = [int(each) for each in repeats.reshape(-1)]
    value = op.inputs[0]
    if len(numbers) > rank:
        value = w.unsqueeze(value, *range(len(numbers) - rank))
    return w.add("Tile", value, w.ints([1] * (rank - len(numbers)) + numbers))


def _broadcast(op: OpenvinoOperation, w: GraphWriter) -> str:
    """`explicit` maps the axes of the operand to those of the result; the other modes are ONNX's Expand."""
    target = w.cast(op.inputs[1], np.int64)
    shape = op.value(1)
    if shape is not None:
        target = w.ints([int(each) for each in shape.reshape(-1)])
    value = op.inputs[0]
    if str(op.attribute("mode", "numpy")).lower() == "explicit":
        places, rank = op.numbers(2, "axes"), len(op.result_extents() or [])
        value = w.unsqueeze(value, *(axis for axis in range(rank) if axis not in places))
    return w.add("Expand", value, target)


def _pad(op: OpenvinoOperation, w: GraphWriter) -> str:
    mode = str(op.attribute("pad_mode", "constant")).lower()
    if mode == "symmetric":
        return _pad_symmetric(op, w)
    begins, ends = (w.cast(op.inputs[place], np.int64) for place in (1, 2))
    if (first := op.value(1)) is not None and (last := op.value(2)) is not None:
        pads = w.ints([int(each) for each in (*first.reshape(-1), *last.reshape(-1))])
    else:
        pads = w.add("Concat", begins, ends, axis=0)
    if mode != "constant":
        return w.add("Pad", op.inputs[0], pads, mode=mode)
    value = op.inputs[3] if op.has(3) else w.constant(0, op.dtype(0))
    return w.add("Pad", op.inputs[0], pads, value, mode="constant")


def _pad_symmetric(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Repeats the elements mirrored, the edge included: slices at constant places along each padded axis."""
    before, after = op.numbers(1, "pads"), op.numbers(2, "pads")
    value = op.inputs[0]
    for axis, extent in enumerate(op.extents(0) or []):
        if not before[axis] and not after[axis]:
            continue
        if extent is None:
            raise NoLowering(f"symmetric, along axis {axis} of dynamic extent; expected a known one")
        places = np.arange(-before[axis], extent + after[axis]) % (2 * extent)
        value = w.take(value, np.where(places < extent, places, 2 * extent - 1 - places), axis)
    return value


def _reverse(op: OpenvinoOperation, w: GraphWriter) -> str:
    rank = op.rank(0)
    if str(op.attribute("mode", "index")).lower() == "mask":
        axes = [int(axis) for axis in np.flatnonzero(op.known(1, "axes"))]
    else:
        axes = op.axes(1, rank)
    value = op.inputs[0]
    for axis in axes:
        value = w.slice(value, axis, -1, -(2**62), -1)
    return value


def _reverse_sequence(op: OpenvinoOperation, w: GraphWriter) -> str:
    rank = op.rank(0)
    batch, time = (int(op.attribute(name)) % rank for name in ("batch_axis", "seq_axis"))
    order = [time, batch, *(axis for axis in range(rank) if axis not in (time, batch))]
    lengths = w.cast(op.inputs[1], np.int64)
    turned = w.add("ReverseSequence", w.transpose(op.inputs[0], order), lengths, time_axis=0, batch_axis=1)
    return w.transpose(turned, [order.index(axis) for axis in range(rank)])


def _roll(op: OpenvinoOperation, w: GraphWriter) -> str:
    rank, extents = op.rank(0), op.extents(0) or []
    shifts, axes = op.numbers(1, "shifts"), op.axes(2, rank)
    value = op.inputs[0]
    for shift, axis in zip(shifts * (len(axes) if len(shifts) == 1 else 1), axes, strict=True):
        extent = extents[axis]
        if extent is None:
            value = _roll_dynamic(w, value, shift, axis)
        elif extent and shift % extent:
            cut = extent - shift % extent
            value = w.add("Concat", w.slice(value, axis, cut), w.slice(value, axis, 0, cut), axis=axis)
    return value


def _roll_dynamic(w: GraphWriter, value: str, shift: int, axis: int) -> str:
    extent = w.squeeze(w.extent(value, axis), 0)
    places = w.add("Range", w.ints(0), extent, w.ints(1))
    return w.add("Gather", value, w.add("Mod", w.add("Sub", places, w.ints(shift)), extent), axis=axis)


def _shuffle_channels(op: OpenvinoOperation, w: GraphWriter) -> str:
    shape = op.shape(0)
    axis, groups = int(op.attribute("axis")) % len(shape), int(op.attribute("group"))
    parts = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(parts))]
    return w.reshape(w.transpose(w.reshape(op.inputs[0], parts), order), shape)


def _depth_to_space(op: OpenvinoOperation, w: GraphWriter) -> str:
    """[N, C, D…] with C = block^k · c: the blocks' places are the first factors of C, or with depth_first its last."""
    block, first = int(op.attribute("block_size")), str(op.attribute("mode")).lower() == "blocks_first"
    if op.rank(0) == 4:
        return w.add("DepthToSpace", op.inputs[0], blocksize=block, mode="DCR" if first else "CRD")
    shape = op.shape(0)
    space = len(shape) - 2
    channels = shape[1] // block**space
    parts = [block] * space
    inner = [*parts, channels] if first else [channels, *parts]
    offset = 1 if first else 2
    order = [0, 1 + space if first else 1]
    for axis in range(space):
        order += [2 + space + axis, offset + axis]
    moved = w.transpose(w.reshape(op.inputs[0], [shape[0], *inner, *shape[2:]]), order)
    return w.reshape(moved, [shape[0], channels, *(extent * block for extent in shape[2:])])


def _space_to_depth(op: OpenvinoOperation, w: GraphWriter) -> str:
    block, first = int(op.attribute("block_size")), str(op.attribute("mode")).lower() == "blocks_first"
    shape = op.shape(0)
    space = len(shape) - 2
    parts = [shape[0], shape[1]]
    for extent in shape[2:]:
        parts += [extent // block, block]
    outer, inner = [2 + 2 * axis for axis in range(space)], [3 + 2 * axis for axis in range(space)]
    order = [0, *inner, 1, *outer] if first else [0, 1, *inner, *outer]
    moved = w.transpose(w.reshape(op.inputs[0], parts), order)
    return w.reshape(moved, [shape[0], shape[1] * block**space, *(extent // block for extent in shape[2:])])


def _batch_to_space(op: OpenvinoOperation, w: GraphWriter) -> str:
    shape, blocks = op.shape(0), op.numbers(1, "blocks")
    begins, ends = op.numbers(2, "crops"), op.numbers(3, "crops")
    rank = len(shape)
    batch = shape[0] // int(np.prod(blocks))
    value = w.reshape(op.inputs[0], [*blocks[1:], batch, *shape[1:]])
    order = [rank - 1]
    for axis in range(rank - 1):
        order += [rank + axis, axis]
    extents = [batch, *(extent * block for extent, block in zip(shape[1:], blocks[1:], strict=True))]
    value = w.reshape(w.transpose(value, order), extents)
    for axis, extent in enumerate(extents):
        if begins[axis] or ends[axis]:
            value = w.slice(value, axis, begins[axis], extent - ends[axis])
    return value


def _space_to_batch(op: OpenvinoOperation, w: GraphWriter) -> str:
    shape, blocks = op.shape(0), op.numbers(1, "blocks")
    begins, ends = op.numbers(2, "pads"), op.numbers(3, "pads")
    rank = len(shape)
    value = w.add("Pad", op.inputs[0], w.ints([*begins, *ends]), w.constant(0, op.dtype(0)))
    extents = [extent + begin + end for extent, begin, end in zip(shape, begins, ends, strict=True)]
    parts = [extents[0]]
    for extent, block in zip(extents[1:], blocks[1:], strict=True):
        parts += [extent // block, block]
    order = [*(2 * axis for axis in range(1, rank)), 0, *(2 * axis - 1 for axis in range(1, rank))]
    moved = w.transpose(w.reshape(value, parts), order)
    return w.reshape(moved, [extents[0] * int(np.prod(blocks)),
                             *(extent // block for extent, block in zip(extents[1:], blocks[1:], strict=True))])


RULES: Rules = {
    "Reshape": _reshape, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Concat": _concat,
    "Split": _split, "VariadicSplit": _variadic_split, "Tile": _tile, "Broadcast": _broadcast, "Pad": _pad,
    "Reverse": _reverse, "ReverseSequence": _reverse_sequence, "Roll": _roll, "ShuffleChannels": _shuffle_channels,
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "BatchToSpace": _batch_to_space,
    "SpaceToBatch": _space_to_batch,
}
