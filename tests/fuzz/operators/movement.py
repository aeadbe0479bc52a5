"""Operators that put elements at other places."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import ALL, FLOATS, NUMBERS
from tests.fuzz.operators.reductions import normalised
from tests.fuzz.registry import Attributes, Operands, Rejected, drawn, given, meaning
from tests.fuzz.tracked import Array, Invalid, Tracked, Undefined

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


def _integers(operand: Tracked | None) -> list[int]:
    return [int(value) for value in given(operand).value.reshape(-1)]


# -- shapes ----------------------------------------------------------------------------------------


@meaning("Reshape")
def _reshape(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, shape = given(operands[0]), _integers(operands[1])
    if not attributes.get("allowzero", 0):
        if any(e == 0 and axis >= len(x.shape) for axis, e in enumerate(shape)):
            raise Invalid("0 behind the last axis")
        shape = [x.shape[axis] if e == 0 else e for axis, e in enumerate(shape)]
    if -1 in shape and 0 in shape:
        raise Undefined("any extent fits")
    return [x.moved(lambda array: array.reshape(shape))]


@drawn("movement", "Reshape")
def _draw_reshape(d: Drawer) -> None:
    x = d.pick(ALL, (0, 5))
    shape = list(d.shape(x))
    kind = d.rng.choice(("flat", "merge", "split", "any"))
    if kind == "flat" or not shape:
        target = [-1] if shape and 0 not in shape else [1] * d.rng.randint(0, 3) if not shape else [math.prod(shape)]
    elif kind == "merge" and len(shape) > 1:
        at = d.rng.randrange(len(shape) - 1)
        target = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
    elif kind == "split":
        at = d.rng.randrange(len(shape))
        factors = [f for f in (1, 2, 3, 4, 5) if shape[at] and shape[at] % f == 0]
        factor = d.rng.choice(factors or [1])
        target = [*shape[:at], factor, shape[at] // factor, *shape[at + 1 :]]
    else:
        target = _factored(d, math.prod(shape))
    if 0 not in shape and d.rng.random() < 0.4 and target and -1 not in target:
        target[d.rng.randrange(len(target))] = -1
    if 0 in shape and 0 in target:
        d.node("Reshape", [x, d.integers(target)], allowzero=1)
        return
    if len(target) >= 1 and len(shape) >= 1 and target[0] == shape[0] and d.rng.random() < 0.3:
        target[0] = 0
    d.node("Reshape", [x, d.integers(target)])


def _factored(d: Drawer, size: int) -> list[int]:
    found: list[int] = []
    left = size
    for factor in (2, 3, 5, 2, 7):
        if left and left % factor == 0 and d.rng.random() < 0.5:
            found.append(factor)
            left //= factor
    found.append(left)
    d.rng.shuffle(found)
    return found


@meaning("Flatten")
def _flatten(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axis = attributes.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return [x.moved(lambda array: array.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))]


@meaning("Squeeze")
def _squeeze(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    if len(operands) < 2:
        return [x.moved(lambda array: array.reshape([e for e in array.shape if e != 1]))]
    axes = normalised(given(operands[1]).value, len(x.shape))
    if any(x.shape[axis] != 1 for axis in axes):
        raise Invalid("an axis that is squeezed is not 1")
    return [x.moved(lambda array: array.reshape([e for axis, e in enumerate(array.shape) if axis not in axes]))]


@meaning("Unsqueeze")
def _unsqueeze(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, axes = given(operands[0]), given(operands[1])
    where = normalised(axes.value, len(x.shape) + axes.value.size)
    return [x.moved(lambda array: np.expand_dims(array, where))]


@drawn("movement", "unit axes")
def _draw_units(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    shape = d.shape(x)
    kind = d.rng.choice(("Flatten", "Squeeze", "Unsqueeze", "Unsqueeze"))
    if kind == "Flatten":
        d.node(kind, [x], axis=d.rng.randint(-len(shape), len(shape)))
    elif kind == "Squeeze":
        ones = [axis - (len(shape) if d.rng.random() < 0.3 else 0) for axis, e in enumerate(shape) if e == 1]
        if not ones:
            raise Rejected("no 1")
        d.node(kind, [x, d.integers(d.rng.sample(ones, d.rng.randint(1, len(ones))))])
    else:
        count = d.rng.randint(1, 2)
        d.node(kind, [x, d.integers(d.rng.sample(range(len(shape) + count), count))])


@meaning("Transpose")
def _transpose(attributes: Attributes, operands: Operands) -> list[Tracked]:
    return [given(operands[0]).moved(lambda array: np.transpose(array, attributes.get("perm")))]


@drawn("movement", "Transpose")
def _draw_transpose(d: Drawer) -> None:
    x = d.pick(ALL, (2, 5))
    order = list(range(len(d.shape(x))))
    d.rng.shuffle(order)
    d.node("Transpose", [x], perm=None if d.rng.random() < 0.2 else order)


@drawn("movement", "Transpose again")
def _draw_transpose_again(d: Drawer) -> None:
    _draw_transpose(d)


@meaning("Expand")
def _expand(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    shape = np.broadcast_shapes(x.shape, tuple(_integers(operands[1])))
    return [x.moved(lambda array: np.broadcast_to(array, shape))]


@drawn("movement", "Expand")
def _draw_expand(d: Drawer) -> None:
    x = d.pick(ALL, (0, 4))
    target = [d.rng.choice((2, 3, 5, 1)) if e == 1 else d.rng.choice((e, e, 1)) for e in d.shape(x)]
    if d.rng.random() < 0.3:
        target = [d.rng.choice((1, 2, 3)), *target]
    if d.rng.random() < 0.2:
        target = target[1:]
    d.node("Expand", [x, d.integers(target)])


@meaning("Tile")
def _tile(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, repeats = given(operands[0]), _integers(operands[1])
    if len(repeats) != len(x.shape):
        raise Invalid("repeats")
    return [x.moved(lambda array: np.tile(array, repeats))]


@drawn("movement", "Tile")
def _draw_tile(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    d.node("Tile", [x, d.integers([d.rng.choice((1, 1, 2, 3)) for _ in d.shape(x)])])


# -- parts -----------------------------------------------------------------------------------------


@meaning("Slice")
def _slice(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    begins, ends = _integers(operands[1]), _integers(operands[2])
    axes = _integers(operands[3]) if len(operands) > 3 and operands[3] is not None else list(range(len(begins)))
    steps = _integers(operands[4]) if len(operands) > 4 else [1] * len(begins)
    where = [slice(None)] * len(x.shape)
    for begin, end, axis, by in zip(begins, ends, axes, steps, strict=True):
        extent = x.shape[axis]
        first = begin + extent if begin < 0 else begin
        last = end + extent if end < 0 else end
        if by > 0:
            first, last = min(max(first, 0), extent), min(max(last, 0), extent)
        else:
            first, last = min(max(first, 0), extent - 1), min(max(last, -1), extent - 1)
        where[axis] = slice(first, last if last >= 0 else None, by) if last >= 0 or by < 0 else slice(0, 0)
        if by < 0 and extent == 0:
            where[axis] = slice(0, 0)
    return [x.moved(lambda array: array[tuple(where)])]


@drawn("movement", "Slice")
def _draw_slice(d: Drawer) -> None:
    x = d.pick(ALL, (1, 5))
    shape = d.shape(x)
    axes = d.rng.sample(range(len(shape)), d.rng.randint(1, len(shape)))
    begins: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    for axis in axes:
        extent = shape[axis]
        a, b = sorted((d.rng.randint(0, extent), d.rng.randint(0, extent)))
        by = d.rng.choice((1, 1, 1, 2, 3, -1, -1, -2))
        if by < 0:
            a, b = b - 1 if b else 0, a - 1 if a else -extent - 1
        elif d.rng.random() < 0.25:
            b = d.rng.choice((2**31 - 1, 2**63 - 1, extent + 3))
        elif d.rng.random() < 0.25 and extent:
            a, b = a - extent, b - extent if b < extent else b
        begins, ends, steps = [*begins, a], [*ends, b], [*steps, by]
    named = [axis - len(shape) if d.rng.random() < 0.3 else axis for axis in axes]
    parts = [d.integers(begins), d.integers(ends), d.integers(named), d.integers(steps)]
    d.node("Slice", [x, *parts])


@meaning("Concat")
def _concat(attributes: Attributes, operands: Operands) -> list[Tracked]:
    parts = [given(operand) for operand in operands]
    axis = attributes["axis"]
    arrays = ([getattr(part, which) for part in parts] for which in ("value", "error", "unknown"))
    value, error, unknown = (np.concatenate(group, axis) for group in arrays)
    return [Tracked(parts[0].dtype, value, error, unknown)]


@drawn("movement", "Concat")
def _draw_concat(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))

    def fits(name: str) -> bool:
        other = d.shape(name)
        return d.dtype(name) == d.dtype(x) and len(other) == len(shape) and all(
            a == b for k, (a, b) in enumerate(zip(shape, other, strict=True)) if k != axis
        )

    found = [name for name in d.values() if fits(name)]
    others = [
        d.rng.choice(found) if found and d.rng.random() < 0.5 else
        d.fresh(d.dtype(x), [d.rng.choice((e, 1, 2, 5, 0)) if k == axis else e for k, e in enumerate(shape)])
        for _ in range(d.rng.choice((1, 1, 2)))
    ]
    parts = [x, *others]
    d.rng.shuffle(parts)
    d.node("Concat", parts, axis=axis - len(shape) if d.rng.random() < 0.3 else axis)


@meaning("Split")
def _split(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axis = attributes.get("axis", 0) % len(x.shape)
    extent = x.shape[axis]
    if len(operands) > 1:
        sizes = _integers(operands[1])
    else:
        count = attributes["num_outputs"]
        size = -(-extent // count)
        sizes = [size] * (count - 1) + [extent - size * (count - 1)]
    if sum(sizes) != extent or min(sizes) < 0:
        raise Invalid("the parts are not the whole")
    found: list[Tracked] = []
    begin = 0
    for size in sizes:
        where = [slice(None)] * len(x.shape)
        where[axis] = slice(begin, begin + size)
        found.append(x.moved(lambda array, where=tuple(where): array[where]))
        begin += size
    return found


@drawn("movement", "Split")
def _draw_split(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    count = d.rng.randint(1, 4)
    named = axis - len(shape) if d.rng.random() < 0.3 else axis
    if d.rng.random() < 0.4:
        d.node("Split", [x], outputs=count, axis=named, num_outputs=count)
        return
    marks = sorted(d.rng.randint(0, shape[axis]) for _ in range(count - 1))
    sizes = [b - a for a, b in zip([0, *marks], [*marks, shape[axis]], strict=True)]
    d.node("Split", [x, d.integers(sizes)], outputs=count, axis=named)


# -- around ----------------------------------------------------------------------------------------


@meaning("Pad")
def _pad(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, pads = given(operands[0]), _integers(operands[1])
    axes = _integers(operands[3]) if len(operands) > 3 and operands[3] is not None else list(range(len(x.shape)))
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    for number, axis in enumerate(axes):
        before[axis], after[axis] = pads[number], pads[number + len(axes)]
    cut = tuple(slice(max(0, -b), e - max(0, -a)) for b, a, e in zip(before, after, x.shape, strict=True))
    width = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    mode = attributes.get("mode", "constant")
    if any(b + a + e < 0 or -b > e or -a > e for b, a, e in zip(before, after, x.shape, strict=True)):
        raise Invalid("more than there is is cut")
    inside = x.moved(lambda array: array[cut])
    if mode != "constant":
        most = {"edge": lambda e: (1 << 62) * e, "reflect": lambda e: e - 1}.get(mode, lambda e: e)
        if any(max(w) > most(e) for w, e in zip(width, inside.shape, strict=True)):
            raise Invalid("padding beyond the image")
        return [inside.moved(lambda array: np.pad(array, width, mode=mode))]
    filler = operands[2] if len(operands) > 2 else None
    fill = 0 if filler is None else filler.value.reshape(-1)[0]
    return [Tracked(
        x.dtype, np.pad(inside.value, width, constant_values=fill), np.pad(inside.error, width),
        np.pad(inside.unknown, width),
    )]


@drawn("movement", "Pad")
def _draw_pad(d: Drawer) -> None:
    x = d.pick((*NUMBERS, "bool"), (1, 4))
    shape = d.shape(x)
    mode = d.rng.choice(("constant", "constant", "constant", "edge", "reflect"))
    if mode != "constant":
        d.node("Pad", [x, d.integers([d.rng.choice((0, 0, 1, 2)) for _ in range(2 * len(shape))])], mode=mode)
        return
    pads = [d.rng.choice((0, 0, 1, 2, 3, -1)) for _ in range(2 * len(shape))]
    inputs = [x, d.integers(pads)]
    if d.rng.random() < 0.6:
        inputs.append(d.fresh(d.dtype(x), (), -3, 3, constant=0.8))
    d.node("Pad", inputs, mode=mode)


# -- blocks ----------------------------------------------------------------------------------------


@meaning("DepthToSpace")
def _depth_to_space(attributes: Attributes, operands: Operands) -> list[Tracked]:
    size = attributes["blocksize"]

    def move(x: Array) -> Array:
        n, c, h, w = x.shape
        if attributes.get("mode", "DCR") == "DCR":
            parts = x.reshape(n, size, size, c // size**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            parts = x.reshape(n, c // size**2, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, c // size**2, h * size, w * size)

    return [given(operands[0]).moved(move)]


@meaning("SpaceToDepth")
def _space_to_depth(attributes: Attributes, operands: Operands) -> list[Tracked]:
    size = attributes["blocksize"]

    def move(x: Array) -> Array:
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // size, size, w // size, size).transpose(0, 3, 5, 1, 2, 4)
        return parts.reshape(n, c * size**2, h // size, w // size)

    return [given(operands[0]).moved(move)]


@drawn("movement", "blocks")
def _draw_blocks(d: Drawer) -> None:
    size = d.rng.choice((2, 2, 3))
    if d.rng.random() < 0.5:
        extents = (d.rng.choice((1, 2)), d.rng.choice((1, 2, 3)), size * d.rng.choice((1, 2, 3)), size * 2)
        x = d.fresh(d.any_of(FLOATS), extents)
        d.node("SpaceToDepth", [x], blocksize=size)
        return
    x = d.fresh(d.any_of(FLOATS), (d.rng.choice((1, 2)), size**2 * d.rng.choice((1, 2, 3)), d.rng.choice((1, 3, 5)), 2))
    mode = d.rng.choice(("DCR", "CRD"))
    d.node("DepthToSpace", [x], blocksize=size, mode=mode)


@meaning("Trilu")
def _triangle(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    shift = _integers(operands[1])[0] if len(operands) > 1 else 0
    keep = (np.triu if attributes.get("upper", 1) else np.tril)(np.ones(x.shape[-2:], bool), shift)
    value = np.where(keep, x.value, np.zeros((), x.value.dtype))
    return [Tracked(x.dtype, value, np.where(keep, x.error, 0.0), x.unknown & keep)]


@drawn("movement", "Trilu")
def _draw_triangle(d: Drawer) -> None:
    x = d.pick(ALL, (2, 4))
    shift = [d.constant(np.array(d.rng.randint(-3, 3), np.int64))] if d.rng.random() < 0.7 else []
    d.node("Trilu", [x, *shift], upper=d.rng.choice((0, 1)))


@meaning("Resize")
def _resize(attributes: Attributes, operands: Operands) -> list[Tracked]:
    """Nearest, by whole factors, asymmetric and rounded down: each element as often as the scale says."""
    x = given(operands[0])
    scales = [int(scale) for scale in given(operands[2]).value]

    def move(array: Array) -> Array:
        for axis, scale in enumerate(scales):
            array = np.repeat(array, scale, axis)
        return array

    return [x.moved(move)]


@drawn("movement", "Resize")
def _draw_resize(d: Drawer) -> None:
    x = d.pick((*FLOATS, "i32", "u8", "i8"), (3, 4), lambda n: 0 not in d.shape(n))
    scales = [1.0, 1.0, *(d.rng.choice((1.0, 2.0, 3.0)) for _ in d.shape(x)[2:])]
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    d.node("Resize", [x, "", d.constant(np.array(scales, np.float32))], **modes)


@meaning("Shape")
def _shape(attributes: Attributes, operands: Operands) -> list[Tracked]:
    from tests.fuzz.tracked import integer

    x = given(operands[0])
    return [integer(np.array(x.shape[attributes.get("start", 0) : attributes.get("end")], np.int64), "i64")]


@drawn("movement", "Shape")
def _draw_shape(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    start = d.rng.randint(0, len(d.shape(x)) - 1)
    d.node("Shape", [x], start=start)


