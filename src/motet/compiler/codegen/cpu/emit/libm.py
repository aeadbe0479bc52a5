"""Calls of the C library, once per lane; the loader resolves its symbols."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F64, I32, Builder
from motet.compiler.codegen.cpu.emit.float_lanes import Value, scalar_type


def by_libm(b: Builder, name: str, arguments: Sequence[Value]) -> Value:
    """`name` of f64, or of f32 by the name that ends in `f`."""
    kind = arguments[0].type
    symbol = name if scalar_type(kind) == F64 else f"{name}f"
    if not isinstance(kind, ir.VectorType):
        return b.intrinsic(symbol, kind, arguments)
    result: Value = ir.Constant(kind, ir.Undefined)
    for lane in range(kind.count):
        at = ir.Constant(I32, lane)
        scalars = [b.extract_element(argument, at) for argument in arguments]
        result = b.insert_element(result, b.intrinsic(symbol, kind.element, scalars), at)
    return result
