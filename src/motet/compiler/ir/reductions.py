"""How `gpu.all_reduce` and `gpu.subgroup_reduce` combine two values: by a named operation, or by their region."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.remap import remap
from motet.compiler.ir.translate import source_location
from motet.errors import CompileError

# Name → the operation that combines two values, of integers and of floating-point numbers.
_NAMED = {
    "add": ("arith.addi", "arith.addf"), "mul": ("arith.muli", "arith.mulf"), "and": ("arith.andi", ""),
    "or": ("arith.ori", ""), "xor": ("arith.xori", ""), "minsi": ("arith.minsi", ""), "maxsi": ("arith.maxsi", ""),
    "minui": ("arith.minui", ""), "maxui": ("arith.maxui", ""), "minnumf": ("", "arith.minnumf"),
    "maxnumf": ("", "arith.maxnumf"), "minimumf": ("", "arith.minimumf"), "maximumf": ("", "arith.maximumf"),
}  # fmt: skip


def combining(name: str, kind: ir.Type) -> str:
    """The operation that combines two values of type `kind` by `name`; empty if there is none."""
    of_integers, of_floats = _NAMED.get(name, ("", ""))
    return of_integers if isinstance(kind, (ir.IntegerType, ir.IndexType)) else of_floats


def combine(reduction: ir.Operation, left: ir.Value, right: ir.Value, at: ir.Operation) -> ir.Value:
    """Combines `left` and `right` as `reduction` does, before `at`. Raises CompileError for unsupported
    combinations."""
    if "op" not in reduction.attributes:
        return _by_region(reduction, left, right, at)
    written = str(reduction.attributes["op"])
    name = combining(written.partition("all_reduce_op ")[2].rstrip(">"), left.type)
    if not name:
        raise CompileError(
            f"{reduction.name}: this way to combine values of type {left.type} is not supported; expected one of "
            + ", ".join(_NAMED), source_location(reduction),
        )  # fmt: skip
    return ir.Operation.create(
        name, results=[left.type], operands=[left, right], loc=reduction.location, ip=ir.InsertionPoint(at)
    ).result


def _by_region(reduction: ir.Operation, left: ir.Value, right: ir.Value, at: ir.Operation) -> ir.Value:
    blocks = list(reduction.regions[0].blocks)
    if len(blocks) != 1:
        raise CompileError(
            f"{reduction.name}: branches in how values are combined are not supported; expected one block",
            source_location(reduction),
        )
    values = dict(zip(blocks[0].arguments, (left, right), strict=True))
    *operations, last = [entry.operation for entry in blocks[0].operations]
    for operation in operations:
        with ir.InsertionPoint(at):
            copy = operation.clone()
        remap(copy, values)
        values.update(zip(operation.results, copy.results, strict=True))
    return values.get(last.operands[0], last.operands[0])
