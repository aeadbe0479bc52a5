"""Reductions as LLVM IR: combining partial results, and the lanes of a vector."""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F16, F32, I32, Builder
from motet.compiler.codegen.cpu.emit.compute_types import round_bf16, widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value, same_lanes
from motet.compiler.codegen.cpu.emit.operations import ARITHMETIC
from motet.compiler.kernels.reduction import Reduction


def combine(b: Builder, reduction: Reduction, x: Value, y: Value) -> Value:
    """Combine two partial results of dtype `accumulator`, scalars or vectors."""
    lanes = max((v.type.count for v in (x, y) if isinstance(v.type, ir.VectorType)), default=1)
    return ARITHMETIC[reduction.op.partition(".")[2]](b, widen(b, x, lanes), widen(b, y, lanes))


def widened(b: Builder, reduction: Reduction, term: Value) -> Value:
    """A term of the body, converted to the accumulator's dtype."""
    return b.fpext(term, same_lanes(term.type, F32)) if reduction.dtype == "f16" else term


def narrowed(b: Builder, reduction: Reduction, total: Value) -> Value:
    """The accumulated result, converted to the compute type of the output's dtype."""
    if reduction.dtype == "f16":
        return b.fptrunc(total, same_lanes(total.type, F16))
    return round_bf16(b, total) if reduction.dtype == "bf16" else total


def across(b: Builder, reduction: Reduction, vector: Value) -> Value:
    """Combine the lanes of a vector, whose number is a power of two, to one scalar."""
    while isinstance(vector.type, ir.VectorType):
        half = vector.type.count // 2
        if half == 1:
            low, high = (b.extract_element(vector, ir.Constant(I32, lane)) for lane in (0, 1))
            return combine(b, reduction, low, high)
        undefined = ir.Constant(vector.type, ir.Undefined)
        pick = ir.VectorType(I32, half)
        low = b.shuffle_vector(vector, undefined, ir.Constant(pick, list(range(half))))
        high = b.shuffle_vector(vector, undefined, ir.Constant(pick, list(range(half, 2 * half))))
        vector = combine(b, reduction, low, high)
    return vector
