"""Creates operations at the current insertion point."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir

DYNAMIC = ir.ShapedType.get_dynamic_size()


def create(
    name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute] | None = None,
    at: ir.InsertionPoint | None = None,
) -> ir.Value:
    """The result of a new operation, at `at` or the current insertion point."""
    return ir.Operation.create(name, results=[kind], operands=operands, attributes=attributes or {}, ip=at).results[0]


def constant(kind: ir.Type, number: float) -> ir.Value:
    """A number of an integer, index or float type."""
    floats = isinstance(kind, ir.FloatType)
    value = ir.FloatAttr.get(kind, number) if floats else ir.IntegerAttr.get(kind, int(number))
    return create("arith.constant", kind, [], {"value": value})


def recreate(
    generic: ir.Operation, operands: Sequence[ir.Value], maps: Sequence[ir.AffineMap] | None = None,
    iterators: Sequence[ir.Attribute] | None = None, at: ir.InsertionPoint | None = None,
) -> ir.Value:
    """The result of a copy of a linalg.generic with other operands, and other maps and iterators if given."""
    attributes = {
        name: generic.attributes[name] for name in ("indexing_maps", "iterator_types", "operandSegmentSizes")
    }
    if maps is not None:
        attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps], generic.context)
    if iterators is not None:
        attributes["iterator_types"] = ir.ArrayAttr.get(list(iterators), generic.context)
    made = ir.Operation.create(
        "linalg.generic", results=[operands[-1].type], operands=list(operands), attributes=attributes, regions=1, ip=at,
    )
    copy = generic.clone(at).operation
    copy.regions[0].blocks[0].append_to(made.regions[0])
    copy.erase()
    return made.results[0]
