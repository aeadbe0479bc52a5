"""Attributes of upstream's operations as Python values."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir

CONSTANT = "motet.constant"  # attribute of a kernel's argument: its data is known when compiling

# The predicates of arith.cmpf and arith.cmpi, by number.
FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)
INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def constant_number(operation: ir.Operation) -> float | int | None:
    """The real number in an `arith.constant`, if it is a scalar or a splat; None otherwise."""
    if "complex<" in str(operation.results[0].type):
        return None  # the wheel cannot read the elements of a resource
    attribute = operation.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        dense = ir.DenseElementsAttr(attribute)
        if not dense.is_splat:
            return None
        attribute = dense.get_splat_value()
    if isinstance(attribute, ir.FloatAttr):
        return float(ir.FloatAttr(attribute).value)
    if isinstance(attribute, ir.BoolAttr):
        return int(ir.BoolAttr(attribute).value)
    if isinstance(attribute, ir.IntegerAttr):
        return int(ir.IntegerAttr(attribute).value)
    return None


def zero_attribute(kind: ir.Type) -> ir.Attribute:
    """The attribute `value` of the constant 0 of an integer, index, float or complex type."""
    if isinstance(kind, ir.ComplexType):
        return ir.ArrayAttr.get([zero_attribute(kind.element_type)] * 2)
    return ir.FloatAttr.get(kind, 0.0) if isinstance(kind, ir.FloatType) else ir.IntegerAttr.get(kind, 0)


def integer_constant(value: ir.Value) -> int | None:
    """The number that an integer or index is, if an `arith.constant` makes it."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    attribute = value.owner.operation.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None


def reassociation(operation: ir.Operation) -> list[list[int]]:
    """The groups of dimensions that an expand_shape or collapse_shape splits or merges."""
    return [
        [ir.IntegerAttr(index).value for index in ir.ArrayAttr(group)]
        for group in ir.ArrayAttr(operation.attributes["reassociation"])
    ]


def reassociation_attribute(groups: Sequence[Sequence[int]], context: ir.Context | None = None) -> ir.ArrayAttr:
    """The attribute that `reassociation` reads, in `context` or the current one."""
    kind = ir.IntegerType.get_signless(64, context)
    axes = [ir.ArrayAttr.get([ir.IntegerAttr.get(kind, axis) for axis in group], context) for group in groups]
    return ir.ArrayAttr.get(axes, context)


def static_or_none(operation: ir.Operation, name: str) -> list[int | None]:
    """The numbers of an attribute such as `static_sizes`; None for dynamic ones."""
    unknown = ir.ShapedType.get_dynamic_size()
    return [None if value == unknown else value for value in ir.DenseI64ArrayAttr(operation.attributes[name])]

def kept_axes(sizes: Sequence[int | None], kind: ir.RankedTensorType) -> list[int]:
    """The axes of a slice that the type of its elements has: it may leave out axes whose size is stated as 1."""
    kept: list[int] = []
    dropped = len(sizes) - kind.rank
    for axis, size in enumerate(sizes):
        at = len(kept)
        if dropped and size == 1 and (at == kind.rank or kind.is_dynamic_dim(at) or kind.shape[at] != 1):
            dropped -= 1
        else:
            kept.append(axis)
    return kept


def maps_of(generic: ir.Operation) -> list[ir.AffineMap]:
    """The indexing maps of a linalg.generic, in the order of its operands."""
    return [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(generic.attributes["indexing_maps"])]
