"""compute-gathered: computes what a gather reads at the places that it reads, from another gather or few of many.

    %a = linalg.generic ins(%i) { tensor.extract %x[%in, index 1] }         linalg.generic ins(%j) {
    linalg.generic ins(%j) { tensor.extract %a[index 0, %in] }        →       %0 = tensor.extract %i[index 0]
                                                                              tensor.extract %x[%0, %in] }

Resizing one axis after the other, and a gather from a padded image, are then one launch. Gathers with other readers are
left unchanged, and those that would read too many elements for each result. So are element-wise operations of which a
gather reads a large part; a loss that reads one element of each row of `log_softmax` computes that element alone, and
the others are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.roles import Role, computes_its_points, role_of, structure_of, unaliased
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.inline_indices import gathers
from motet.compiler.passes.fuse.marks import MARK

_MOST = 600  # operations that are written
_FEWER = 8  # how many times as many elements as a gather reads an element-wise operation computes


@dataclass(frozen=True)
class ComputeGathered(Pass):
    """Also in several steps: gathers from gathers from gathers."""

    name = "compute-gathered"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            operations = [each.operation for each in function.regions[0].blocks[0].operations]
            for reader in [each for each in operations if gathers(each)]:
                while (maker := _maker(reader)) is not None:
                    for extract in _reads(reader, maker.results[0]):
                        _compute(extract, maker)
                    if not any(True for _ in maker.results[0].uses):
                        maker.erase()
                    found = True
        return found


def _body(operation: ir.Operation) -> list[ir.Operation]:
    return [each.operation for each in operation.regions[0].blocks[0].operations]


def _reads(reader: ir.Operation, source: ir.Value) -> list[ir.Operation]:
    return [each for each in _body(reader) if each.name == "tensor.extract" and each.operands[0] == source]


def _maker(reader: ir.Operation) -> ir.Operation | None:
    """A gather of whose result `reader` alone reads elements, or an element-wise operation of which it reads few."""
    for extract in _body(reader):
        if extract.name != "tensor.extract" or isinstance(extract.operands[0].owner, ir.Block):
            continue
        maker, own = extract.operands[0].owner.operation, _reads(reader, extract.operands[0])
        if maker.name != "linalg.generic" or len(own) * len(_body(maker)) > _MOST:
            continue
        is_read_elsewhere = len(list(extract.operands[0].uses)) != len(own)
        if (not is_read_elsewhere and _is_gather(maker)) or _is_read_rarely(maker, reader, len(own)):
            return maker
    return None


def _is_read_rarely(maker: ir.Operation, reader: ir.Operation, count: int) -> bool:
    """Whether a reader of `count` elements for each result reads few of those of an element-wise operation, of which
    the others then need no memory. An operand of the same extents has its places checked."""
    if MARK in maker.attributes or len(maker.results) != 1 or role_of(maker) is not Role.ELEMENTWISE:
        return False
    if not computes_its_points(maker):
        return False
    made, read = ir.RankedTensorType(maker.results[0].type), structure_of(reader)
    if read is None or not made.has_static_shape or any(size is None for size in read.sizes):
        return False
    few = prod(size or 0 for size in read.sizes) * count * _FEWER <= prod(made.shape)
    return few and bool(_operands(maker)[0]) and not _ends_product(maker)


def _operands(maker: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    """The operands of an element-wise operation that have the extents of its result, and its other tensors."""
    shape = list(ir.RankedTensorType(maker.results[0].type).shape)
    sized = [operand for operand in list(maker.operands)[:-1] if isinstance(operand.type, ir.RankedTensorType)]
    whole = [operand for operand in sized if list(ir.RankedTensorType(operand.type).shape) == shape]
    return whole, [operand for operand in sized if operand not in whole]


def _ends_product(maker: ir.Operation) -> bool:
    """Whether an element-wise operation joins the kernel of a product, or of anything else that makes all its elements,
    which then stores them in any case."""
    todo, seen = [maker], {maker}
    while todo:
        whole, others = _operands(todo.pop())
        if any(_source(other) is not None for other in others):
            continue  # of rows that are reduced: it joins their kernel
        for source in filter(None, map(_source, whole)):
            if source.name != "linalg.generic" or role_of(source) is not Role.ELEMENTWISE:
                return True
            if source not in seen:
                seen.add(source)
                todo.append(source)
    return False


def _source(value: ir.Value) -> ir.Operation | None:
    """The operation that computes a tensor, under whatever shape; None for arguments and constants."""
    value = unaliased(value)
    if isinstance(value.owner, ir.Block) or value.owner.name == "arith.constant":
        return None
    return value.owner.operation


def _is_gather(maker: ir.Operation) -> bool:
    """Whether each element of a gather follows from the indices of its place alone."""
    structure = structure_of(maker)
    if not gathers(maker) or MARK in maker.attributes or len(maker.results) != 1 or structure is None:
        return False
    plain = [each.single for each in structure.maps[-1]] == list(range(len(structure.sizes)))
    read = all(each.single is not None for map_ in structure.maps[:-1] for each in map_)
    output = list(maker.regions[0].blocks[0].arguments)[-1]
    return plain and read and not structure.reduced and not any(True for _ in output.uses)


def _compute(extract: ir.Operation, maker: ir.Operation) -> None:
    """Replaces an element of the result of `maker` by its computation."""
    places = list(extract.operands)[1:]
    maps = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(maker.attributes["indexing_maps"])]
    known: dict[ir.Value, ir.Value] = {}
    with ir.InsertionPoint(extract), maker.location:
        arguments = list(maker.regions[0].blocks[0].arguments)[:-1]
        for argument, value, map_ in zip(arguments, maker.operands, maps, strict=False):
            if not isinstance(value.type, ir.RankedTensorType):
                known[argument] = value
                continue
            at = [_place(entry, places) for entry in map_.results]
            kinds = [argument.type]
            known[argument] = ir.Operation.create("tensor.extract", results=kinds, operands=[value, *at]).result
        *work, last = _body(maker)
        for operation in work:
            if operation.name == "linalg.index":
                known[operation.results[0]] = places[ir.IntegerAttr(operation.attributes["dim"]).value]
                continue
            copy = operation.clone()
            for number, operand in enumerate(operation.operands):
                copy.operands[number] = known.get(operand, operand)
            known |= dict(zip(operation.results, copy.results, strict=True))
    extract.results[0].replace_all_uses_with(known.get(last.operands[0], last.operands[0]))
    extract.erase()


def _place(entry: ir.AffineExpr, places: Sequence[ir.Value]) -> ir.Value:
    """The index that the result of a map is at `places`."""
    if isinstance(entry, ir.AffineDimExpr):
        return places[entry.position]
    return arith.ConstantOp(ir.IndexType.get(), ir.AffineConstantExpr(entry).value).result
