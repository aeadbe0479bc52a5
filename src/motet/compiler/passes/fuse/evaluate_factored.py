"""Evaluates tensors that are computed from constants as integers with sides (`factored.py`).

    %w = reshape (sitofp %bytes * %scales)        →        Factored(bytes, scale=%scales), axes ((4, 32), (64,))

Views rename, split and cut the axes of the arrays; element-wise nests align them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of, reassociation, static_or_none
from motet.compiler.ir.nests import is_elementwise
from motet.compiler.kernels.roles import known_number
from motet.compiler.passes.fuse.factored import Axes, Factored, evaluate_body, number_of, whole_integers


def leaf(array: np.ndarray) -> Factored | None:
    """The tensor of a constant; None for elements that are neither integers nor floats."""
    axes = tuple((extent,) for extent in array.shape)
    if array.dtype.kind in "iu":
        return _normal(Factored(axes, array.shape, array.view(f"i{array.dtype.itemsize}")))
    name = array.dtype.name
    if name in ("float16", "float32", "float64", "bfloat16"):
        return _normal(Factored(axes, array.shape, shift=array, is_real=True))
    return None


def _normal(what: Factored) -> Factored:
    """`what` without arrays' axes of extent 1."""
    parts = [part for own in what.axes for part in own]
    if 1 not in parts:
        return what

    def change(array: np.ndarray) -> np.ndarray:
        return array.reshape([size for size, part in zip(array.shape, parts, strict=True) if part != 1])

    return replace(what.each(change), axes=tuple(tuple(part for part in own if part != 1) for own in what.axes))


class Evaluator:
    """Evaluates the values of a function with the constants `parameters`."""

    def __init__(self, parameters: Mapping[ir.Value, np.ndarray]) -> None:
        self.parameters = parameters
        self.known: dict[ir.Value, Factored | None] = {}

    def is_widened(self, value: ir.Value) -> bool:
        """Whether `value` is computed from constants alone, with a conversion of integers to floats."""
        found, widened, waiting = set[ir.Value](), False, [value]
        while waiting:
            each = waiting.pop()
            if each in found or each in self.parameters:
                continue
            found.add(each)
            if isinstance(each.owner, ir.Block):
                return False
            maker = each.owner.operation
            waiting += maker.operands
            if len(maker.regions):
                widened |= any(
                    entry.operation.name in ("arith.sitofp", "arith.uitofp")
                    for entry in maker.regions[0].blocks[0].operations
                )
        return widened

    def evaluate(self, value: ir.Value) -> Factored | None:
        """The elements of `value`; None if it cannot be written so."""
        if value not in self.known:
            self.known[value] = self._evaluate(value)
        return self.known[value]

    def _evaluate(self, value: ir.Value) -> Factored | None:
        if value in self.parameters:
            return leaf(self.parameters[value])
        if isinstance(value.owner, ir.Block):
            return None
        maker = value.owner.operation
        if len(maker.results) != 1 or not isinstance(value.type, ir.RankedTensorType):
            return None
        if not value.type.has_static_shape or 0 in value.type.shape:
            return None
        number = known_number(value)
        if number is not None:
            return _splat(value.type, number)
        if maker.name == "linalg.generic":
            return self._nest(maker) if is_elementwise(maker) else None
        rename = _VIEWS.get(maker.name)
        source = None if rename is None else self.evaluate(maker.operands[0])
        if rename is not None:
            return None if source is None else rename(source, maker)
        joined = _JOINED.get(maker.name)
        parts = [self.evaluate(operand) for operand in maker.operands] if joined is not None else []
        if joined is None or any(part is None for part in parts):
            return None
        return joined([part for part in parts if part is not None], maker)

    def _nest(self, operation: ir.Operation) -> Factored | None:
        """The result of an element-wise nest."""
        maps, block = maps_of(operation), operation.regions[0].blocks[0]
        shape = list(ir.RankedTensorType(operation.results[0].type).shape)
        values: dict[ir.Value, Factored] = {}
        used = {operand for entry in block.operations for operand in entry.operation.operands}
        placed: list[tuple[ir.Value, Factored, list[int | None]]] = []
        for argument, operand, each in zip(block.arguments, operation.operands, maps[:-1], strict=False):
            if argument not in used:
                continue
            found = self._operand(operand)
            dims = None if found is None else _dims(each, found)
            if found is None or dims is None:
                return None
            placed.append((argument, found, dims))
        axes = _common_axes(shape, [(found, dims) for _, found, dims in placed])
        if axes is None:
            return None
        for argument, found, dims in placed:
            values[argument] = _aligned(found, dims, axes, shape)
        return evaluate_body(block, values, Factored(axes, tuple(shape)))

    def _operand(self, operand: ir.Value) -> Factored | None:
        if isinstance(operand.type, ir.RankedTensorType):
            return self.evaluate(operand)
        number = known_number(operand)
        return None if number is None else number_of(number)


# -- axes ----------------------------------------------------------------------------------------------


def _splat(kind: ir.Type, number: float | int) -> Factored:
    shape = tuple(ir.RankedTensorType(kind).shape)
    wide = number_of(number).each(lambda array: array.reshape((1,) * len(shape)))
    return _normal(replace(wide, axes=tuple((extent,) for extent in shape), extents=shape))


def _dims(each: ir.AffineMap, what: Factored) -> list[int | None] | None:
    """The dimension of each axis of an operand; None for one of extent 1. None if a result is something else."""
    dims: list[int | None] = []
    for result, extent in zip(each.results, what.extents, strict=True):
        if isinstance(result, ir.AffineDimExpr):
            dims.append(ir.AffineDimExpr(result).position)
        elif extent == 1:
            dims.append(None)
        else:
            return None
    return dims


def _common_axes(shape: Sequence[int], operands: Iterable[tuple[Factored, Sequence[int | None]]]) -> Axes | None:
    """The coarsest axes that refine those of all operands along each dimension of a nest."""
    divisions: list[set[tuple[int, ...]]] = [set() for _ in shape]
    for what, dims in operands:
        for own, dim in zip(what.axes, dims, strict=True):
            if dim is not None:
                divisions[dim].add(own)
    axes = list[tuple[int, ...]]()
    for extent, found in zip(shape, divisions, strict=True):
        if longer := [own for own in found if math.prod(own) != extent]:
            if len(longer) > 1 or found - {longer[0], (extent,)}:
                return None  # cut off, and divided in another way
            axes.append(longer[0])
            continue
        common: tuple[int, ...] | None = (extent,) if extent != 1 else ()
        for own in found:
            common = None if common is None else refine(common, own)
        if common is None:
            return None
        axes.append(common)
    return tuple(axes)


def refine(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """The coarsest division of an axis that both divisions can be made from; None if there is none."""
    borders = sorted(
        {math.prod(each[place:]) for each in (one, other) for place in range(len(each) + 1)}, reverse=True
    )
    if any(above % below for above, below in itertools.pairwise(borders)):
        return None
    return tuple(above // below for above, below in itertools.pairwise(borders))


def _divided(array: np.ndarray, axes: Axes, wanted: Axes) -> np.ndarray:
    """`array`, with axes as `axes` divides them, with those of `wanted`, which refine them."""
    shape: list[int] = []
    place = 0
    for own, finer in zip(axes, wanted, strict=True):
        rest = list(finer)
        for extent in own:
            pieces: list[int] = []
            while math.prod(pieces) != extent:
                pieces.append(rest.pop(0))
            shape += pieces if array.shape[place] != 1 else [1] * len(pieces)
            place += 1
    return array.reshape(shape)


def _aligned(what: Factored, dims: Sequence[int | None], axes: Axes, shape: Sequence[int]) -> Factored:
    """An operand with the axes of a nest."""
    wanted = tuple(() if dim is None else axes[dim] for dim in dims)
    what = _padded(what, [None if dim is None else math.prod(axes[dim]) for dim in dims])
    first = [sum(map(len, wanted[:place])) for place in range(len(wanted))]
    order = [
        first[place] + part
        for dim in range(len(shape)) for place, own in enumerate(dims) if own == dim for part in range(len(axes[dim]))
    ]
    left = [place for place in range(sum(map(len, wanted))) if place not in order]

    def change(array: np.ndarray) -> np.ndarray:
        finer = _divided(array, what.axes, wanted).transpose([*left, *order])
        moved = finer.reshape(finer.shape[len(left):])
        full: list[int] = []
        place = 0
        for dim, own in enumerate(axes):
            if dim in dims:
                full += moved.shape[place:place + len(own)]
                place += len(own)
            else:
                full += [1] * len(own)
        return moved.reshape(full)

    return replace(what.each(change), axes=axes, extents=tuple(shape))


def _padded(what: Factored, sizes: Sequence[int | None]) -> Factored:
    """`what` with undivided axes that are as long as `sizes`, of which the extents count."""
    for axis, (own, size) in enumerate(zip(what.axes, sizes, strict=True)):
        if size is None or size == math.prod(own):
            continue
        place, missing = sum(map(len, what.axes[:axis])), size - math.prod(own)

        def change(array: np.ndarray, place: int = place, missing: int = missing) -> np.ndarray:
            widths = [(0, missing if number == place else 0) for number in range(array.ndim)]
            return array if array.shape[place] == 1 else np.pad(array, widths, mode="edge")

        what = replace(what.each(change), axes=(*what.axes[:axis], (size,), *what.axes[axis + 1:]))
    return what


# -- views ---------------------------------------------------------------------------------------------


def _collapsed(what: Factored, operation: ir.Operation) -> Factored | None:
    axes, extents = list[tuple[int, ...]](), list[int]()
    for group in reassociation(operation):
        if any(math.prod(what.axes[axis]) != what.extents[axis] for axis in group[1:]):
            return None
        axes.append(tuple(part for axis in group for part in what.axes[axis]))
        extents.append(math.prod(what.extents[axis] for axis in group))
    return replace(what, axes=tuple(axes), extents=tuple(extents))


def _expanded(what: Factored, operation: ir.Operation) -> Factored | None:
    shape = list(ir.RankedTensorType(operation.results[0].type).shape)
    finer, axes = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for own, extent, group in zip(what.axes, what.extents, reassociation(operation), strict=True):
        sizes = [shape[axis] for axis in group]
        refined = refine(own, sizes) if math.prod(own) == extent else None
        if refined is None:
            if len(group) > 1 and any(size != 1 for size in sizes[1:]):
                return None
            finer.append(own)
            axes += [own, *((),) * (len(group) - 1)]
            continue
        finer.append(refined)
        rest = list(refined)
        for size in sizes:
            parts: list[int] = []
            while math.prod(parts) != size:
                parts.append(rest.pop(0))
            axes.append(tuple(parts))
    changed = what.each(lambda array: _divided(array, what.axes, tuple(finer)))
    return replace(changed, axes=tuple(axes), extents=tuple(shape))


def _cast(what: Factored, operation: ir.Operation) -> Factored | None:
    return what


def _sliced(what: Factored, operation: ir.Operation) -> Factored | None:
    offsets, sizes, strides = (
        static_or_none(operation, f"static_{name}") for name in ("offsets", "sizes", "strides")
    )
    if len(ir.RankedTensorType(operation.results[0].type).shape) != len(what.axes):
        return None
    result = what
    for axis, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
        if offset is None or size is None or stride is None:
            return None
        if (offset, size, stride) == (0, what.extents[axis], 1):
            continue
        cut = _cut(result, axis, offset, size, stride)
        if cut is None:
            return None
        result = cut
    return result


def _cut(what: Factored, axis: int, offset: int, size: int, stride: int) -> Factored | None:
    """`size` elements along an axis. One that is divided keeps the elements that a cut leaves out at its end."""
    own = what.axes[axis]
    extents = (*what.extents[:axis], size, *what.extents[axis + 1:])
    if len(own) != 1:
        return replace(what, extents=extents) if not offset and stride == 1 else None
    place = sum(map(len, what.axes[:axis]))
    inside = slice(offset, offset + stride * (size - 1) + 1, stride)

    def change(array: np.ndarray) -> np.ndarray:
        return array if array.shape[place] == 1 else array[(slice(None),) * place + (inside,)]

    axes = (*what.axes[:axis], (size,), *what.axes[axis + 1:])
    return _normal(replace(what.each(change), axes=axes, extents=extents))


_VIEWS: Mapping[str, Callable[[Factored, ir.Operation], Factored | None]] = {
    "tensor.collapse_shape": _collapsed, "tensor.expand_shape": _expanded, "tensor.cast": _cast,
    "tensor.extract_slice": _sliced,
}


def _plain(what: Factored) -> np.ndarray | None:
    """The integers of a tensor in its own shape; None for floats."""
    whole = whole_integers(what)
    if whole is None or any(math.prod(own) != extent for own, extent in zip(what.axes, what.extents, strict=True)):
        return None
    return np.broadcast_to(whole, [part for own in what.axes for part in own]).reshape(what.extents)


def _concatenated(parts: Sequence[Factored], operation: ir.Operation) -> Factored | None:
    arrays = [_plain(part) for part in parts]
    if any(array is None for array in arrays):
        return None
    axis = ir.IntegerAttr(operation.attributes["dim"]).value
    return leaf(np.concatenate([array for array in arrays if array is not None], axis))


def _inserted(parts: Sequence[Factored], operation: ir.Operation) -> Factored | None:
    arrays = [_plain(part) for part in parts]
    places = [static_or_none(operation, f"static_{name}") for name in ("offsets", "sizes", "strides")]
    if len(arrays) != 2 or arrays[0] is None or arrays[1] is None or any(None in each for each in places):
        return None
    offsets, sizes, strides = ([each or 0 for each in one] for one in places)
    result = arrays[1].astype(np.result_type(*[each for each in arrays if each is not None]))
    where = tuple(
        slice(offset, offset + stride * (size - 1) + 1, stride)
        for offset, size, stride in zip(offsets, sizes, strides, strict=True)
    )
    result[where] = arrays[0].reshape(sizes)
    return leaf(result)


_JOINED: Mapping[str, Callable[[Sequence[Factored], ir.Operation], Factored | None]] = {
    "tensor.concat": _concatenated, "tensor.insert_slice": _inserted,
}
