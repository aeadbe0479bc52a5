"""Matrix products, convolutions and pooling.

Sums of floats narrower than f32 are accumulated in f32. Functions raise CompileError, with all shapes,
for operands that do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import motet.builder.elementwise as elementwise
from motet.builder.movement import broadcast_to, pad, reshape
from motet.builder.operation import Body, Operation
from motet.builder.tensor import Dim, Shape, Tensor, dtype_name, is_float, shape_text

Pair = int | Sequence[int]
Padding = int | Sequence[int] | Sequence[Sequence[int]]
Layout = Literal["NCHW", "NHWC"]


def _accumulator(dtype: str) -> str:
    return "f32" if dtype in ("f16", "bf16", "f8E4M3FN", "f8E5M2") else dtype


@dataclass(frozen=True)
class _Window:
    """A window that slides over the two spatial axes of `layout`."""

    layout: Layout
    sizes: list[int]
    strides: list[int]
    dilations: list[int]

    @property
    def spatial(self) -> tuple[int, int]:
        return (2, 3) if self.layout == "NCHW" else (1, 2)

    @property
    def attributes(self) -> str:
        """As operations of linalg have them."""
        return (
            f"dilations = dense<{self.dilations}> : tensor<2xi64>, strides = dense<{self.strides}> : tensor<2xi64>"
        )

    def extents(self, op: Operation, x: Tensor) -> list[Dim]:
        """How many windows fit along each spatial axis of `x`, padding included."""
        extents: list[Dim] = []
        for axis, size, stride, dilation in zip(self.spatial, self.sizes, self.strides, self.dilations, strict=True):
            span = (size - 1) * dilation + 1
            extent = x.shape[axis]
            if isinstance(extent, int) and extent < span:
                raise op.error(
                    f"the window spans {span} along axis {axis}, x with its padding is {shape_text(x.shape)}; "
                    "expected a window that fits"
                )
            steps = op.graph.derive("//", op.graph.derive("-", extent, span), stride)
            extents.append(op.graph.derive("+", steps, 1))
        return extents


def _window(op: Operation, window: Pair, stride: Pair | None, dilation: Pair, layout: Layout) -> _Window:
    sizes = _pair(op, "window", window, 1)
    strides = _pair(op, "stride", stride, 1) if stride is not None else sizes
    return _Window(layout, sizes, strides, _pair(op, "dilation", dilation, 1))


# -- matmul ----------------------------------------------------------------------------------------


def matmul(
    lhs: Any,
    rhs: Any,
    transpose_lhs: bool = False,
    transpose_rhs: bool = False,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast.

    `lhs` is …×M×K (…×K×M with `transpose_lhs`), `rhs` …×K×N (…×N×K with `transpose_rhs`); the result
    …×M×N has `dtype`, by default that of the operands. Integers are extended to `dtype` before they are
    multiplied.
    """
    op = Operation("matmul", device, lhs, rhs)
    a, b = op.tensors(lhs, rhs)
    target = dtype_name(dtype) if dtype is not None else a.dtype
    if a.rank < 2 or b.rank < 2:
        raise op.error(f"lhs is {shape_text(a.shape)}, rhs is {shape_text(b.shape)}; expected rank 2 or more")
    if a.dtype == "i1" or is_float(a.dtype) != is_float(target):
        raise op.error(f"operands are {a.dtype}, the result {target}; expected both floating or both integer")
    (k1, m) = a.shape[-2:] if transpose_lhs else a.shape[-1:-3:-1]
    (n, k2) = b.shape[-2:] if transpose_rhs else b.shape[-1:-3:-1]
    if k1 != k2:
        wanted = f"…×N×{k1}" if transpose_rhs else f"…×{k1}×N"
        raise op.error(
            f"inner extents differ: lhs is {shape_text(a.shape)}{' transposed' if transpose_lhs else ''}, "
            f"rhs is {shape_text(b.shape)}{' transposed' if transpose_rhs else ''}; expected rhs {wanted}"
        )
    wide = _accumulator(target)
    if b.rank == 2 and a.rank > 2 and not transpose_lhs:
        # One product of many rows is faster than many products.
        rows = reshape(a, [-1, k1], device)
        product = _matmul(op, rows, b, op.filled((rows.shape[0], n), wide, 0.0), False, transpose_rhs)
        product = reshape(product, [*a.shape[:-1], n], device)
    else:
        out = op.filled((*_batch(op, a, b), m, n), wide, 0.0)
        product = _matmul(op, a, b, out, transpose_lhs, transpose_rhs)
    return product if wide == target else elementwise.cast(product, target, device)


def _batch(op: Operation, a: Tensor, b: Tensor) -> Shape:
    leading = [Tensor(op.graph, t.name, t.shape[:-2], t.dtype) for t in (a, b)]
    try:
        return op.broadcast(leading)
    except Exception as error:
        raise op.error(
            f"leading extents do not broadcast: lhs is {shape_text(a.shape)}, rhs is {shape_text(b.shape)}"
        ) from error


def _matmul(op: Operation, a: Tensor, b: Tensor, out: Tensor, transpose_a: bool, transpose_b: bool) -> Tensor:
    """`out`, which is zero, plus the product of `a` and `b`."""
    batch = out.shape[:-2]
    rank = len(batch)
    m, n, k = (f"d{rank + i}" for i in range(3))

    def reads(tensor: Tensor, last: list[str]) -> str:
        leading = tensor.shape[:-2]
        offset = rank - len(leading)
        dims = ["0" if e == 1 and batch[i + offset] != 1 else f"d{i + offset}" for i, e in enumerate(leading)]
        return ", ".join([*dims, *last])

    maps = [reads(a, [k, m] if transpose_a else [m, k]), reads(b, [n, k] if transpose_b else [k, n])]
    maps.append(", ".join([*(f"d{i}" for i in range(rank)), m, n]))
    dims = ", ".join(f"d{i}" for i in range(rank + 3))
    same_batch = a.shape[:-2] == batch == b.shape[:-2]
    if rank <= 1 and same_batch:
        affine = ", ".join(f"affine_map<({dims}) -> ({results})>" for results in maps)
        name = "linalg.matmul" if rank == 0 else "linalg.batch_matmul"
        indexing = f" indexing_maps = [{affine}]" if transpose_a or transpose_b else ""
        return op.named(name + indexing, [a, b], out)
    iterators = ["parallel"] * (rank + 2) + ["reduction"]
    return op.generic(
        [a, b], maps[:2], out, maps[2], iterators, lambda body: _multiply_add(body, a.dtype, out.dtype)
    )


def _multiply_add(body: Body, source: str, dtype: str) -> str:
    a, b = (body.cast(value, source, dtype) for value in body.inputs)
    multiply, add = ("arith.mulf", "arith.addf") if is_float(dtype) else ("arith.muli", "arith.addi")
    return body.op(add, dtype, body.out, body.op(multiply, dtype, a, b))


# -- convolution -----------------------------------------------------------------------------------


# The parameters are those of the operator, named as in PyTorch.
def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    device: str | None = None,
) -> Tensor:
    """A 2-D convolution (cross-correlation, as in every framework).

    NCHW: x is N×C×H×W, `weight` F×(C/groups)×KH×KW. NHWC: x is N×H×W×C, `weight` KH×KW×(C/groups)×F.
    `bias` has F elements. `padding` is a number, (vertical, horizontal), or ((top, bottom), (left,
    right)).
    """
    op = Operation("conv2d", device, x, weight, bias)
    tensor, kernel = op.tensors(x, weight)
    _layout(op, layout)
    op.rank(op.floating(tensor), 4, "x")
    op.rank(kernel, 4, "weight")
    channels_axis = 1 if layout == "NCHW" else 3
    if layout == "NCHW":
        features, depth, *window = kernel.shape
    else:
        *window, depth, features = kernel.shape
    channels = tensor.shape[channels_axis]
    static = [e for e in (features, depth, *window, channels) if isinstance(e, int)]
    if len(static) != 5:
        raise op.error(
            f"x is {shape_text(tensor.shape)}, weight is {shape_text(kernel.shape)}; "
            "expected known channels, features and window"
        )
    outputs, inputs, height, width, total = static
    if groups < 1 or total != inputs * groups or outputs % groups:
        raise op.error(
            f"channels differ: x is {shape_text(tensor.shape)} ({layout}), "
            f"weight is {shape_text(kernel.shape)}, {groups} groups; expected a weight with {total}/{groups} "
            "input channels and features a multiple of groups"
        )
    strides, dilations = _pair(op, "stride", stride, 1), _pair(op, "dilation", dilation, 1)
    sliding = _Window(layout, [height, width], strides, dilations)
    padded = _padded(op, tensor, sliding.spatial, padding, 0.0)
    dtype = _accumulator(tensor.dtype)
    result = _convolve(op, padded, kernel, sliding, groups, dtype)
    if dtype != tensor.dtype:
        result = elementwise.cast(result, tensor.dtype, device)
    if bias is None:
        return result
    added = op.tensor(bias)
    if added.shape != (outputs,):
        raise op.error(f"bias is {shape_text(added.shape)}; expected {outputs}")
    return elementwise.add(
        result, reshape(added, [outputs, 1, 1], device) if layout == "NCHW" else added, device
    )


def _convolve(op: Operation, x: Tensor, kernel: Tensor, window: _Window, groups: int, dtype: str) -> Tensor:
    batch, layout, extents = x.shape[0], window.layout, window.extents(op, x)
    features = kernel.shape[0 if layout == "NCHW" else 3]
    shape: Shape = (batch, features, *extents) if layout == "NCHW" else (batch, *extents, features)
    if groups == 1:
        name = "linalg.conv_2d_nchw_fchw" if layout == "NCHW" else "linalg.conv_2d_nhwc_hwcf"
        return op.named(name, [x, kernel], op.filled(shape, dtype, 0.0), window.attributes)
    channels = x.shape[1 if layout == "NCHW" else 3]
    if groups == channels == features:  # depth-wise
        if layout == "NCHW":
            flat = reshape(kernel, [features, *kernel.shape[2:]], op.device)
            name = "linalg.depthwise_conv_2d_nchw_chw"
        else:
            flat = reshape(kernel, [*kernel.shape[:2], features], op.device)
            name = "linalg.depthwise_conv_2d_nhwc_hwc"
        return op.named(name, [x, flat], op.filled(shape, dtype, 0.0), window.attributes)
    return _grouped(op, x, kernel, shape, window, groups, dtype)


def _grouped(
    op: Operation, x: Tensor, kernel: Tensor, shape: Shape, window: _Window, groups: int, dtype: str
) -> Tensor:
    """A grouped convolution; channels and features are split in (group, within): dimensions n, g, f, oh, ow, c, kh,
    kw."""

    def split(tensor: Tensor, axis: int) -> Tensor:
        extent = tensor.shape[axis]
        inner = extent // groups if isinstance(extent, int) else extent
        return reshape(tensor, [*tensor.shape[:axis], groups, inner, *tensor.shape[axis + 1 :]], op.device)

    n, g, f, c = "d0", "d1", "d2", "d5"
    h = f"d3 * {window.strides[0]} + d6 * {window.dilations[0]}"
    w = f"d4 * {window.strides[1]} + d7 * {window.dilations[1]}"
    feature_axis = 1 if window.layout == "NCHW" else 3
    if window.layout == "NCHW":
        inputs, maps = [split(x, 1), split(kernel, 0)], [f"{n}, {g}, {c}, {h}, {w}", f"{g}, {f}, {c}, d6, d7"]
        out_map = f"{n}, {g}, {f}, d3, d4"
    else:
        inputs, maps = [split(x, 3), split(kernel, 3)], [f"{n}, {h}, {w}, {g}, {c}", f"d6, d7, {c}, {g}, {f}"]
        out_map = f"{n}, d3, d4, {g}, {f}"
    features = shape[feature_axis]
    inner = features // groups if isinstance(features, int) else features
    out = op.filled((*shape[:feature_axis], groups, inner, *shape[feature_axis + 1 :]), dtype, 0.0)
    result = op.generic(
        inputs,
        maps,
        out,
        out_map,
        ["parallel"] * 5 + ["reduction"] * 3,
        lambda body: _multiply_add(body, x.dtype, dtype),
    )
    return reshape(result, shape, op.device)


# -- pooling ---------------------------------------------------------------------------------------


def max_pool2d(
    x: Any,
    window: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: Layout = "NCHW",
    device: str | None = None,
) -> Tensor:
    """The maximum of every window; `stride` is the window's size by default. Padding never wins."""
    op = Operation("max_pool2d", device, x)
    _layout(op, layout)
    tensor = op.rank(op.floating(op.tensor(x)), 4, "x")
    return _pool(op, tensor, _window(op, window, stride, dilation, layout), padding, "max", -math.inf)


def avg_pool2d(
    x: Any,
    window: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    layout: Layout = "NCHW",
    count_include_pad: bool = True,
    device: str | None = None,
) -> Tensor:
    """The mean of every window; `count_include_pad=False` divides by the number of elements inside x."""
    op = Operation("avg_pool2d", device, x)
    _layout(op, layout)
    tensor = op.rank(op.floating(op.tensor(x)), 4, "x")
    sliding = _window(op, window, stride, 1, layout)
    total = _pool(op, tensor, sliding, padding, "sum", 0.0)
    if count_include_pad or not any(map(any, _padding(op, padding))):
        return elementwise.div(total, float(math.prod(sliding.sizes)), device)
    ones_shape = [extent if axis in sliding.spatial else 1 for axis, extent in enumerate(tensor.shape)]
    ones = op.filled(tuple(ones_shape), tensor.dtype, 1.0)
    counts = _pool(op, ones, sliding, padding, "sum", 0.0)
    return elementwise.div(total, broadcast_to(counts, total.shape, device), device)


def _pool(op: Operation, x: Tensor, window: _Window, padding: Padding, kind: str, neutral: float) -> Tensor:
    padded = _padded(op, x, window.spatial, padding, neutral)
    shape: list[Dim] = list(x.shape)
    for axis, extent in zip(window.spatial, window.extents(op, padded), strict=True):
        shape[axis] = extent
    return op.named(
        f"linalg.pooling_{window.layout.lower()}_{kind}",
        [padded, op.empty(tuple(window.sizes), x.dtype)],
        op.filled(tuple(shape), x.dtype, neutral),
        window.attributes,
    )


# -- windows ---------------------------------------------------------------------------------------


def _layout(op: Operation, layout: str) -> None:
    if layout not in ("NCHW", "NHWC"):
        raise op.error(f"layout {layout!r}; expected 'NCHW' or 'NHWC'")


def _pair(op: Operation, what: str, value: Pair, least: int) -> list[int]:
    pair = [value, value] if isinstance(value, int) else list(value)
    if len(pair) != 2 or any(number < least for number in pair):
        raise op.error(f"{what} {value!r}; expected a number or two, {least} or more")
    return pair


def _padding(op: Operation, padding: Padding) -> list[tuple[int, int]]:
    """The padding as ((top, bottom), (left, right))."""
    parts: Sequence[Any] = [padding, padding] if isinstance(padding, int) else list(padding)
    pairs = [(part, part) if isinstance(part, int) else tuple(part) for part in parts]
    if len(pairs) != 2 or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise op.error(
            f"padding {padding!r}; expected a number, (vertical, horizontal), or "
            "((top, bottom), (left, right))"
        )
    return [(pair[0], pair[1]) for pair in pairs]


def _padded(op: Operation, x: Tensor, spatial: tuple[int, int], padding: Padding, value: float) -> Tensor:
    low, high = [0] * x.rank, [0] * x.rank
    for axis, (before, after) in zip(spatial, _padding(op, padding), strict=True):
        low[axis], high[axis] = before, after
    return pad(x, low, high, value, op.device)
