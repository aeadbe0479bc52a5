"""fold-numbers: computes the numbers that constants alone determine.

    %two = arith.constant dense<2.0> : tensor<f32>
    %root = linalg.generic … ins(%two : tensor<f32>) … { math.sqrt %in }    →    %root = arith.constant dense<1.414…>

Kernels then have the number in their code, where division by a number becomes multiplication. Only operations that
IEEE 754 defines to the last bit are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.passes.base import OperationPass

_EXACT: Mapping[str, Callable[..., np.floating]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.negf": np.negative, "math.sqrt": np.sqrt,
}
_CONVERSIONS = ("arith.extf", "arith.truncf")
_DTYPES = ("f32", "f64")


@dataclass(frozen=True)
class FoldNumbers(OperationPass):
    """Considers operations without loops, in f32 and f64."""

    name = "fold-numbers"
    takes = ("linalg.generic",)

    def rewrite(self, operation: ir.Operation) -> bool:
        if len(operation.results) != 1 or len(operation.attributes["iterator_types"]):
            return False
        kind = operation.results[0].type
        if not isinstance(kind, ir.RankedTensorType) or kind.rank or str(kind.element_type) not in _DTYPES:
            return False
        number = _computed(operation)
        if number is None:
            return False
        dtype = kind.element_type
        value = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(dtype, number))
        made = ir.Operation.create(
            "arith.constant", results=[kind], attributes={"value": value}, loc=operation.location,
            ip=ir.InsertionPoint(operation),
        )
        operation.results[0].replace_all_uses_with(made.result)
        operation.erase()
        return True


def _computed(operation: ir.Operation) -> float | None:
    """The number that the operation computes; None if it depends on more than constants."""
    body = operation.regions[0].blocks[0]
    known: dict[ir.Value, np.floating] = {}
    for argument, operand in zip(body.arguments, operation.operands, strict=True):
        number = _constant(operand)
        if number is not None and str(argument.type) in _DTYPES:
            known[argument] = DTYPES[str(argument.type)].type(number)
    for entry in body.operations:
        inner = entry.operation
        if inner.name == "arith.constant":
            operands = []
        else:
            if any(operand not in known for operand in inner.operands):
                return None
            operands = [known[operand] for operand in inner.operands]
        if inner.name == "linalg.yield":
            return float(operands[0])
        made = _scalar(inner, operands)
        if made is None:
            return None
        known[inner.results[0]] = made
    return None


def _scalar(operation: ir.Operation, operands: list[np.floating]) -> np.floating | None:
    spelling = str(operation.results[0].type)
    if spelling not in _DTYPES:
        return None
    if operation.name == "arith.constant":
        number = constant_number(operation)
        return None if number is None else DTYPES[spelling].type(number)
    with np.errstate(all="ignore"):
        if operation.name in _CONVERSIONS:
            return operands[0].astype(DTYPES[spelling])
        return _EXACT[operation.name](*operands) if operation.name in _EXACT else None


def _constant(value: ir.Value) -> float | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    return constant_number(value.owner.operation)
