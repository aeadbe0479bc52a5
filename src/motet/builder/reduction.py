"""Reductions over axes, and operators composed of them: mean, softmax, layer normalisation.

Sums of floats narrower than f32 are accumulated in f32. Functions raise CompileError for axes that
do not exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import motet.builder.elementwise as elementwise
from motet.builder.movement import reshape
from motet.builder.operation import Body, Operation
from motet.builder.tensor import Dim, Tensor, is_float, shape_text

Axes = int | Sequence[int] | None


def _reduce(
    name: str,
    x: Any,
    axes: Axes,
    keepdims: bool,
    device: str | None,
    floating: tuple[str, float],
    integer: tuple[str, float],
) -> Tensor:
    op = Operation(name, device, x)
    tensor = op.tensor(x)
    if tensor.dtype == "i1":
        raise op.error("operand is i1; expected a number, use cast")
    reduced = _axes(op, axes, tensor.rank)
    mnemonic, start = floating if is_float(tensor.dtype) else integer
    dtype = "f32" if tensor.dtype in ("f16", "bf16", "f8E4M3FN", "f8E5M2") else tensor.dtype
    if not is_float(dtype) and math.isinf(start):
        bits = int(dtype.lstrip("ui"))
        start = -(1 << (bits - 1)) if start < 0 else (1 << (bits - 1)) - 1
    kept = [axis for axis in range(tensor.rank) if axis not in reduced]
    out = op.filled(tuple(tensor.shape[axis] for axis in kept), dtype, start)

    def body(scalars: Body) -> str:
        return scalars.op(mnemonic, dtype, scalars.cast(scalars.inputs[0], tensor.dtype, dtype), scalars.out)

    result = op.generic(
        [tensor],
        [", ".join(f"d{i}" for i in range(tensor.rank))],
        out,
        ", ".join(f"d{i}" for i in kept),
        ["reduction" if axis in reduced else "parallel" for axis in range(tensor.rank)],
        body,
    )
    if dtype != tensor.dtype:
        result = elementwise.cast(result, tensor.dtype, device)
    if not keepdims:
        return result
    return reshape(
        result, [1 if axis in reduced else extent for axis, extent in enumerate(tensor.shape)], device
    )


def _axes(op: Operation, axes: Axes, rank: int) -> list[int]:
    if axes is None:
        return list(range(rank))
    listed = [op.axis(axis, rank) for axis in ([axes] if isinstance(axes, int) else axes)]
    if len(set(listed)) != len(listed):
        raise op.error(f"axes {list(listed)}: an axis stands twice; expected each once")
    return listed


def reduce_sum(x: Any, axes: Axes = None, keepdims: bool = False, device: str | None = None) -> Tensor:
    return _reduce("reduce_sum", x, axes, keepdims, device, ("arith.addf", 0.0), ("arith.addi", 0))


def reduce_prod(x: Any, axes: Axes = None, keepdims: bool = False, device: str | None = None) -> Tensor:
    return _reduce("reduce_prod", x, axes, keepdims, device, ("arith.mulf", 1.0), ("arith.muli", 1))


def reduce_max(x: Any, axes: Axes = None, keepdims: bool = False, device: str | None = None) -> Tensor:
    """The largest element; NaN if any is NaN; the smallest value of the dtype (-inf) over an empty axis."""
    return _reduce(
        "reduce_max", x, axes, keepdims, device, ("arith.maximumf", -math.inf), ("arith.maxsi", -math.inf)
    )


def reduce_min(x: Any, axes: Axes = None, keepdims: bool = False, device: str | None = None) -> Tensor:
    """The smallest element; NaN if any is NaN; the largest value of the dtype (inf) over an empty axis."""
    return _reduce(
        "reduce_min", x, axes, keepdims, device, ("arith.minimumf", math.inf), ("arith.minsi", math.inf)
    )


def reduce_mean(x: Any, axes: Axes = None, keepdims: bool = False, device: str | None = None) -> Tensor:
    """The mean of a floating-point tensor."""
    op = Operation("reduce_mean", device, x)
    tensor = op.floating(op.tensor(x))
    count: Dim = 1
    for axis in _axes(op, axes, tensor.rank):
        count = op.graph.derive("*", count, tensor.shape[axis])
    wide = elementwise.cast(tensor, "f32", device) if tensor.dtype not in ("f32", "f64") else tensor
    mean = elementwise.div(reduce_sum(wide, axes, keepdims, device), _number(op, count, wide.dtype), device)
    return elementwise.cast(mean, tensor.dtype, device) if wide is not tensor else mean


def _number(op: Operation, extent: Dim, dtype: str) -> Tensor | float:
    """An extent as a number of `dtype`."""
    if isinstance(extent, int):
        return float(extent)
    integer = op.graph.emit(f"arith.index_cast {op.graph.extent(extent)} : index to i64", op.location)
    scalar = op.graph.emit(f"arith.sitofp {integer} : i64 to {dtype}", op.location)
    return op.value(f"tensor.from_elements {scalar} : tensor<{dtype}>", (), dtype)


def softmax(x: Any, axis: int = -1, device: str | None = None) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along `axis`."""
    op = Operation("softmax", device, x)
    tensor = op.floating(op.tensor(x))
    along = op.axis(axis, tensor.rank)
    wide = elementwise.cast(tensor, "f32", device) if tensor.dtype not in ("f32", "f64") else tensor
    shifted = elementwise.sub(wide, reduce_max(wide, along, True, device), device)
    powers = elementwise.exp(shifted, device)
    result = elementwise.div(powers, reduce_sum(powers, along, True, device), device)
    return elementwise.cast(result, tensor.dtype, device) if wide is not tensor else result


def layernorm(
    x: Any,
    scale: Any = None,
    bias: Any = None,
    axes: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
    device: str | None = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, times `scale`, plus `bias`; both broadcast
    against x."""
    op = Operation("layernorm", device, x, scale, bias)
    tensor = op.floating(op.tensor(x))
    for what, operand in (("scale", scale), ("bias", bias)):
        if isinstance(operand, Tensor) and op.broadcast([tensor, operand]) != tensor.shape:
            raise op.error(
                f"{what} is {shape_text(operand.shape)}, x is {shape_text(tensor.shape)}; expected one that "
                "broadcasts to x"
            )
    wide = elementwise.cast(tensor, "f32", device) if tensor.dtype not in ("f32", "f64") else tensor
    centred = elementwise.sub(wide, reduce_mean(wide, axes, True, device), device)
    variance = reduce_mean(elementwise.mul(centred, centred, device), axes, True, device)
    factor = elementwise.rsqrt(elementwise.add(variance, epsilon, device), device)
    result = elementwise.mul(centred, factor, device)
    if wide is not tensor:
        result = elementwise.cast(result, tensor.dtype, device)
    if scale is not None:
        result = elementwise.mul(result, scale, device)
    return result if bias is None else elementwise.add(result, bias, device)
