"""Forms of OpenVINO's operators with odd extents: the operator's nodes on parameters, and the range of their numbers."""

# ruff: noqa: E501 - tables, one form a line
# openvino may not be installed, and its functions have no types.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino
import openvino.opset8 as o8
import openvino.opset13 as o
import openvino.opset14 as o14
import openvino.opset15 as o15
import openvino.opset16 as o16

F32, I32, I64, BOOL = np.float32, np.int32, np.int64, np.bool_


@dataclass(frozen=True)
class OpenvinoForm:
    """`build` gives the operator's results on parameters of `shapes`, [i] of `dtypes[i]`, drawn from `low` to `high`."""

    name: str
    build: Callable[..., Any]
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[Any] = ()
    low: float = -2.0
    high: float = 2.0

    def outputs(self) -> tuple[list[Any], list[Any]]:
        """The results of the operator, and the parameters."""
        dtypes = list(self.dtypes) or [F32] * len(self.shapes)
        given = [o.parameter(list(shape), dtype) for shape, dtype in zip(self.shapes, dtypes, strict=True)]
        found = self.build(*given)
        return (found if isinstance(found, list) else [found.output(0)]), given

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        dtypes = list(self.dtypes) or [F32] * len(self.shapes)
        return [self._drawn(rng, shape, np.dtype(dtype)) for shape, dtype in zip(self.shapes, dtypes, strict=True)]

    def _drawn(self, rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        if dtype.kind == "b":
            return rng.random(shape) > 0.5
        if dtype.kind in "iu":
            numbers = rng.integers(int(self.low), int(self.high), shape)
            return np.where(numbers == 0, 1, numbers).astype(dtype)
        return rng.uniform(self.low, self.high, shape).astype(dtype)


Form = OpenvinoForm


def c(value: Any, dtype: Any = None) -> Any:
    return o.constant(np.asarray(value, dtype))


def every(node: Any) -> list[Any]:
    return [node.output(number) for number in range(node.get_output_size())]


def _weights(*shape: int) -> Any:
    return c(np.random.default_rng(sum(shape)).standard_normal(shape) * 0.5, F32)


def unary() -> Iterator[Form]:
    for name in ("abs", "atan", "asinh", "cos", "cosh", "erf", "exp", "floor", "sign", "sin", "sinh", "tan", "tanh", "sigmoid",
                 "relu", "ceiling", "negative", "softplus", "softsign", "mish", "hswish", "hsigmoid"):
        yield Form(name, getattr(o, name), [[3, 17]], low=-4, high=4)
    for name in ("acos", "asin", "atanh"):
        yield Form(name, getattr(o, name), [[5, 7]], low=-0.9, high=0.9)
    for name in ("acosh", "log", "sqrt"):
        yield Form(name, getattr(o, name), [[31]], low=1.1, high=4)
    for mode in ("half_to_even", "half_away_from_zero"):
        yield Form(f"round {mode}", lambda x, mode=mode: o.round(o.multiply(o.floor(x), c(0.5, F32)), mode), [[33]], low=-9, high=9)
    yield Form("clamp", lambda x: o.clamp(x, -0.5, 1.0), [[3, 5]])
    yield Form("clamp i32", lambda x: o.clamp(x, -1.5, 2.5), [[3, 5]], [I32], low=-5, high=5)
    yield Form("elu", lambda x: o.elu(x, 0.7), [[3, 5]])
    yield Form("selu", lambda x: o.selu(x, c(1.6, F32), c(1.05, F32)), [[3, 5]])
    yield Form("swish", lambda x: o.swish(x, c(1.3, F32)), [[3, 5]])
    yield Form("hard_sigmoid", lambda x: o.hard_sigmoid(x, c(0.2, F32), c(0.4, F32)), [[3, 5]])
    yield Form("gelu erf", lambda x: o.gelu(x, "erf"), [[3, 5]])
    yield Form("gelu tanh", lambda x: o.gelu(x, "tanh"), [[3, 5]])
    yield Form("prelu", lambda x: o.prelu(x, c([0.1, 0.2, 0.3], F32)), [[2, 3, 5]])
    yield Form("logical_not", o.logical_not, [[3, 5]], [BOOL])
    yield Form("is_finite", lambda x: every(o.is_finite(o.divide(x, o.floor(x)))), [[3, 5]])
    for source, target in ((F32, "i32"), (F32, "boolean"), (I32, "f32"), (BOOL, "f32"), (I64, "u8")):
        low = 1 if target == "u8" else -5
        yield Form(f"convert {np.dtype(source)} {target}", lambda x, t=target: o.convert(x, t), [[3, 5]], [source], low=low, high=9)


def binary() -> Iterator[Form]:
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "squared_difference", "equal", "greater",
                 "greater_equal", "less", "less_equal", "not_equal", "mod", "floor_mod"):
        yield Form(name, getattr(o, name), [[3, 1, 5], [7, 1]])
    yield Form("power", o.power, [[3, 5], [5]], low=0.1)
    for name in ("add", "mod", "floor_mod", "bitwise_and", "bitwise_or", "bitwise_xor"):
        yield Form(f"{name} i32", getattr(o, name), [[3, 5], [5]], [I32, I32], low=-9, high=9)
    yield Form("divide i32", o.divide, [[3, 5], [5]], [I32, I32], low=1, high=99)  # the plugin rounds others to zero
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield Form(name, getattr(o, name), [[3, 5], [5]], [BOOL, BOOL])
    yield Form("left shift", lambda x: o15.bitwise_left_shift(x, c(2, I32)), [[9]], [I32], low=-9, high=9)
    yield Form("right shift", lambda x: o15.bitwise_right_shift(x, c(2, I32)), [[9]], [I32], low=-9, high=9)
    yield Form("select", lambda a, b: o.select(o.greater(a, c(0, F32)), a, b), [[3, 5], [5]])


def products() -> Iterator[Form]:
    yield Form("matmul", lambda a, b: o.matmul(a, b, False, False), [[2, 3, 4], [4, 5]])
    yield Form("matmul transposed", lambda a, b: o.matmul(a, b, True, True), [[2, 4, 3], [2, 5, 4]])
    yield Form("matmul of a vector", lambda a, b: o.matmul(a, b, False, True), [[7], [3, 7]])
    yield Form("einsum", lambda a, b: o.einsum([a, b], "abc,cd->abd"), [[2, 3, 4], [4, 5]])
    for causal in (False, True):
        yield Form(f"attention causal={causal}", lambda q, k, v, causal=causal: o.scaled_dot_product_attention(q, k, v, causal=causal), [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 6]])
    for dtype in (F32, BOOL):
        yield Form(f"attention, mask of {np.dtype(dtype)}", lambda q, k, v, m: o.scaled_dot_product_attention(q, k, v, m, None, False),
                   [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 6], [5, 7]], [F32, F32, F32, dtype])


def convolutions() -> Iterator[Form]:
    def conv(x, w, *given):
        return o.convolution(x, w, *given)

    yield Form("convolution", lambda x, w: conv(x, w, [2, 1], [1, 0], [2, 1], [1, 2]), [[2, 3, 9, 8], [4, 3, 3, 2]])
    yield Form("convolution 1-D", lambda x, w: conv(x, w, [1], [1], [2], [1]), [[2, 3, 9], [4, 3, 3]])
    yield Form("convolution 3-D", lambda x, w: conv(x, w, [1, 1, 1], [1, 0, 0], [0, 1, 0], [1, 1, 1]), [[1, 2, 4, 5, 3], [4, 2, 2, 3, 2]])
    for pad in ("same_upper", "same_lower", "valid"):
        yield Form(f"convolution {pad}", lambda x, w, pad=pad: conv(x, w, [2, 2], [0, 0], [0, 0], [1, 1], pad), [[2, 3, 9, 8], [4, 3, 3, 2]])
    yield Form("group_convolution", lambda x, w: o.group_convolution(x, w, [1, 2], [1, 1], [1, 1], [1, 1]), [[2, 6, 7, 8], [3, 4, 2, 3, 3]])
    yield Form("depthwise", lambda x, w: o.group_convolution(x, w, [1, 1], [1, 1], [1, 1], [1, 1]), [[2, 6, 7, 8], [6, 1, 1, 3, 3]])
    yield Form("backprop", lambda x, w: o.convolution_backprop_data(x, w, [2, 2], pads_begin=[1, 0], pads_end=[0, 1], dilations=[1, 2], output_padding=[1, 0]), [[2, 3, 4, 5], [3, 4, 3, 2]])
    yield Form("backprop to extents", lambda x, w: o.convolution_backprop_data(x, w, [2, 2], c([9, 10])), [[2, 3, 4, 5], [3, 4, 3, 3]])
    for pad in ("same_upper", "same_lower"):
        yield Form(f"backprop {pad}", lambda x, w, pad=pad: o.convolution_backprop_data(x, w, [2, 2], c([8, 10]), auto_pad=pad), [[2, 3, 4, 5], [3, 4, 3, 3]])
    yield Form("group backprop", lambda x, w: o.group_convolution_backprop_data(x, w, [2, 1], pads_begin=[1, 1], pads_end=[1, 1], dilations=[1, 1]), [[2, 6, 4, 5], [3, 2, 4, 3, 3]])
    yield Form("col2im", lambda x: o15.col2im(x, c([5, 6]), c([2, 3]), [1, 1], [1, 1], [0, 0], [0, 0]), [[2, 12, 16]])


def pools() -> Iterator[Form]:
    shape = [[2, 3, 9, 8]]
    for rounding in ("floor", "ceil", "ceil_torch"):
        yield Form(f"max_pool {rounding}", lambda x, r=rounding: o14.max_pool(x, [3, 2], [1, 1], [1, 0], [1, 1], [3, 3], r), shape)
        for excluded in (True, False):
            yield Form(f"avg_pool {rounding} {excluded}", lambda x, r=rounding, e=excluded: o14.avg_pool(x, [3, 2], [1, 0], [1, 1], [3, 3], e, r), shape)
            yield Form(f"avg_pool {rounding} {excluded} without pads", lambda x, r=rounding, e=excluded: o14.avg_pool(x, [3, 2], [0, 0], [0, 0], [2, 3], e, r), shape)
    yield Form("max_pool dilated", lambda x: o.max_pool(x, [1, 2], [2, 1], [1, 1], [1, 1], [3, 3]), shape)
    yield Form("max_pool with places", lambda x: every(o.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2])), shape)
    for extents in ([4, 3], [1, 1], [3, 4], [9, 1]):
        yield Form(f"adaptive_avg_pool {extents}", lambda x, e=extents: o.adaptive_avg_pool(x, c(e)), shape)
        yield Form(f"adaptive_max_pool {extents}", lambda x, e=extents: o.adaptive_max_pool(x, c(e), "i32"), shape)


def norms() -> Iterator[Form]:
    for axes, eps in (([1, 2], "inside_sqrt"), ([-1], "outside_sqrt")):
        for scaled in (True, False):
            yield Form(f"mvn {axes} {scaled}", lambda x, a=axes, s=scaled, e=eps: o.mvn(x, c(a), s, 1e-3, e), [[2, 3, 4, 5]])
    yield Form("normalize_l2 add", lambda x: o.normalize_l2(x, c([1]), 1e-2, "add"), [[2, 3, 5]])
    yield Form("normalize_l2 max", lambda x: o.normalize_l2(x, c([1, 2]), 4.0, "max"), [[2, 3, 5]])
    yield Form("lrn", lambda x: o.lrn(x, c([1]), 1.0, 0.75, 1.0, 3), [[2, 7, 4, 5]])
    yield Form("lrn in space", lambda x: o.lrn(x, c([2, 3]), 1.0, 0.75, 1.0, 3), [[2, 7, 4, 5]])
    yield Form("batch_norm", lambda x: o.batch_norm_inference(x, c([1, 2, 3], F32), c([0, 1, 2], F32), c([0.1, 0.2, 0.3], F32), c([1, 2, 3], F32), 1e-3), [[2, 3, 5]])
    yield Form("group_norm", lambda x: o.group_normalization(x, c([1, 2, 3, 4], F32), c([0, 1, 2, 3], F32), 2, 1e-3), [[2, 4, 5, 3]])
    for axis in (-2, 1):
        yield Form(f"softmax {axis}", lambda x, a=axis: o.softmax(x, a), [[2, 3, 7]])
        yield Form(f"log_softmax {axis}", lambda x, a=axis: o.log_softmax(x, a), [[2, 3, 7]])
    yield Form("fake_quantize", lambda x: o.fake_quantize(x, c(-1, F32), c(1.5, F32), c(-1, F32), c(1.5, F32), 16), [[3, 15]])
    yield Form("fake_quantize by rows", lambda x: o.fake_quantize(x, c([[-1], [0], [-2]], F32), c([[1], [2], [2]], F32), c([[-1], [0], [-2]], F32), c([[1], [3], [2]], F32), 256), [[3, 15]])


def reductions() -> Iterator[Form]:
    for name in ("sum", "mean", "max", "min", "prod", "l1", "l2"):
        for keep in (True, False):
            yield Form(f"reduce_{name} {keep}", lambda x, n=name, k=keep: getattr(o, f"reduce_{n}")(x, c([1, -1]), k), [[2, 3, 4, 5]])
    yield Form("reduce_logical_and", lambda x: o.reduce_logical_and(x, c([1]), False), [[5, 3]], [BOOL])
    yield Form("reduce_logical_or", lambda x: o.reduce_logical_or(x, c([1]), True), [[5, 3]], [BOOL])
    for exclusive in (True, False):
        yield Form(f"cum_sum {exclusive}", lambda x, e=exclusive: o.cum_sum(x, c(1, I64), e, not e), [[3, 7]])
    for mode in ("max", "min"):
        for order in ("value", "index"):
            yield Form(f"topk {mode} {order}", lambda x, m=mode, s=order: every(o.topk(x, c(3, I64), 1, m, s)), [[3, 7]])
    yield Form("bucketize right", lambda x: o.bucketize(x, c([-1.0, 0.0, 1.0], F32), "i64", True), [[3, 5]])
    yield Form("bucketize left", lambda x: o.bucketize(x, c([-1.0, 0.0, 1.0], F32), "i32", False), [[3, 5]])
    yield Form("search_sorted", lambda a, b: o15.search_sorted(o.cum_sum(o.abs(a), c(-1, I64)), b, True), [[2, 5], [2, 3]])


def moves() -> Iterator[Form]:
    yield Form("reshape", lambda x: o.reshape(x, c([0, -1]), True), [[2, 3, 4]])
    yield Form("transpose", lambda x: o.transpose(x, c([2, 0, 1])), [[2, 3, 4]])
    yield Form("transpose, no order", lambda x: o.transpose(x, c(np.zeros(0), I64)), [[2, 3, 4]])
    yield Form("squeeze", lambda x: o.squeeze(x, c([1, -1])), [[2, 1, 4, 1]])
    yield Form("unsqueeze", lambda x: o.unsqueeze(x, c([0, -1])), [[2, 4]])
    yield Form("concat", lambda a, b: o.concat([a, b], -1), [[2, 3], [2, 4]])
    yield Form("split", lambda x: every(o.split(x, c(1, I64), 3)), [[2, 6]])
    yield Form("variadic_split", lambda x: every(o.variadic_split(x, c(1, I64), c([2, -1, 3]))), [[2, 9]])
    yield Form("tile", lambda x: o.tile(x, c([2, 1, 3])), [[2, 3]])
    yield Form("tile, few repeats", lambda x: o.tile(x, c([2])), [[2, 3]])
    yield Form("broadcast", lambda x: o.broadcast(x, c([4, 2, 3])), [[2, 1]])
    yield Form("broadcast explicit", lambda x: o.broadcast(x, c([4, 2, 3]), c([1]), "explicit"), [[2]])
    yield Form("broadcast bidirectional", lambda x: o.broadcast(x, c([4, 1, 3]), broadcast_spec="bidirectional"), [[2, 3]])
    for mode in ("constant", "edge", "reflect", "symmetric"):
        yield Form(f"pad {mode}", lambda x, m=mode: o.pad(x, c([1, 2]), c([2, 1]), m, c(1.5, F32) if m == "constant" else None), [[3, 5]])
    yield Form("pad, removing", lambda x: o.pad(x, c([-1, 2]), c([2, -1]), "constant"), [[4, 5]])
    yield Form("reverse_sequence", lambda x: o.reverse_sequence(x, c([2, 4, 1], I32), 1, 2), [[2, 3, 4]])
    yield Form("roll", lambda x: o.roll(x, c([1, -2]), c([0, 1])), [[3, 5]])
    yield Form("shuffle_channels", lambda x: o.shuffle_channels(x, 1, 3), [[2, 6, 2, 2]])
    for mode in ("blocks_first", "depth_first"):
        yield Form(f"depth_to_space {mode}", lambda x, m=mode: o.depth_to_space(x, m, 2), [[1, 8, 3, 2]])
        yield Form(f"depth_to_space 3-D {mode}", lambda x, m=mode: o.depth_to_space(x, m, 2), [[1, 16, 2, 3, 2]])
        yield Form(f"space_to_depth {mode}", lambda x, m=mode: o.space_to_depth(x, m, 2), [[1, 3, 4, 6]])
    yield Form("batch_to_space", lambda x: o.batch_to_space(x, c([1, 1, 2, 2]), c([0, 0, 1, 0]), c([0, 0, 0, 1])), [[8, 3, 2, 2]])
    yield Form("space_to_batch", lambda x: o.space_to_batch(x, c([1, 1, 2, 2]), c([0, 0, 1, 0]), c([0, 0, 1, 1])), [[2, 3, 4, 5]])
    yield Form("slice", lambda x: o8.slice(x, c([1, -1]), c([10, -5]), c([2, -1]), c([0, 2])), [[5, 3, 6]])
    yield Form("strided_slice", lambda x: o.strided_slice(x, c([0, 1, 3]), c([3, 0, 1]), c([2, 1, -1]), [0, 0, 0], [0, 1, 0]), [[4, 5, 6]])
    yield Form("strided_slice, masks", lambda x: o.strided_slice(x, c([0, 1, 0, 2]), c([0, 2, 0, 0]), c([1, 1, 1, 1]), [0] * 4, [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]), [[4, 5, 6]])
    yield Form("strided_slice, last", lambda x: o.strided_slice(x, c([-1, 0]), c([0, 0]), c([1, -1]), [0, 1], [0, 1], [], [1, 0], []), [[4, 5]])
    yield Form("one_hot", lambda x: o.one_hot(x, c(4, I64), c(2, F32), c(-1, F32), 1), [[2, 3]], [I64], low=0, high=6)
    yield Form("eye", lambda x: o.add(x, o.eye(c(3, I64), c(4, I64), c(1, I64), "f32")), [[3, 4]])
    yield Form("shape_of", lambda x: o.shape_of(x, "i32"), [[3, 5]])
    yield Form("non_zero", lambda x: o.non_zero(o.greater(x, c(0, F32)), "i64"), [[3, 5]])


def gathers() -> Iterator[Form]:
    yield Form("gather", lambda x: o.gather(x, c([[0, -1], [2, 1]]), c(1, I64)), [[2, 3, 4]])
    for axis in (1, 2):
        yield Form(f"gather, batches, {axis}", lambda x, a=axis: o.gather(x, c([[0, 2], [1, 1]]), c(a, I64), 1), [[2, 3, 4]])
    yield Form("gather_elements", lambda x: o.gather_elements(x, c([[0, 2, 1], [1, 1, 0]]), 1), [[2, 4]])
    yield Form("gather_nd", lambda x: o.gather_nd(x, c([[0], [2]]), 1), [[2, 3, 4]])
    yield Form("scatter_update", lambda a, b: o.scatter_update(a, c([[0, 3], [2, 1]]), b, c(1, I64)), [[2, 4, 3], [2, 2, 2, 3]])
    yield Form("scatter_elements_update", lambda a, b: o.scatter_elements_update(a, c([[0, 2, 1], [1, -1, 0]]), b, c(1, I64)), [[2, 4], [2, 3]])
    for reduction in ("sum", "prod", "min", "max", "mean"):
        for first in (True, False):
            yield Form(f"scatter_elements_update {reduction} {first}", lambda a, b, r=reduction, f=first: o.scatter_elements_update(a, c([[0, 2, 2], [1, -1, 0]]), b, c(1, I64), r, f), [[2, 4], [2, 3]])
    for reduction in ("none", "sum", "sub", "prod", "min", "max"):
        yield Form(f"scatter_nd_update {reduction}", lambda a, b, r=reduction: o15.scatter_nd_update(a, c([[0], [2]]), b, r), [[4, 3], [2, 3]])
    indices, offsets = c([0, 2, 3, 4], I64), c([0, 2, 2], I64)
    yield Form("embedding_bag_offsets", lambda x: o.embedding_bag_offsets_sum(x, indices, offsets, c(1, I64), c([1, 2, 3, 4], F32)), [[5, 3]])
    yield Form("embedding_bag_offsets, zeros", lambda x: o.embedding_bag_offsets_sum(x, indices, offsets), [[5, 3]])
    yield Form("embedding_bag_packed", lambda x: o.embedding_bag_packed_sum(x, c([[0, 2], [1, 1], [3, 4]], I64), c(np.arange(6).reshape(3, 2), F32)), [[5, 3]])
    yield Form("embedding_segments", lambda x: o.embedding_segments_sum(x, indices, c([0, 0, 2, 2], I64), c(4, I64), c(0, I64), c([1, 2, 3, 4], F32)), [[5, 3]])
    boxes = c([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], F32)
    yield Form("non_max_suppression", lambda x: every(o.non_max_suppression(boxes, x, c(3, I64), c(0.5, F32), c(-1, F32))), [[1, 2, 6]])
    for mode in ("asymmetric", "half_pixel", "half_pixel_for_nn"):
        yield Form(f"roi_align {mode}", lambda x, m=mode: o.roi_align(x, c([[0, 0, 7, 7], [2, 1, 8, 6]], F32), c([0, 1], I32), 3, 4, 2, 0.5, "avg", m), [[2, 3, 9, 8]])
    yield Form("grid_sample", lambda x, g: o.grid_sample(x, g, {"align_corners": True, "mode": "bilinear", "padding_mode": "border"}), [[2, 3, 5, 6], [2, 3, 4, 2]], low=-1.2, high=1.2)


def images() -> Iterator[Form]:
    for mode in ("nearest", "linear", "linear_onnx", "cubic"):
        for position in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
            for extents in ([7, 11], [3, 4]):
                yield Form(f"interpolate {mode} {position} {extents}", lambda x, m=mode, p=position, e=extents: o.interpolate(x, c(e), m, "sizes", coordinate_transformation_mode=p, axes=c([2, 3])), [[1, 2, 5, 8]])
    for rounding in ("round_prefer_ceil", "floor", "ceil", "simple"):
        for scale in (1.7, 0.6):
            yield Form(f"interpolate nearest {rounding} {scale}", lambda x, r=rounding, s=scale: o.interpolate(x, c([s, s], F32), "nearest", "scales", coordinate_transformation_mode="half_pixel", nearest_mode=r, axes=c([2, 3])), [[1, 2, 5, 8]])
    yield Form("interpolate tf_half_pixel_for_nn", lambda x: o.interpolate(x, c([7, 3]), "nearest", "sizes", coordinate_transformation_mode="tf_half_pixel_for_nn", axes=c([2, 3])), [[1, 2, 5, 8]])


def spectra() -> Iterator[Form]:
    yield Form("dft", lambda x: o.dft(x, c([1, 2])), [[2, 4, 5, 2]])
    yield Form("idft", lambda x: o.idft(x, c([1])), [[2, 4, 5, 2]])
    yield Form("dft to extents", lambda x: o.dft(x, c([1, 2]), c([6, 3])), [[2, 4, 5, 2]])
    yield Form("rdft", lambda x: o.rdft(x, c([1, 2])), [[2, 4, 6]])
    yield Form("rdft to extents", lambda x: o.rdft(x, c([1, 2]), c([3, 5])), [[2, 4, 6]])
    yield Form("irdft", lambda x: o.irdft(x, c([1, 2])), [[2, 4, 5, 2]])
    yield Form("irdft to extents", lambda x: o.irdft(x, c([1, 2]), c([4, 7])), [[2, 4, 5, 2]])
    for length, frame, step, transposed in ((16, 16, 4, True), (10, 16, 5, False), (11, 16, 3, True), (7, 13, 6, False)):
        name = f"stft {length} {frame} {step}"
        yield Form(name, lambda x, w, n=frame, s=step, t=transposed: o15.stft(x, w, c(n), c(s), t), [[2, 50], [length]])
    yield Form("stft of one signal", lambda x, w: o15.stft(x, w, c(9), c(9), True), [[31], [9]])
    for center, normalised, wanted in ((False, False, None), (True, True, None), (True, False, 20), (False, True, 70)):
        more = [] if wanted is None else [c(wanted)]
        for extents, length, frame, step in (([2, 9, 9, 2], 11, 16, 3), ([7, 6, 2], 7, 13, 6), ([3, 6, 1, 2], 11, 11, 11)):
            if wanted or not center or extents[-2] > 1:  # else the signal is empty
                yield Form(f"istft {center} {normalised} {wanted} {frame} {step}", lambda x, w, n=frame, s=step, a=(center, normalised), m=more: o16.istft(x, w, c(n), c(s), *a, *m), [extents, [length]], low=0.5)


def beams() -> Iterator[Form]:
    for dtype in (F32, I32):
        yield Form(f"gather_tree {np.dtype(dtype)}", _beams, [[6, 3, 4], [6, 3, 4], [3]], [dtype, dtype, dtype], low=1, high=9)
    yield Form("gather_tree of one beam", _beams, [[5, 4, 1], [5, 4, 1], [4]], [I32] * 3, low=1, high=4)


def _beams(tokens: Any, parents: Any, lengths: Any) -> Any:
    """Tokens and lengths of 1 to 8, of which one is the end token, and parents among the beams."""
    count = tokens.get_output_shape(0)[2]
    kind = tokens.get_output_element_type(0).to_dtype()
    parents = o.mod(o.floor(parents), c(count, kind)) if kind == F32 else o.mod(parents, c(count, kind))
    rest = [o.floor(each) if kind == F32 else each for each in (tokens, lengths)]
    return o.gather_tree(rest[0], parents, rest[1], c(3, kind))


def recurrences() -> Iterator[Form]:
    whole, short = c([5, 5], I32), c([5, 3], I32)
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        x, h = [2, 5, 3], [2, count, 4]
        yield Form(f"lstm {direction}", lambda a, s, q, d=direction, n=count: every(o.lstm_sequence(a, s, q, whole, _weights(n, 16, 3), _weights(n, 16, 4), _weights(n, 16), 4, d)), [x, h, h])
        yield Form(f"gru {direction}", lambda a, s, d=direction, n=count: every(o.gru_sequence(a, s, whole, _weights(n, 12, 3), _weights(n, 12, 4), _weights(n, 16), 4, d, linear_before_reset=True)), [x, h])
        yield Form(f"gru {direction}, lengths", lambda a, s, d=direction, n=count: every(o.gru_sequence(a, s, short, _weights(n, 12, 3), _weights(n, 12, 4), _weights(n, 12), 4, d)), [x, h])
        yield Form(f"rnn {direction}", lambda a, s, d=direction, n=count: every(o.rnn_sequence(a, s, whole, _weights(n, 4, 3), _weights(n, 4, 4), _weights(n, 4), 4, d)), [x, h])
    yield Form("lstm_cell", lambda x, h, q: every(o.lstm_cell(x, h, q, _weights(16, 3), _weights(16, 4), _weights(16), 4)), [[2, 3], [2, 4], [2, 4]])
    for linear in (True, False):
        yield Form(f"gru_cell {linear}", lambda x, h, b=linear: o.gru_cell(x, h, _weights(12, 3), _weights(12, 4), _weights(16 if b else 12), 4, linear_before_reset=b), [[2, 3], [2, 4]])
    yield Form("rnn_cell", lambda x, h: o.rnn_cell(x, h, _weights(4, 3), _weights(4, 4), _weights(4), 4, ["tanh"], [], []), [[2, 3], [2, 4]])
    for backwards in (False, True):
        yield Form(f"tensor_iterator backwards={backwards}", lambda x, h, b=backwards: _iterated(x, h, b), [[2, 5, 4], [2, 1, 4]])
    yield Form("loop", _looped, [[2, 4], [3, 2, 4]])
    yield Form("if", _chosen, [[], [2, 3]])


def _iterated(x: Any, hidden: Any, backwards: bool) -> list[Any]:
    slice_, carried = (o.parameter([2, 1, 4], F32) for _ in range(2))
    step = o.tanh(o.add(slice_, carried))
    loop = o.tensor_iterator()
    loop.set_body(openvino.Model([step], [slice_, carried], "step"))
    ends = (-1, -1, 1, 0) if backwards else (0, 1, 1, -1)
    loop.set_sliced_input(slice_, x.output(0), *ends, 1)
    loop.set_merged_input(carried, hidden.output(0), step.output(0))
    return [loop.get_iter_value(step.output(0), -1), loop.get_concatenated_slices(step.output(0), *ends, 1)]


def _looped(x: Any, table: Any) -> list[Any]:
    number, carried, rows = o.parameter([1], I64), o.parameter([2, 4], F32), o.parameter([3, 2, 4], F32)
    row = o.reshape(o.gather(rows, number, c(0, I64)), c([2, 4]), False)
    step = o.add(o.multiply(carried, c(0.5, F32)), row)
    kept = o.unsqueeze(step, c([0]))
    loop = o.loop(c(3, I64), c(True))
    loop.set_function(openvino.Model([c(True), step, kept], [number, carried, rows], "step"))
    loop.set_special_body_ports([0, 0])
    loop.set_invariant_input(rows, table.output(0))
    loop.set_merged_input(carried, x.output(0), step.output(0))
    return [loop.get_iter_value(step.output(0), -1), loop.get_concatenated_slices(kept.output(0), 0, 1, 1, -1, 0)]


def _chosen(number: Any, x: Any) -> list[Any]:
    one, other = o.parameter([2, 3], F32), o.parameter([2, 3], F32)
    then, otherwise = openvino.Model([o.exp(one)], [one], "then"), openvino.Model([o.relu(other)], [other], "else")
    branch = o.if_op(o.greater(number, c(0, F32)).output(0))
    branch.set_then_body(then)
    branch.set_else_body(otherwise)
    branch.set_input(x.output(0), one, other)
    return [branch.set_output(then.get_results()[0], otherwise.get_results()[0])]


GROUPS = (unary, binary, products, convolutions, pools, norms, reductions, moves, gathers, images, spectra, beams, recurrences)
