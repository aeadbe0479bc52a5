"""Lowers torchvision's roi_pool and ps_roi_pool: maxima or means of all elements in each cell of a region.

Cells of a region differ in size, so each point has a loop over the elements of its cell.

Source: torchvision's `csrc/ops/cpu/roi_pool_kernel.cpp`, `ps_roi_pool_kernel.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.onnx.tensors import is_used, replace_all
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.loops import repeat
from motet.compiler.operators.arithmetic import Real
from motet.compiler.operators.pointwise import clamped, size_of
from motet.compiler.operators.regions import RegionOperands

_LOWEST = -3.4028234663852886e38  # where maxima begin, also in float64


def lower_pool(operator: ir.Operation, of: RegionOperands) -> None:
    """Replaces `operator`, whose second result is the place of each maximum, or the channel of each mean."""
    if of.is_split:
        replace_all(operator, [of.pointwise(of.kind, lambda _, loops: _mean(of, loops)), *channels(operator, of)])
        return
    word = ir.IntegerType.get_signless(32)
    places = of.pointwise(word, lambda _, loops: _largest(of, loops)[1]) if is_used(operator.results[1]) else None
    replace_all(operator, [of.pointwise(of.kind, lambda _, loops: _largest(of, loops)[0]), places])


def channels(operator: ir.Operation, of: RegionOperands) -> list[ir.Value | None]:
    """The further results of an operator: the channel of the image that each element is from, if it is used."""
    word = ir.IntegerType.get_signless(32)
    return [
        of.pointwise(word, lambda _, loops: create("arith.index_cast", word, [of.channel(loops)]))
        if is_used(result) else None
        for result in list(operator.results)[1:]
    ]


def _ends(of: RegionOperands, axis: int, loops: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
    """The first element of a cell along an axis, and the one after its last."""
    f = of.floats
    low, high = (f.round_away(end) for end in of.ends(loops[0], axis))
    length = high - low
    width, cell = f.most(length if of.is_split else length + 1, 1) / of.cells[axis], f.of_index(loops[2 + axis])
    begin, end = f.floor(cell * width), f.ceil((cell + 1) * width)
    size = f.of_index(size_of(of.image, 2 + axis))
    most = size - 1 if of.is_split else size  # torchvision's means never reach the last element
    first, last = (f.index(f.clip(part + low, 0, most)) for part in (begin, end))
    return first, last


def _largest(of: RegionOperands, loops: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
    """The maximum of a cell, and its place in the plane: 0 and -1 for cells without elements."""
    f, word = of.floats, ir.IntegerType.get_signless(32)
    rows, columns = (_ends(of, axis, loops) for axis in range(2))
    plane, ends, width = of.plane(loops), of.last_elements(), size_of(of.image, 3)
    none = create("arith.constant", word, [], {"value": ir.IntegerAttr.get(word, -1)})

    def row(y: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
        start = create("arith.muli", y.type, [y, width])

        def column(x: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
            value = of.read(plane, (clamped(y, ends[0]), clamped(x, ends[1])))
            place = create("arith.index_cast", word, [create("arith.addi", y.type, [start, x])])
            most = Real(before[0])
            more = value > most
            return [f.select(more, value, most), create("arith.select", word, [more, place, before[1]])]

        return repeat(*columns, before, column)

    value, place = repeat(*rows, [f.of(_LOWEST), none], row)
    return f.narrowed(_unless_empty(of, rows, columns, Real(value)), of.kind), place


def _mean(of: RegionOperands, loops: Sequence[ir.Value]) -> ir.Value:
    """The mean of a cell; zero for cells without elements."""
    f = of.floats
    rows, columns = (_ends(of, axis, loops) for axis in range(2))
    plane, ends = of.plane(loops), of.last_elements()

    def row(y: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
        y = clamped(y, ends[0])
        return repeat(*columns, before, lambda x, sums: [Real(sums[0]) + of.read(plane, (y, clamped(x, ends[1])))])

    total = Real(repeat(*rows, [f.of(0)], row)[0])
    high, wide = (f.of_index(create("arith.subi", end.type, [end, begin])) for begin, end in (rows, columns))
    return f.narrowed(_unless_empty(of, rows, columns, total / (high * wide)), of.kind)


def _unless_empty(
    of: RegionOperands, rows: Sequence[ir.Value], columns: Sequence[ir.Value], value: Real
) -> Real:
    """`value`; zero for cells without elements."""
    f = of.floats
    for begin, end in (rows, columns):
        length = f.of_index(create("arith.subi", end.type, [end, begin]))
        value = f.select(length > 0, value, 0)
    return value
