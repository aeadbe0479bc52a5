"""Lowers scans, sorts and scatters of whole tensors to loops over elements, still on tensors.

    %y = tm_tensor.sort dimension(0) outs(%x) { %a <= %b }   →   scf.for … scf.for %j … { exchange %x[%j], %x[%j + 1] }

It serves the oracle, and operations inside loops and branches, which cannot be kernels of their own. Sorts exchange
neighbours that are in the wrong order, n² times, and so are stable; a NaN is greater than all numbers, as in kernels.
Accesses at computed indices are checked as all others of tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.loops import copy_body, repeat, repeat_nested
from motet.compiler.ir.program import DROPS
from motet.compiler.ir.sizes import as_index, constant_index, element_at, extent_of, on_indices, static_extent

_Values = Sequence[ir.Value]


def lower_wholes(module: ir.Module) -> None:
    """Rewrites the module in place."""
    for operation in find_operations(module, *_LOWERED):
        with operation.context, operation.location, ir.InsertionPoint(operation):
            for result, value in zip(operation.results, _LOWERED[operation.name](operation), strict=True):
                result.replace_all_uses_with(value)
        operation.erase()


def _scan(operation: ir.Operation) -> _Values:
    """Source: the interpretation of `tm_tensor.scan` in torch-mlir's `TMTensorOps.cpp`."""
    source, output, total = operation.operands
    along, block = _integer(operation, "dimension"), operation.regions[0].blocks[0]
    inclusive = ir.BoolAttr(operation.attributes["inclusive"]).value
    extents = _extents(source)

    def line(outer: _Values, carried: _Values) -> _Values:
        def place(index: ir.Value) -> _Values:
            return [*outer[:along], index, *outer[along:]]

        def step(index: ir.Value, made: _Values) -> _Values:
            before = on_indices("arith.subi", index, constant_index(1))
            old, new = element_at(made[0], place(before)), element_at(source, place(index if inclusive else before))
            value = copy_body(block, [old, new])[0]
            return [_insert(value, made[0], place(index)), _insert(value, made[1], outer)]

        first = place(constant_index(0))
        value = element_at(source, first) if inclusive else element_at(total, outer)
        begun = [_insert(value, carried[0], first), _insert(value, carried[1], outer)]
        return repeat(constant_index(1), extents[along], begun, step)

    # Without elements along the scanned axis nothing may be read.
    count = on_indices("arith.minui", extents[along], constant_index(1))
    return repeat(constant_index(0), count, [output, total], lambda _, carried: repeat_nested(
        [extent for axis, extent in enumerate(extents) if axis != along], carried, line
    ))  # fmt: skip


def _sort(operation: ir.Operation) -> _Values:
    tensors, block = list(operation.operands), operation.regions[0].blocks[0]
    along, extents = _integer(operation, "dimension"), _extents(operation.operands[0])
    last = on_indices("arith.subi", extents[along], constant_index(1))

    def exchange(places: tuple[_Values, _Values], carried: _Values) -> _Values:
        pairs = [[element_at(tensor, place) for place in places] for tensor in carried]
        is_wrong = _is_wrong(block, [value for pair in pairs for value in pair])
        made: list[ir.Value] = []
        for tensor, (one, other) in zip(carried, pairs, strict=True):
            low, high = arith.SelectOp(is_wrong, other, one).result, arith.SelectOp(is_wrong, one, other).result
            made.append(_insert(high, _insert(low, tensor, places[0]), places[1]))
        return made

    def line(outer: _Values, carried: _Values) -> _Values:
        def neighbours(index: ir.Value, values: _Values) -> _Values:
            following = on_indices("arith.addi", index, constant_index(1))
            places = tuple([*outer[:along], at, *outer[along:]] for at in (index, following))
            return exchange((places[0], places[1]), values)

        return repeat(constant_index(0), extents[along], carried, lambda _, values: repeat(
            constant_index(0), last, values, neighbours
        ))  # fmt: skip

    return repeat_nested([extent for axis, extent in enumerate(extents) if axis != along], tensors, line)


def _is_wrong(block: ir.Block, values: _Values) -> ir.Value:
    """Whether the second of two neighbours must come before the first; `values` has both, for each tensor."""
    turned = [value for pair in zip(values[1::2], values[::2], strict=True) for value in pair]
    before, kept = copy_body(block, turned)[0], copy_body(block, values)[0]
    one = arith.ConstantOp(before.type, ir.IntegerAttr.get(before.type, 1)).result
    wrong = arith.AndIOp(before, arith.XOrIOp(kept, one).result).result
    first = block.operations[0].operation
    if first.name != "arith.cmpf" or list(first.operands) != list(block.arguments)[:2]:
        return wrong
    a, b = values[:2] if _rises(first) else (values[1], values[0])
    odd = [arith.CmpFOp(predicate, value, value).result for predicate, value in (
        (arith.CmpFPredicate.UNO, a), (arith.CmpFPredicate.ORD, b),
    )]  # fmt: skip
    return arith.OrIOp(wrong, arith.AndIOp(*odd).result).result


def _rises(comparison: ir.Operation) -> bool:
    less = arith.CmpFPredicate
    return ir.IntegerAttr(comparison.attributes["predicate"]).value in (less.OLT, less.OLE, less.ULT, less.ULE)


def _scatter(operation: ir.Operation) -> _Values:
    """Source: the interpretation of `tm_tensor.scatter` in torch-mlir's `TMTensorOps.cpp`."""
    update, indices, target = operation.operands
    block, axes = operation.regions[0].blocks[0], list(ir.DenseI64ArrayAttr(operation.attributes["dimension_map"]))
    extents, row = _extents(target), _extents(update)
    outside = len(extents) - (len(row) - 1)  # the dimensions before those of a row

    def place(at: _Values) -> list[ir.Value]:
        found: list[ir.Value | None] = [*[None] * outside, *at[1:]]
        for number, axis in enumerate(axes):
            index = as_index(element_at(indices, [at[0], constant_index(number)]))
            inner = found[axis]
            found[axis] = index if inner is None else on_indices("arith.addi", index, inner)
        return [constant_index(0) if each is None else each for each in found]

    def element(at: _Values, carried: _Values) -> _Values:
        where = place(at)

        def write() -> ir.Value:
            values = [element_at(update, at), element_at(carried[0], where)]
            return _insert(copy_body(block, values)[0], carried[0], where)

        if DROPS not in operation.attributes:
            return [write()]
        inside = [
            arith.CmpIOp(arith.CmpIPredicate.ult, index, extents[axis]).result
            for axis, index in enumerate(where) if axis in axes
        ]
        return [_where_all(inside, write, carried[0])]

    return repeat_nested(row, [target], element)


def _where_all(conditions: _Values, made: Callable[[], ir.Value], otherwise: ir.Value) -> ir.Value:
    """What `made` writes where all conditions hold, else `otherwise`."""
    every = conditions[0]
    for condition in conditions[1:]:
        every = arith.AndIOp(every, condition).result
    choice = ir.Operation.create("scf.if", results=[otherwise.type], operands=[every], regions=2)
    for region, value in zip(choice.regions, (made, lambda: otherwise), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            ir.Operation.create("scf.yield", operands=[value()])
    return choice.results[0]


_LOWERED: Mapping[str, Callable[[ir.Operation], _Values]] = {
    "tm_tensor.scan": _scan, "tm_tensor.sort": _sort, "tm_tensor.scatter": _scatter,
}  # fmt: skip


def _extents(tensor: ir.Value) -> list[ir.Value]:
    kind = ir.RankedTensorType(tensor.type)
    known = [static_extent(kind, axis) for axis in range(kind.rank)]
    return [extent_of(tensor, axis) if size is None else constant_index(size) for axis, size in enumerate(known)]


def _insert(value: ir.Value, tensor: ir.Value, at: _Values) -> ir.Value:
    return ir.Operation.create("tensor.insert", results=[tensor.type], operands=[value, tensor, *at]).result


def _integer(operation: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(operation.attributes[name]).value
