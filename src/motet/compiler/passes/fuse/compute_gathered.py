"""compute-gathered: computes what a gather reads from another gather at the places that it reads.

    %a = linalg.generic ins(%i) { tensor.extract %x[%in, index 1] }         linalg.generic ins(%j) {
    linalg.generic ins(%j) { tensor.extract %a[index 0, %in] }        →       %0 = tensor.extract %i[index 0]
                                                                              tensor.extract %x[%0, %in] }

Resizing one axis after the other, and a gather from a padded image, are then one launch. Gathers with other readers are
left unchanged, and those that would read too many elements for each result.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.roles import structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.group import MARK
from motet.compiler.passes.fuse.inline_indices import gathers

_MOST = 600  # operations that are written


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
                    maker.erase()
                    found = True
        return found


def _body(operation: ir.Operation) -> list[ir.Operation]:
    return [each.operation for each in operation.regions[0].blocks[0].operations]


def _reads(reader: ir.Operation, source: ir.Value) -> list[ir.Operation]:
    return [each for each in _body(reader) if each.name == "tensor.extract" and each.operands[0] == source]


def _maker(reader: ir.Operation) -> ir.Operation | None:
    """A gather of whose result `reader` alone reads elements."""
    for extract in _body(reader):
        if extract.name != "tensor.extract" or isinstance(extract.operands[0].owner, ir.Block):
            continue
        maker, own = extract.operands[0].owner.operation, _reads(reader, extract.operands[0])
        is_read_elsewhere = len(list(extract.operands[0].uses)) != len(own)
        if maker.name != "linalg.generic" or is_read_elsewhere or not _is_gather(maker):
            continue
        if len(own) * len(_body(maker)) <= _MOST:
            return maker
    return None


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
            at = [places[ir.AffineDimExpr(each).position] for each in map_.results]
            known[argument] = value if not isinstance(value.type, ir.RankedTensorType) else ir.Operation.create(
                "tensor.extract", results=[argument.type], operands=[value, *at]
            ).result
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
