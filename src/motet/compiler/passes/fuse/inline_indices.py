"""inline-indices: merges the element-wise computation of a gather's indices into the gather.

    %n = linalg.generic … %i < 0 ? %i + 32000 : %i         linalg.generic ins(%i) {
    linalg.generic ins(%n) {                          →      %n = %i < 0 ? %i + 32000 : %i
      tensor.extract %table[%n, %j]                          tensor.extract %table[%n, %j]

A lookup of rows in a table is then one launch. Only integers without other readers are recomputed for each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.roles import Role, role_of, structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.marks import MARK

_MOST = 8  # operations that compute an index


@dataclass(frozen=True)
class InlineIndices(Pass):
    """Indices with other readers are left unchanged."""

    name = "inline-indices"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            readers = [each.operation for each in function.regions[0].blocks[0].operations if gathers(each.operation)]
            inlined = [_inline(gather) for gather in readers]
            if any(inlined):
                found = True
                erase_unused(function)
        return found


def _body(operation: ir.Operation) -> list[ir.Operation]:
    return [each.operation for each in operation.regions[0].blocks[0].operations]


def gathers(operation: ir.Operation) -> bool:
    """Whether a `linalg.generic` extracts elements at computed places, without control flow."""
    return operation.name == "linalg.generic" and any(each.name == "tensor.extract" for each in _body(operation)) and (
        not any(len(each.regions) for each in _body(operation))
    )


def _inputs(operation: ir.Operation) -> list[ir.Value]:
    count = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
    return list(operation.operands)[:count]


def _maps(operation: ir.Operation) -> list[ir.AffineMap]:
    return [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(operation.attributes["indexing_maps"])]


def _inline(gather: ir.Operation) -> bool:
    """Inlines into `gather`, which then has no users; returns whether anything was inlined."""
    done = False
    while True:
        found = next(((k, maker) for k, value in enumerate(_inputs(gather)) if (maker := _maker(value))), None)
        if found is None:
            return done
        gather, done = merged(gather, *found), True


def _maker(value: ir.Value) -> ir.Operation | None:
    """The operation that computes an index without other readers."""
    if isinstance(value.owner, ir.Block) or len(list(value.uses)) != 1:
        return None
    maker = value.owner.operation
    if maker.name != "linalg.generic" or MARK in maker.attributes or len(maker.results) != 1:
        return None
    if role_of(maker) is not Role.ELEMENTWISE:
        return None
    element = ir.RankedTensorType(value.type).element_type
    body = _body(maker)
    structure = structure_of(maker)
    if structure is None:
        return None
    *read, written = structure.maps
    plain = [each.single for each in written] == list(range(len(structure.sizes))) and all(
        each.single is not None for map_ in read for each in map_
    )
    arguments = list(maker.regions[0].blocks[0].arguments)
    own = not any(True for _ in arguments[-1].uses) and not any(each.name == "linalg.index" for each in body)
    small = len(body) <= _MOST and isinstance(element, ir.IntegerType | ir.IndexType)
    return maker if plain and own and small else None


def merged(gather: ir.Operation, k: int, maker: ir.Operation) -> ir.Operation:
    """`gather` with the computation of its input `k` inlined; its users read the new operation."""
    inputs, maps = _inputs(gather), _maps(gather)
    made, through = _inputs(maker), maps[k]
    given = [*inputs[:k], *inputs[k + 1 :], *made]
    outputs = list(gather.operands)[len(inputs) :]
    composed = [
        ir.AffineMap.get(through.n_dims, 0, [
            through.results[each.position] if isinstance(each, ir.AffineDimExpr) else each for each in map_.results])
        for map_ in _maps(maker)[:-1]
    ]
    everything = [*maps[:k], *maps[k + 1 : len(inputs)], *composed, *maps[len(inputs) :]]
    with ir.InsertionPoint(gather), gather.location:
        created = ir.Operation.create(
            "linalg.generic", results=[result.type for result in gather.results], operands=[*given, *outputs],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in everything]),
                "iterator_types": gather.attributes["iterator_types"],
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(given), len(outputs)]),
            },
            regions=1,
        )
        kinds = [_element(value) for value in (*given, *outputs)]
        block = ir.Block.create_at_start(created.regions[0], kinds, [gather.location] * len(kinds))
    arguments = list(block.arguments)
    outer = list(gather.regions[0].blocks[0].arguments)
    inner = list(maker.regions[0].blocks[0].arguments)
    kept = arguments[: len(inputs) - 1]
    known: dict[ir.Value, ir.Value] = dict(zip(inner, arguments[len(kept) : len(given)], strict=False))
    with ir.InsertionPoint(block):
        *work, last = _body(maker)
        _copied(work, known)
        index = last.operands[0]
        rest = [*kept[:k], known.get(index, index), *kept[k:], *arguments[len(given) :]]
        _copied(_body(gather), dict(zip(outer, rest, strict=True)))
    for old, new in zip(gather.results, created.results, strict=True):
        old.replace_all_uses_with(new)
    gather.erase()
    maker.erase()
    return created


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type if isinstance(value.type, ir.RankedTensorType) else value.type


def _copied(operations: Sequence[ir.Operation], known: dict[ir.Value, ir.Value]) -> None:
    """Copies `operations` to the insertion point with operands mapped by `known`, and adds their results to it."""
    for operation in operations:
        copy = operation.clone()
        for number, operand in enumerate(operation.operands):
            if operand in known:
                copy.operands[number] = known[operand]
        known |= dict(zip(operation.results, copy.results, strict=True))
