"""Element-wise operators, with numpy's broadcasting: arithmetic, activations, comparisons, casts.

Operands are tensors of one dtype; Python numbers take the dtype of the other operands. Every
function raises CompileError, with all shapes and dtypes, for operands that do not fit.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, Literal

from motet.builder.operation import Body, Operation
from motet.builder.tensor import Tensor, dtype_name, is_float

# Operations on floats of fewer than 32 bits are computed in f32, as in numpy and the frameworks.
_NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")


def _binary(
    name: str, lhs: Any, rhs: Any, floating: str | None, integer: str | None, device: str | None
) -> Tensor:
    op = Operation(name, device, lhs, rhs)
    a, b = op.tensors(lhs, rhs)
    mnemonic = floating if is_float(a.dtype) else integer
    if mnemonic is None or (a.dtype == "i1" and mnemonic not in ("arith.andi", "arith.ori", "arith.xori")):
        raise op.error(
            f"operands are {a.dtype}; expected {'a floating' if integer is None else 'another'} dtype"
        )
    return op.elementwise([a, b], a.dtype, lambda body: _compute(body, mnemonic, a.dtype, *body.inputs))


def _compute(body: Body, mnemonic: str, dtype: str, *operands: str) -> str:
    """`mnemonic` on scalars of `dtype`, in f32 if narrower floats need it."""
    if dtype in _NARROW and mnemonic.startswith("math."):
        wide = [body.cast(operand, dtype, "f32") for operand in operands]
        return body.cast(body.op(mnemonic, "f32", *wide), "f32", dtype)
    return body.op(mnemonic, dtype, *operands)


def _unary(name: str, operand: Any, mnemonic: str, device: str | None) -> Tensor:
    op = Operation(name, device, operand)
    x = op.floating(op.tensor(operand))
    return op.elementwise([x], x.dtype, lambda body: _compute(body, mnemonic, x.dtype, body.inputs[0]))


# -- arithmetic ------------------------------------------------------------------------------------


def add(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _binary("add", lhs, rhs, "arith.addf", "arith.addi", device)


def sub(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _binary("sub", lhs, rhs, "arith.subf", "arith.subi", device)


def mul(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _binary("mul", lhs, rhs, "arith.mulf", "arith.muli", device)


def div(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    """The quotient; for integers rounded towards zero."""
    return _binary("div", lhs, rhs, "arith.divf", "arith.divsi", device)


def pow(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    """`lhs` to the power `rhs`, of floating-point tensors. A power of 2 is a multiplication."""
    if isinstance(lhs, Tensor) and not isinstance(rhs, Tensor) and isinstance(rhs, (int, float)) and rhs == 2:
        return mul(lhs, lhs, device)
    return _binary("pow", lhs, rhs, "math.powf", None, device)


def maximum(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    """The larger of each pair; NaN where either is NaN."""
    return _binary("maximum", lhs, rhs, "arith.maximumf", "arith.maxsi", device)


def minimum(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    """The smaller of each pair; NaN where either is NaN."""
    return _binary("minimum", lhs, rhs, "arith.minimumf", "arith.minsi", device)


def clip(x: Any, low: float, high: float, device: str | None = None) -> Tensor:
    """`minimum(maximum(x, low), high)`."""
    return minimum(maximum(x, low, device), high, device)


def neg(x: Any, device: str | None = None) -> Tensor:
    op = Operation("neg", device, x)
    tensor = op.tensor(x)
    if not is_float(tensor.dtype):
        return sub(0, tensor, device)
    return _unary("neg", x, "arith.negf", device)


def abs(x: Any, device: str | None = None) -> Tensor:
    op = Operation("abs", device, x)
    tensor = op.tensor(x)
    mnemonic = "math.absf" if is_float(tensor.dtype) else "math.absi"
    return op.elementwise(
        [tensor], tensor.dtype, lambda body: body.op(mnemonic, tensor.dtype, body.inputs[0])
    )


def exp(x: Any, device: str | None = None) -> Tensor:
    return _unary("exp", x, "math.exp", device)


def log(x: Any, device: str | None = None) -> Tensor:
    return _unary("log", x, "math.log", device)


def sqrt(x: Any, device: str | None = None) -> Tensor:
    return _unary("sqrt", x, "math.sqrt", device)


def rsqrt(x: Any, device: str | None = None) -> Tensor:
    return _unary("rsqrt", x, "math.rsqrt", device)


def sin(x: Any, device: str | None = None) -> Tensor:
    return _unary("sin", x, "math.sin", device)


def cos(x: Any, device: str | None = None) -> Tensor:
    return _unary("cos", x, "math.cos", device)


def tanh(x: Any, device: str | None = None) -> Tensor:
    return _unary("tanh", x, "math.tanh", device)


def erf(x: Any, device: str | None = None) -> Tensor:
    return _unary("erf", x, "math.erf", device)


def floor(x: Any, device: str | None = None) -> Tensor:
    return _unary("floor", x, "math.floor", device)


def ceil(x: Any, device: str | None = None) -> Tensor:
    return _unary("ceil", x, "math.ceil", device)


def round(x: Any, device: str | None = None) -> Tensor:
    """Rounds to the nearest integer, ties to even."""
    return _unary("round", x, "math.roundeven", device)


# -- activations -----------------------------------------------------------------------------------


def _activation(name: str, operand: Any, device: str | None, formula: Any) -> Tensor:
    """`formula(body, x, dtype)` on every element, in f32 for narrower floats."""
    op = Operation(name, device, operand)
    tensor = op.floating(op.tensor(operand))
    wide = "f32" if tensor.dtype in _NARROW else tensor.dtype

    def body(scalars: Body) -> str:
        x = scalars.cast(scalars.inputs[0], tensor.dtype, wide)
        return scalars.cast(formula(scalars, x, wide), wide, tensor.dtype)

    return op.elementwise([tensor], tensor.dtype, body)


def relu(x: Any, device: str | None = None) -> Tensor:
    return _activation(
        "relu",
        x,
        device,
        lambda body, v, dtype: body.op("arith.maximumf", dtype, v, body.constant(0.0, dtype)),
    )


def leaky_relu(x: Any, alpha: float = 0.01, device: str | None = None) -> Tensor:
    """x if positive, else `alpha` x."""

    def formula(body: Body, v: str, dtype: str) -> str:
        positive = body.line(f"arith.cmpf ogt, {v}, {body.constant(0.0, dtype)} : {dtype}")
        scaled = body.op("arith.mulf", dtype, v, body.constant(alpha, dtype))
        return body.line(f"arith.select {positive}, {v}, {scaled} : {dtype}")

    return _activation("leaky_relu", x, device, formula)


def _sigmoid(body: Body, v: str, dtype: str) -> str:
    """1 / (1 + exp(-v))."""
    one = body.constant(1.0, dtype)
    exponential = body.op("math.exp", dtype, body.op("arith.negf", dtype, v))
    return body.op("arith.divf", dtype, one, body.op("arith.addf", dtype, one, exponential))


def sigmoid(x: Any, device: str | None = None) -> Tensor:
    return _activation("sigmoid", x, device, _sigmoid)


def silu(x: Any, device: str | None = None) -> Tensor:
    """x sigmoid(x), also called swish."""
    return _activation(
        "silu", x, device, lambda body, v, dtype: body.op("arith.mulf", dtype, v, _sigmoid(body, v, dtype))
    )


def gelu(x: Any, approximate: Literal["none", "tanh"] = "none", device: str | None = None) -> Tensor:
    """x Φ(x) with Φ by erf, or by the tanh approximation (Hendrycks and Gimpel, 2016)."""

    def formula(body: Body, v: str, dtype: str) -> str:
        half, one = body.constant(0.5, dtype), body.constant(1.0, dtype)
        if approximate == "none":
            scaled = body.op("arith.mulf", dtype, v, body.constant(math.sqrt(0.5), dtype))
            inner = body.op("math.erf", dtype, scaled)
        else:
            cube = body.op("arith.mulf", dtype, body.op("arith.mulf", dtype, v, v), v)
            cubic = body.op("arith.mulf", dtype, cube, body.constant(0.044715, dtype))
            total = body.op("arith.addf", dtype, v, cubic)
            scale = body.constant(math.sqrt(2.0 / math.pi), dtype)
            inner = body.op("math.tanh", dtype, body.op("arith.mulf", dtype, total, scale))
        halved = body.op("arith.mulf", dtype, v, half)
        return body.op("arith.mulf", dtype, halved, body.op("arith.addf", dtype, inner, one))

    if approximate not in ("none", "tanh"):
        raise Operation("gelu", device, x).error(f"approximate {approximate!r}; expected 'none' or 'tanh'")
    return _activation("gelu", x, device, formula)


# -- comparisons and choice ------------------------------------------------------------------------


def _compare(name: str, lhs: Any, rhs: Any, floating: str, integer: str, device: str | None) -> Tensor:
    op = Operation(name, device, lhs, rhs)
    a, b = op.tensors(lhs, rhs)
    predicate = f"arith.cmpf {floating}," if is_float(a.dtype) else f"arith.cmpi {integer},"
    return op.elementwise(
        [a, b], "i1", lambda body: body.line(f"{predicate} {body.inputs[0]}, {body.inputs[1]} : {a.dtype}")
    )


def equal(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _compare("equal", lhs, rhs, "oeq", "eq", device)


def not_equal(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _compare("not_equal", lhs, rhs, "une", "ne", device)


def less(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _compare("less", lhs, rhs, "olt", "slt", device)


def less_equal(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _compare("less_equal", lhs, rhs, "ole", "sle", device)


def greater(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _compare("greater", lhs, rhs, "ogt", "sgt", device)


def greater_equal(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _compare("greater_equal", lhs, rhs, "oge", "sge", device)


def _logical(name: str, lhs: Any, rhs: Any, mnemonic: str, device: str | None) -> Tensor:
    op = Operation(name, device, lhs, rhs)
    a, b = op.tensors(lhs, rhs)
    if a.dtype != "i1":
        raise op.error(f"operands are {a.dtype}; expected i1, compare first")
    return op.elementwise([a, b], "i1", lambda body: body.op(mnemonic, "i1", *body.inputs))


def logical_and(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _logical("logical_and", lhs, rhs, "arith.andi", device)


def logical_or(lhs: Any, rhs: Any, device: str | None = None) -> Tensor:
    return _logical("logical_or", lhs, rhs, "arith.ori", device)


def logical_not(x: Any, device: str | None = None) -> Tensor:
    return _logical("logical_not", x, True, "arith.xori", device)


def where(condition: Any, then: Any, otherwise: Any, device: str | None = None) -> Tensor:
    """Elements of `then` where `condition` (i1) holds, of `otherwise` elsewhere."""
    op = Operation("where", device, condition, then, otherwise)
    test = op.tensor(condition)
    if test.dtype != "i1":
        raise op.error(f"the condition is {test.dtype}; expected i1, compare first")
    if not isinstance(then, Tensor) and not isinstance(otherwise, Tensor):
        floating = isinstance(then, builtins.float) or isinstance(otherwise, builtins.float)
        a, b = (op.tensor(v, "f32" if floating else "i64") for v in (then, otherwise))
        if a.dtype != b.dtype:
            raise op.error(f"dtypes differ: {a.dtype} and {b.dtype}; expected one dtype, use cast")
    else:
        a, b = op.tensors(then, otherwise)
    return op.elementwise(
        [test, a, b], a.dtype, lambda body: body.line(f"arith.select {', '.join(body.inputs)} : {a.dtype}")
    )


def cast(x: Any, dtype: Any, device: str | None = None) -> Tensor:
    """Every element as `dtype`: integers from floats by truncation, i1 from numbers by comparison with
    zero."""
    op = Operation("cast", device, x)
    tensor, target = op.tensor(x), dtype_name(dtype)
    if tensor.dtype.startswith("ui") or target.startswith("ui"):
        raise op.error(f"from {tensor.dtype} to {target}: casts of unsigned integers are not supported")
    return op.elementwise([tensor], target, lambda body: body.cast(body.inputs[0], tensor.dtype, target))
