"""Evaluates element-wise kernels on constants by numpy, where it is bit-exact with the oracle.

Compiling a kernel for one run takes tens of milliseconds, and a network has such a kernel for each constant that is
converted, scaled or shifted. Kernels that are not supported here give None, and run in the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir

_Array = np.ndarray
# Operations that IEEE 754 defines to the last bit, in types that numpy computes in.
_ARITHMETIC: Mapping[str, Callable[..., _Array]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
}
_CONVERSIONS = ("arith.extf", "arith.truncf")
_PLAIN = ("f32", "f64")


def evaluate(kernel: ir.Operation, inputs: Sequence[_Array]) -> list[_Array] | None:
    """The results of a kernel's function on `inputs`, as new arrays; None if the oracle must compute them."""
    block = kernel.regions[0].blocks[0]
    known: dict[ir.Value, _Array] = dict(zip(block.arguments, inputs, strict=True))
    for entry in block.operations:
        operation = entry.operation
        if operation.name == "func.return":
            if any(operand not in known for operand in operation.operands):
                return None
            return [np.ascontiguousarray(known[operand]) for operand in operation.operands]
        if operation.name == "tensor.empty":
            continue
        made = _generic(operation, known) if operation.name == "linalg.generic" else None
        if made is None:
            return None
        known[operation.results[0]] = made
    return None


def _generic(operation: ir.Operation, known: Mapping[ir.Value, _Array]) -> _Array | None:
    """The result of an element-wise operation whose operands have the extents of its result."""
    kind = operation.results[0].type
    body = operation.regions[0].blocks[0]
    if len(operation.results) != 1 or any("parallel" not in str(each) for each in _list(operation, "iterator_types")):
        return None
    if any(ir.AffineMapAttr(each).value != _identity(kind.rank) for each in _list(operation, "indexing_maps")):
        return None
    values: dict[ir.Value, _Array] = {}
    for argument, operand in zip(body.arguments, operation.operands, strict=True):
        if operand in known:
            values[argument] = known[operand]
    for entry in body.operations:
        inner = entry.operation
        if any(operand not in values for operand in inner.operands):
            return None
        operands = [values[operand] for operand in inner.operands]
        if inner.name == "linalg.yield":
            return operands[0].reshape(tuple(kind.shape))
        made = _scalar(inner, operands)
        if made is None:
            return None
        values[inner.results[0]] = made
    return None


def _scalar(operation: ir.Operation, operands: Sequence[_Array]) -> _Array | None:
    spelling = str(operation.results[0].type)
    with np.errstate(all="ignore"):
        if operation.name in _CONVERSIONS and spelling in DTYPES:
            return operands[0].astype(DTYPES[spelling])
        if operation.name in _ARITHMETIC and spelling in _PLAIN:
            return _ARITHMETIC[operation.name](*operands)
    return None


def _list(operation: ir.Operation, name: str) -> list[ir.Attribute]:
    return list(ir.ArrayAttr(operation.attributes[name]))


def _identity(rank: int) -> ir.AffineMap:
    return ir.AffineMap.get_identity(rank)
