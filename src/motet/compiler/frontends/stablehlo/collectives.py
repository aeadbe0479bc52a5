"""Reads StableHLO's collectives as Motet's (`ir/shardings.py`).

    "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1], [2, 3]]>}> ({ … stablehlo.add … })
        →  "motet.all_reduce"(%0) {groups = [array<i64: 0, 1>, array<i64: 2, 3>], reduction = "add"}

Groups number the partitions of a program, or its replicas if it has no partitions. Unsigned integers are reinterpreted,
with a reduction that has their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.shardings import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    CONCAT,
    DEVICE_INDEX,
    DIMENSION,
    GROUPS,
    MESH,
    PERMUTE,
    REDUCE_SCATTER,
    REDUCTION,
    SPLIT,
    Groups,
    groups_attribute,
)
from motet.errors import CompileError

_NAMES = {
    "stablehlo.all_reduce": ALL_REDUCE, "stablehlo.all_gather": ALL_GATHER,
    "stablehlo.reduce_scatter": REDUCE_SCATTER, "stablehlo.all_to_all": ALL_TO_ALL,
    "stablehlo.collective_broadcast": BROADCAST, "stablehlo.collective_permute": PERMUTE,
}
_NUMBERS = {
    ALL_GATHER: {"all_gather_dim": DIMENSION}, REDUCE_SCATTER: {"scatter_dimension": DIMENSION},
    ALL_TO_ALL: {"split_dimension": SPLIT, "concat_dimension": CONCAT},
}
_INDICES = ("stablehlo.partition_id", "stablehlo.replica_id")
_REDUCTIONS = {
    "stablehlo.add": "add", "stablehlo.multiply": "mul", "stablehlo.maximum": "max", "stablehlo.minimum": "min",
    "stablehlo.and": "and", "stablehlo.or": "or", "stablehlo.xor": "xor",
}  # fmt: skip
_COUNTS = ("mhlo.num_partitions", "mhlo.num_replicas")
AXIS = "device"  # of the mesh of programs that have only numbers of partitions


def read_collectives(module: ir.Module) -> None:
    """Rewrites collectives in place. A module without a mesh gets one of its partitions or replicas."""
    found = find_operations(module, *_NAMES)
    indices = find_operations(module, *_INDICES)
    if not found and not indices:
        return
    _give_mesh(module, found)
    for op in found:
        _rewrite(op)
    for op in indices:
        _index(op)


def _give_mesh(module: ir.Module, found: Sequence[ir.Operation]) -> None:
    attributes = module.operation.attributes
    counts = [ir.IntegerAttr(attributes[name]).value if name in attributes else 1 for name in _COUNTS]
    if min(counts) > 1:
        raise CompileError(f"a program of {counts[0]} partitions and {counts[1]} replicas; expected one of either",
                           locate(module.operation.location))
    if MESH not in attributes and max(counts) > 1:
        attributes[MESH] = ir.StringAttr.get(f"{AXIS}={max(counts)}")
    elif MESH not in attributes:
        largest = max((device for op in found for group in _groups(op) for device in group), default=0)
        attributes[MESH] = ir.StringAttr.get(f"{AXIS}={largest + 1}")


def _groups(op: ir.Operation) -> Groups:
    name = "source_target_pairs" if op.name == "stablehlo.collective_permute" else "replica_groups"
    table = ir.DenseElementsAttr(op.attributes[name])
    rows, columns = ir.RankedTensorType(table.type).shape
    numbers = [int(number) for number in ir.DenseIntElementsAttr(op.attributes[name])]
    if len(numbers) == 1:
        numbers *= rows * columns
    groups = [numbers[row * columns : (row + 1) * columns] for row in range(rows)]
    return [[number for number in group if number >= 0] for group in groups]


def _rewrite(op: ir.Operation) -> None:
    name = _NAMES[op.name]
    groups = _groups(op)
    if not groups:
        raise CompileError(f"{op.name}: it has no groups; expected the devices of each", locate(op.location))
    for operand, result in zip(list(op.operands), list(op.results), strict=True):
        element = ir.RankedTensorType(operand.type).element_type
        unsigned = isinstance(element, ir.IntegerType) and element.is_unsigned
        attributes: dict[str, ir.Attribute] = {GROUPS: groups_attribute(groups)}
        for source, target in _NUMBERS.get(name, {}).items():
            attributes[target] = op.attributes[source]
        if name in (ALL_REDUCE, REDUCE_SCATTER):
            attributes[REDUCTION] = ir.StringAttr.get(_reduction(op, unsigned=unsigned))
        given, kind = operand, ir.RankedTensorType(result.type)
        if unsigned:
            signless = ir.IntegerType.get_signless(ir.IntegerType(element).width)
            given = _bits(given, signless, op)
            kind = ir.RankedTensorType.get(kind.shape, signless)
        made = ir.Operation.create(
            name, results=[kind], operands=[given], attributes=attributes, loc=op.location, ip=ir.InsertionPoint(op)
        ).result
        result.replace_all_uses_with(_bits(made, element, op) if unsigned else made)
    op.erase()


def _reduction(op: ir.Operation, *, unsigned: bool) -> str:
    """The name of the only operation of a reduction's body. Raises CompileError for other bodies."""
    operations = [entry.operation for entry in op.regions[0].blocks[0].operations]
    name = operations[0].name if len(operations) == 2 else ""
    if name not in _REDUCTIONS:
        there = ", ".join(each.name for each in operations[:-1])
        raise CompileError(f"{op.name}: a reduction by {there}; expected one of {', '.join(_REDUCTIONS)}",
                           locate(op.location))
    found = _REDUCTIONS[name]
    return f"{found}u" if unsigned and found in ("max", "min") else found


def _index(op: ir.Operation) -> None:
    kind = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    number = ir.Operation.create(
        DEVICE_INDEX, results=[kind], operands=[], loc=op.location, ip=ir.InsertionPoint(op)
    ).result
    op.results[0].replace_all_uses_with(_bits(number, ir.RankedTensorType(op.results[0].type).element_type, op))
    op.erase()


def _bits(value: ir.Value, element: ir.Type, at: ir.Operation) -> ir.Value:
    kind = ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, element)
    return ir.Operation.create(
        "stablehlo.bitcast_convert", results=[kind], operands=[value], loc=at.location, ip=ir.InsertionPoint(at)
    ).result
