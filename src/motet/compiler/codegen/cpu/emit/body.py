"""Stage bodies as LLVM IR, for one point or a vector of points, on compute types (`compute_types.py`).

Scalars are broadcast where an operation combines them with vectors. A value that depends on scalars alone stays a
scalar, so that loop-invariant values are computed once, outside the loop (see `evaluate`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from motet.compiler.codegen.cpu.emit.builder import Builder
from motet.compiler.codegen.cpu.emit.compute_types import widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.emit.operations import emit_operation
from motet.compiler.codegen.cpu.emit.quantisation import emit_rounding, match_rounding
from motet.compiler.kernels.kernel import Scalar, dependencies

IndexOf = Callable[[int], Value]


def emit_body(
    b: Builder, body: Sequence[Scalar], values: Sequence[Value], lanes: int, index: IndexOf
) -> list[Value]:
    """All values of the body, each in `lanes`: `values` (the inputs, then the outputs' accumulators, in compute
    types), then one value per operation. `index(d)` is dimension `d` of the points as i64, a scalar or a vector.

    Raises `Unsupported` for an operation or dtype without code.
    """
    results = evaluate(b, body, len(values), dict(enumerate(values)), index)
    return [widen(b, results[i], lanes) for i in range(len(values) + len(body))]


def evaluate(
    b: Builder,
    body: Sequence[Scalar],
    inputs: int,
    known: Mapping[int, Value],
    index: IndexOf | None,
    wanted: Collection[int] | None = None,
) -> dict[int, Value]:
    """`known` and every body value that can be computed from it. `inputs` is the number of the body's inputs and
    accumulators; `known` may also hold values computed before. Without `index`, `linalg.index` cannot be computed.
    `wanted` limits the work to those values and their operands.
    """
    values = dict(known)
    needed = range(inputs + len(body)) if wanted is None else dependencies(body, inputs, wanted)
    for position, scalar in enumerate(body, start=inputs):
        if position in values or position not in needed:
            continue
        if scalar.op == "linalg.index":
            if index is not None:
                values[position] = index(int(scalar.value or 0))
            continue
        rounding = match_rounding(body, inputs, position)
        if rounding is not None and rounding.source in values:
            values[position] = emit_rounding(b, rounding, values[rounding.source])
            continue
        if all(operand in values for operand in scalar.operands):
            constants = [_constant_of(body, inputs, operand) for operand in scalar.operands]
            values[position] = emit_operation(b, scalar, [values[i] for i in scalar.operands], constants)
    return values


def _constant_of(body: Sequence[Scalar], inputs: int, value: int) -> float | int | None:
    if value < inputs or body[value - inputs].op != "arith.constant":
        return None
    return body[value - inputs].value
