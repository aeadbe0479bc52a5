"""Matches launches of contractions with calls of the vendor's library (cuBLASLt).

    result = activation(left · right + addend + bias)

One loop each for rows, columns and K, and at most one for a batch, all of known extent; without padding or partial
lines. An epilogue is matched only if the library computes exactly the same: the sum with one tensor of the result's
shape and one vector along its rows, followed by no activation, the maximum with 0, or the tanh form of GELU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from motet.artifact.library import CUBLASLT, VERSION, LibraryCall, LibraryOperand
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.tasks import Loop, LoopTask
from motet.compiler.kernels.kernel import Scalar
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.gpu import GpuTarget

Precision = Literal["f32", "tf32", "f64", "i32"]
Activation = Literal["", "relu", "gelu"]

_PRECISIONS: dict[str, Precision] = {
    "f16": "f32", "bf16": "f32", "f8E4M3FN": "f32", "f32": "f32", "tf32": "tf32", "f64": "f64", "i8": "i32",
}  # fmt: skip
_RESULTS = ("f16", "bf16", "f32", "f64", "i32")
_CASTS = ("arith.extf", "arith.truncf")
_ADDS = ("arith.addf", "arith.addi")
_LARGER = ("ogt", "oge", "ugt", "uge")
_LARGEST = 4096  # nodes of an expression
_CLOSE = 2e-6  # tolerance between two GELUs relative to their argument: constants are rounded to f32

# An expression: ("sum",), the product itself; ("read", access); ("number", value); (operation, predicate, *operands).
Expression = tuple[object, ...]
_SUM: Expression = ("sum",)


def library_call(found: ContractionLaunch, target: GpuTarget) -> LibraryCall | None:
    """The launch as a cuBLASLt call; None if it is not one."""
    task = found.task
    if target.family != "cuda" or len(task.stored) != 1 or found.factor not in _PRECISIONS:
        return None
    if found.left.bounds or found.right.bounds or found.left.dtype != found.right.dtype:
        return None
    if max(map(len, (found.batch, found.m, found.n, found.k))) > 1:
        return None
    (value, place), = task.stored.items()
    if place.dtype not in _RESULTS or (found.factor == "i8") != (place.dtype == "i32"):
        return None
    follows = _follows(task, value)
    return None if follows is None else _said(found, place, *follows)


def _said(
    c: ContractionLaunch, place: StridedAccess, activation: Activation, reads: Sequence[StridedAccess]
) -> LibraryCall | None:
    loops = [each[0] if each else None for each in (c.batch, c.m, c.n, c.k)]
    sizes = [1 if loop is None else loop[0].known for loop in loops]
    batch, m, n, k = loops
    left = _operand(c.task, c.left, batch, m, k)
    right = _operand(c.task, c.right, batch, k, n)
    result = _operand(c.task, place, batch, m, n)
    if left is None or right is None or result is None or None in sizes:
        return None
    addend: LibraryOperand | None = None
    bias: LibraryOperand | None = None
    for read in reads:
        operand = _operand(c.task, read, batch, m, n)
        if operand is None or operand.dtype != result.dtype or c.factor == "i8":
            return None
        if operand.row == 0 and operand.batch == 0 and operand.column == 1 and m is not None and bias is None:
            bias = operand
        elif operand.column == 1 and (m is None or operand.row) and addend is None:
            addend = operand
        else:
            return None
    of_batch, rows, columns, depth = (int(size or 0) for size in sizes)
    if not all(_is_matrix(each, *extents) for each, *extents in (
        (left, rows, depth), (right, depth, columns), (result, rows, columns),
        *([(addend, rows, columns)] if addend is not None else []),
    )) or result.column != 1:
        return None
    return LibraryCall(
        VERSION, CUBLASLT, rows, columns, depth, left, right, result, _PRECISIONS[c.factor], of_batch, addend, bias,
        activation,
    )


def _operand(
    task: LoopTask, place: StridedAccess, batch: Loop | None, row: Loop | None, column: Loop | None
) -> LibraryOperand | None:
    """The matrix operand read by an access over these loops; a missing loop gets the stride of contiguous lines."""
    strides = [None if loop is None else place.strides[loop[1]] for loop in (batch, row, column)]
    given = [each for each in strides if each is not None]
    if place.value not in task.buffers or any(each.known is None for each in (*given, *place.offset)):
        return None
    outer, down, along = (None if each is None else each.factor for each in strides)
    if down is None:
        down = 1 if along != 1 else 0
    if along is None:
        along = 1
    offset = sum(each.factor for each in place.offset)
    return LibraryOperand(task.buffers.index(place.value), place.dtype, down, along, outer or 0, offset)


def _is_matrix(operand: LibraryOperand, rows: int, columns: int) -> bool:
    """Whether it is a matrix of contiguous lines, by rows or by columns."""
    by_rows = operand.column == 1 and (rows == 1 or operand.row >= columns)
    return by_rows or (operand.row == 1 and (columns == 1 or operand.column >= rows))


# -- epilogue --------------------------------------------------------------------------------------


def _follows(task: LoopTask, value: int) -> tuple[Activation, list[StridedAccess]] | None:
    """The epilogue on the product before it is stored as `value`: the activation, and the tensors added before it."""
    made: dict[int, Expression] = {}
    expression = _SUM
    init = task.inits[0]
    if isinstance(init, StridedAccess):
        if init.bounds:
            return None
        expression = ("arith.addf", "", _SUM, ("read", init))
    elif init:
        return None
    output = task.stage.outputs[0].value
    made[output] = expression
    for step in task.epilogue.steps if task.epilogue is not None else ():
        operands: list[Expression | None] = []
        for read, known in zip(step.reads, step.known, strict=True):
            if known is not None:
                operands.append(made.get(known))
            else:
                operands.append(("read", read) if isinstance(read, StridedAccess) else ("number", read))
        for op in step.stage.body:
            operands.append(_applied(op, operands))
        for (written, _), number in zip(step.writes, step.stage.yields, strict=True):
            if (result := operands[number]) is not None:
                made[written] = result
    if value not in made:
        return None
    return _activated(made[value])


def _applied(op: Scalar, operands: Sequence[Expression | None]) -> Expression | None:
    if op.op == "arith.constant":
        return ("number", op.value)
    own = [operands[number] for number in op.operands]
    if any(each is None for each in own) or sum(_count(each) for each in own if each) > _LARGEST:
        return None
    if op.op in _CASTS:  # intermediate values are computed in f32, whatever they are rounded to
        return own[0]
    return (op.op, op.predicate, *own)


def _count(expression: Expression) -> int:
    return 1 + sum(_count(each) for each in expression if isinstance(each, tuple))


def _activated(expression: Expression) -> tuple[Activation, list[StridedAccess]] | None:
    ways: list[tuple[Activation, Expression | None]] = [
        ("", expression), ("relu", _rectified(expression)), ("gelu", _gelu(expression)),
    ]
    for activation, inner in ways:
        reads = _added(inner) if inner is not None else None
        if reads is not None:
            return activation, reads
    return None


def _added(expression: Expression) -> list[StridedAccess] | None:
    """The accesses that are added to the product, each once; None if `expression` is not such a sum."""
    terms = _terms(expression)
    reads = [term[1] for term in terms if term[0] == "read"]
    if terms.count(_SUM) != 1 or len(reads) != len(terms) - 1:
        return None
    return [read for read in reads if isinstance(read, StridedAccess)]


def _terms(expression: Expression) -> list[Expression]:
    if expression[0] in _ADDS:
        return [term for each in expression[2:] if isinstance(each, tuple) for term in _terms(each)]
    return [] if _is_zero(expression) else [expression]


def _is_zero(expression: object) -> bool:
    return isinstance(expression, tuple) and expression[0] == "number" and expression[1] in (0, None)


def _rectified(expression: Expression) -> Expression | None:
    """The operand of `expression`'s maximum with 0; None if it is not one."""
    name, _, *operands = expression if len(expression) > 2 else ("", "")
    found: object = None
    if name in ("arith.maximumf", "arith.maxnumf"):
        found = next((each for each in operands if not _is_zero(each)), None)
        found = found if any(map(_is_zero, operands)) else None
    elif name == "arith.select":
        condition, found, other = operands
        if condition not in [("arith.cmpf", larger, found, other) for larger in _LARGER] or not _is_zero(other):
            found = None
    return found if isinstance(found, tuple) else None


def _gelu(expression: Expression) -> Expression | None:
    """The argument if `expression` is the tanh form of GELU. The test compares values at many points; the expression
    must consist of smooth operations only, so that it cannot differ elsewhere."""
    for inner in _sums_in(expression):
        points = np.concatenate([np.linspace(-12, 12, 4001), np.geomspace(12, 1e3, 50), -np.geomspace(12, 1e3, 50)])
        with np.errstate(all="ignore"):
            values = _evaluated(expression, inner, points)
        if values is None:
            continue
        wanted = 0.5 * points * (1 + np.tanh(np.sqrt(2 / np.pi) * (points + 0.044715 * points**3)))
        if np.all(np.abs(values - wanted) <= _CLOSE * np.maximum(1, np.abs(points))):
            return inner
    return None


def _sums_in(expression: Expression) -> list[Expression]:
    """The subexpressions that are the product, or a sum with it; the largest first."""
    found: dict[Expression, None] = {}
    pending = [expression]
    while pending:
        each = pending.pop(0)
        if each == _SUM or (each[0] in _ADDS and _added(each) is not None):
            found[each] = None
        else:
            pending += [part for part in each if isinstance(part, tuple)]
    return sorted(found, key=_count, reverse=True)


def _evaluated(expression: Expression, inner: Expression, points: np.ndarray) -> np.ndarray | None:
    """The values of `expression` for the values `points` of `inner`; None if it depends on anything else."""
    if expression == inner:
        return points
    if expression[0] == "number":
        number = expression[1]
        return np.full_like(points, number) if isinstance(number, (int, float)) else None
    operands = [_evaluated(each, inner, points) for each in expression[2:] if isinstance(each, tuple)]
    known = [each for each in operands if each is not None]
    if not operands or len(known) != len(operands):
        return None
    match expression[0], known:
        case "arith.addf", [a, b]:
            return a + b
        case "arith.subf", [a, b]:
            return a - b
        case "arith.mulf", [a, b]:
            return a * b
        case "arith.divf", [a, b]:
            return a / b
        case "arith.negf", [a]:
            return -a
        case "math.tanh", [a]:
            return np.tanh(a)
        case "math.powf", [a, b] if np.all(b == np.round(b)):
            return a ** b
        case "math.fpowi", [a, b]:
            return a ** b
        case _:
            return None
