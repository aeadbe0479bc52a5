"""repeat-extracts: makes elements that bodies extract several times in a row broadcasts along a dimension of their own.

    linalg.generic outs(%0 : tensor<3x38xf32>) {              %1 = linalg.generic ins(%x : tensor<3x19xf32>)
      %j = fptosi(floor(sitofp(linalg.index 1) / 2.0))              outs(%0 : tensor<3x19x2xf32>), %x read by
      yield tensor.extract %x[linalg.index 0, %j]         →         (d0, d1, d2) -> (d0, d1) { yield %in }
                                                              %2 = tensor.collapse_shape %1 [[0], [1, 2]]

Frontends write enlargements to the nearest element in this form, with indices in floating-point numbers. The pass
computes the indices of every iteration in the arithmetic of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number, maps_of, reassociation_attribute
from motet.compiler.ir.nests import nest
from motet.compiler.passes.base import OperationPass

Numbers = np.ndarray[Any, Any]

_MOST = 1 << 16  # iterations of a loop
_DTYPES = {"f32": np.float32, "f64": np.float64, "index": np.int64, "i64": np.int64, "i32": np.int32}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.roundeven": np.rint, "math.trunc": np.trunc, "arith.addi": np.add, "arith.subi": np.subtract,
    "arith.muli": np.multiply, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
}
_CONVERSIONS = (
    "arith.index_cast", "arith.sitofp", "arith.fptosi", "arith.extf", "arith.truncf", "arith.extsi", "arith.trunci",
)


@dataclass(frozen=True)
class RepeatExtracts(OperationPass):
    """Considers static extents, and indices that one loop determines each."""

    name = "repeat-extracts"
    takes = ("linalg.generic",)

    def rewrite(self, operation: ir.Operation) -> bool:
        extract = _only_extract(operation)
        if extract is None:
            return False
        source, *indices = extract.operands
        shape, result = ir.RankedTensorType(source.type).shape, ir.RankedTensorType(operation.results[0].type)
        along: list[int | None] = []  # the loop of each dimension of the source
        times = [1] * result.rank
        for index, size in zip(indices, shape, strict=True):
            loop = _loop(index)
            numbers = None if loop is not None and result.shape[loop] > _MOST else _evaluated(index, result, loop)
            if numbers is None or (loop is None and (numbers.any() or size != 1)):
                return False
            along.append(loop)
            if loop is None:
                continue
            times[loop], rest = divmod(result.shape[loop], size) if size else (1, 1)
            if rest or not np.array_equal(numbers, np.arange(result.shape[loop]) // max(1, times[loop])):
                return False
        used = [loop for loop in along if loop is not None]
        if len(set(used)) != len(used) or max(times) <= 1 or 0 in result.shape:
            return False
        _rebuild(operation, source, along, times)
        return True


def _only_extract(operation: ir.Operation) -> ir.Operation | None:
    """The extraction whose element is the only result of a body over the points of its result."""
    if len(operation.results) != 1 or not isinstance(operation.results[0].type, ir.RankedTensorType):
        return None
    result, maps = ir.RankedTensorType(operation.results[0].type), maps_of(operation)
    if not result.has_static_shape or maps[-1] != ir.AffineMap.get_identity(result.rank, operation.context):
        return None
    *_, last = operation.regions[0].blocks[0].operations
    owner = last.operation.operands[0].owner
    if isinstance(owner, ir.Block) or owner.operation.name != "tensor.extract":
        return None
    kind = ir.RankedTensorType(owner.operation.operands[0].type)
    return owner.operation if kind.has_static_shape and kind.element_type == result.element_type else None


def _loop(value: ir.Value) -> int | None:
    """A loop that `value` depends on; None if there is none."""
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name == "linalg.index":
        return ir.IntegerAttr(owner.attributes["dim"]).value
    return next((loop for loop in map(_loop, owner.operands) if loop is not None), None)


def _evaluated(value: ir.Value, result: ir.RankedTensorType, loop: int | None) -> Numbers | None:
    """The values of `value` for each iteration of `loop`; None if it depends on anything else."""
    dtype = _DTYPES.get(str(value.type))
    if isinstance(value.owner, ir.Block) or dtype is None:
        return None
    owner = value.owner.operation
    if owner.name == "linalg.index":
        same = ir.IntegerAttr(owner.attributes["dim"]).value == loop
        return np.arange(result.shape[loop], dtype=np.int64) if same and loop is not None else None
    if owner.name == "arith.constant":
        number = constant_number(owner)
        return None if number is None else np.array(number, dtype)
    operands = [_evaluated(operand, result, loop) for operand in owner.operands]
    known = [operand for operand in operands if operand is not None]
    if len(known) != len(operands) or not (owner.name in _FUNCTIONS or owner.name in _CONVERSIONS):
        return None
    with np.errstate(all="ignore"):
        found = known[0] if owner.name in _CONVERSIONS else _FUNCTIONS[owner.name](*known)
        return np.asarray(found).astype(dtype)


def _rebuild(operation: ir.Operation, source: ir.Value, along: Sequence[int | None], times: Sequence[int]) -> None:
    """Replaces `operation` by a broadcast of `source`, whose dimension `d` is that of loop `along[d]`, with an inner
    loop of `times[loop]` iterations."""
    result = ir.RankedTensorType(operation.results[0].type)
    shape: list[int] = []
    groups: list[list[int]] = []
    for size, count in zip(result.shape, times, strict=True):
        parts = [size // count, count] if count > 1 else [size]
        groups.append(list(range(len(shape), len(shape) + len(parts))))
        shape += parts
    at, location = ir.InsertionPoint(operation), operation.location
    kind = ir.RankedTensorType.get(shape, result.element_type, loc=location)
    empty = ir.Operation.create("tensor.empty", results=[kind], loc=location, ip=at).result
    read = [ir.AffineExpr.get_constant(0) if d is None else ir.AffineExpr.get_dim(groups[d][0]) for d in along]
    maps = [ir.AffineMap.get(len(shape), 0, read), ir.AffineMap.get_identity(len(shape))]
    made = nest(operation, [source], empty, maps, lambda block: block.arguments[0])
    whole = ir.Operation.create(
        "tensor.collapse_shape", results=[result], operands=[made],
        attributes={"reassociation": reassociation_attribute(groups)}, loc=location, ip=at,
    )
    operation.results[0].replace_all_uses_with(whole.result)
    operation.erase()
