"""Forms of ONNX operators that move, choose and order elements, resample, quantise, recur and attend."""

# ruff: noqa: E501 - tables, one form a line

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.integration.onnx_forms import BF16, F16, F32, F64, INF, NAN, Form, Values

I64 = np.int64


def moves() -> Iterator[Form]:
    for dtype in (F32, F16, BF16, np.int64, np.uint8, bool):
        v = Values("moves", dtype)
        x = (v.floats(3, 4, 5, dtype=dtype) if np.dtype(dtype).kind in "fV" or dtype == BF16
             else v.ints(3, 4, 5, dtype=dtype, low=0))
        yield Form("Transpose", [x], {"perm": [2, 0, 1]})
        yield Form("Concat", [x, x[:, :1]], {"axis": 1})
        yield Form("Slice", [x, *map(_i, ([-1, 0], [-9, 4], [0, 2], [-2, 2]))], constants=(1, 2, 3, 4))
        yield Form("Gather", [x, np.array([[0, -1], [2, 1]])], {"axis": -2})
        yield Form("Tile", [x, _i([2, 1, 3])], constants=(1,))
        yield Form("Expand", [x[:, :1], _i([2, 1, 4, 1])], constants=(1,))
        yield Form("Split", [x], {"axis": 2, "num_outputs": 3}, outputs=("a", "b", "c"), version=18)
        yield Form("Split", [x, _i([1, 3])], {"axis": 1}, constants=(1,), outputs=("a", "b"), version=18)
        yield Form("Trilu", [x, _i(1)], {"upper": 0}, constants=(1,))
        yield Form("Trilu", [x, _i(-1)], {"upper": 1}, constants=(1,))
        yield Form("Trilu", [x], {})
        yield Form("Reshape", [x, _i([0, -1, 2])], constants=(1,))
        yield Form("Flatten", [x], {"axis": -1})
        yield Form("Flatten", [x], {"axis": 0})
    x = Values("x").floats(3, 4, 5)
    for starts, ends, axes, steps in (([3], [0], [1], [-1]), ([-1], [-100], [2], [-1]), ([1], [1000], [0], [1]),
                                      ([0, 1], [3, -1], [0, 2], [2, 3]), ([10], [-10], [1], [-3]),
                                      ([3], [-(1 << 63)], [2], [-(1 << 63)]), ([1], [5], [2], [(1 << 63) - 1]),
                                      ([-1], [-9], [1], [-4]), ([0], [(1 << 63) - 1], [1], [4])):
        yield Form("Slice", [x, *map(_i, (starts, ends, axes, steps))], constants=(1, 2, 3, 4))
    yield Form("Slice", [x, *map(_i, ([1], [2]))], constants=(1, 2))
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ([0, 1, 2, 0, 2, 1], [1, 0, 0, 2, 3, 0]):
            yield Form("Pad", [x, _i(pads)], {"mode": mode}, constants=(1,), version=19)
        yield Form("Pad", [x, _i([1, 2]), None, _i([-1])], {"mode": mode}, constants=(1, 3), version=19)
        if mode == "constant":
            yield Form("Pad", [x[0], _i([1, -1, 2, -2])], {"mode": mode}, constants=(1,), version=19,
                       expected=lambda x, pads: np.pad(x[:, 1:-2], ((1, 2), (0, 0))))
            yield Form("Pad", [x[0], _i([-1, -1, 0, -2])], {"mode": mode}, constants=(1,), version=19,
                       expected=lambda x, pads: x[1:, 1:-2])
        yield Form("Pad", [x, _i([0, 0, 2, 0, 0, 1])], {"mode": mode}, constants=(1,), version=13 if mode != "wrap" else 19)
    yield Form("Pad", [x, _i([1, 0, 0, 0, 0, 2]), np.array(1.5, F32)], constants=(1,), version=19)
    yield Form("Pad", [x, _i([1, 0, 0, 0, 0, 2]), np.array(-INF, F32)], constants=(1, 2), version=19)
    yield Form("Pad", [Values(0).ints(3, 4, dtype=I64), _i([1, 0, 0, 2]), np.array(7, I64)], constants=(1, 2), version=19)
    for mode in ("DCR", "CRD"):
        yield Form("DepthToSpace", [Values(0).floats(2, 8, 3, 5)], {"blocksize": 2, "mode": mode})
    yield Form("SpaceToDepth", [Values(0).floats(2, 3, 4, 6)], {"blocksize": 2})
    index = np.array([[[0, -1, 2, 1, -3]], [[1, 0, 0, -2, 2]]])
    for axis in (0, -3):
        yield Form("GatherElements", [x, index], {"axis": axis})
    yield Form("GatherElements", [x, np.array([[[4, -5], [0, 1]]])], {"axis": 2})
    yield Form("GatherND", [x, np.array([[0, 1], [-1, -2]])], {})
    yield Form("GatherND", [x, np.array([[[0, -1]], [[3, 2]], [[-4, 1]]])], {"batch_dims": 1})
    yield Form("GatherND", [x, np.array([[2, 3, -1], [0, 0, 0]])], {})
    for reduction in ("none", "add", "mul", "max", "min"):
        for dtype in (F32, F16, np.int32):
            v = Values(reduction, dtype)
            data = v.floats(3, 4, dtype=dtype) if np.dtype(dtype).kind == "f" else v.ints(3, 4, dtype=dtype)
            news = v.floats(2, 4, dtype=dtype) if np.dtype(dtype).kind == "f" else v.ints(2, 4, dtype=dtype)
            places = np.array([[0, -1, 2, 1], [1, 0, -3, 2]])
            yield Form("ScatterElements", [data, places, news], {"axis": 0, "reduction": reduction}, version=18)
            if reduction != "none":
                yield Form("ScatterElements", [data, places * 0 + 1, news], {"axis": 0, "reduction": reduction}, version=18,
                           relative=4e-6)
            yield Form("ScatterElements", [data, np.array([[0, -1], [-2, 0]]), news[:, :2]], {"axis": 1, "reduction": reduction},
                       version=18) if reduction == "none" else Form(
                "ScatterElements", [data, np.array([[-1, -1], [2, 0]]), news[:, :2]], {"axis": 1, "reduction": reduction},
                version=18)
            yield Form("ScatterND", [data, np.array([[2], [-3]]), news], {"reduction": reduction}, version=18)
            yield Form("ScatterND", [data, np.array([[2, 1], [-1, -4]]), news[0, :2]], {"reduction": reduction}, version=18)
            if reduction != "none":
                yield Form("ScatterND", [data, np.array([[2], [-1]]), news], {"reduction": reduction}, version=18, relative=4e-6)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            for axis in (0, -1):
                for dtype in (F32, F64, np.int32, np.int64, F16):
                    v = Values("cumsum", dtype)
                    data = v.floats(3, 7, dtype=dtype) if np.dtype(dtype).kind == "f" else v.ints(3, 7, dtype=dtype)
                    yield Form("CumSum", [data, np.array(axis)], {"exclusive": exclusive, "reverse": reverse}, constants=(1,),
                               version=14, mixed=True)
    for largest in (0, 1):
        for axis in (0, -1):
            for dtype in (F32, F16, np.int32, np.int64, np.uint8):
                data = Values("topk", axis).ints(5, 6, low=0, high=3).astype(dtype)
                yield Form("TopK", [data, _i([3])], {"axis": axis, "largest": largest}, constants=(1,), outputs=("v", "i"),
                           version=11)
    data = np.array([[3, -1, INF, -INF, 2, 2, -1, 0]], F32)
    unordered = np.array([[3, NAN, INF, -INF], [NAN, 2, NAN, 0]], F32)
    for largest in (0, 1):
        for dtype in (F32, F16):
            yield Form("TopK", [unordered.astype(dtype), _i([3])], {"largest": largest}, constants=(1,), outputs=("v", "i"),
                       version=11, expected=_top_of_nan(largest))
        yield Form("TopK", [data, _i([8])], {"largest": largest}, constants=(1,), outputs=("v", "i"), version=11)
        yield Form("TopK", [np.array([[0, 200, 255, 3, 127, 128]], np.uint8), _i([6])], {"largest": largest}, constants=(1,),
                   outputs=("v", "i"), version=11)
        yield Form("TopK", [np.array([[0, -(2**31), 2**31 - 1, 3]], np.int32), _i([4])], {"largest": largest},
                   constants=(1,), outputs=("v", "i"), version=11)
    for axis in (-1, 0, 1):
        for kind in (np.int64, np.int32, F32):
            yield Form("OneHot", [np.array([[0, 2], [-1, -4], [3, 1]]).astype(kind), _i(4), np.array([-1.5, 2.5], F32)],
                       {"axis": axis}, constants=(1,), wide=False)
    yield Form("OneHot", [np.array([0, 2, 9, -9]), _i(4), np.array([0, 3], I64)], {}, constants=(1,), wide=False)
    yield Form("EyeLike", [Values(0).floats(3, 5)], {"k": 1}, wide=False)
    yield Form("EyeLike", [Values(0).floats(3, 5)], {"k": -2, "dtype": 7}, wide=False)
    yield Form("Range", [np.array(1.0, F32), np.array(9, F32), np.array(1.5, F32)], constants=(0, 1, 2))
    yield Form("Range", [np.array(9), np.array(-3), np.array(-2)], constants=(0, 1, 2))
    yield Form("Shape", [x], {"start": -2}, version=19, wide=False)
    yield Form("Size", [x], wide=False)
    yield Form("ReverseSequence", [Values(0).floats(4, 3, 2), np.array([4, 1, 2])], {"time_axis": 0, "batch_axis": 1})
    yield Form("ReverseSequence", [Values(0).floats(3, 4, 2), np.array([4, 1, 2])], {"time_axis": 1, "batch_axis": 0})
    yield Form("CenterCropPad", [x, _i([5, 3])], {"axes": [0, -1]}, constants=(1,), version=18)
    yield Form("Col2Im", [Values(0).floats(1, 2 * 4, 12), _i([4, 5]), _i([2, 2])], {}, constants=(1, 2), version=18)
    yield Form("Col2Im", [Values(0).floats(1, 2 * 4, 12), _i([5, 6]), _i([2, 2])], {"strides": [1, 2]},
               constants=(1, 2), version=18)
    yield Form("Det", [Values(0).floats(3, 4, 4)], version=11, relative=1e-5, mixed=True)
    yield Form("Squeeze", [x[:, :1], _i([1])], constants=(1,))
    yield Form("Unsqueeze", [x, _i([0, -1])], constants=(1,))
    for op in ("NonZero", "Unique"):
        yield Form(op, [np.array([1.0, 0, 2, 2], F32)])
    for condition in ([True, False, True], [False, True]):
        yield Form("Compress", [x, np.array(condition)], {"axis": 0}, constants=(1,))
    yield Form("Compress", [x, np.array([True, False] * 9)], {}, constants=(1,))
    for size in (1, 5, 8):
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
            for periodic in (0, 1):
                if size > 1:
                    yield Form(op, [np.array(size)], {"periodic": periodic}, constants=(0,), wide=False, version=17, mixed=True)
    signal = Values("dft").floats(2, 9, 1)
    for inverse in (0, 1):
        for onesided in (0, 1):
            if not (inverse and onesided):
                yield Form("DFT", [signal if not inverse else np.concatenate([signal, signal[:, ::-1]], -1), None, _i(1)],
                           {"inverse": inverse, "onesided": onesided}, constants=(2,), version=20, relative=4e-6, mixed=True)


def _top_of_nan(largest: int) -> Any:
    """NaN is larger than all numbers, as where numpy sorts; the first of equal ones comes first."""
    def calculate(x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = np.where(np.isnan(x), 10.0, np.clip(x.astype(F64), -9, 9))
        places = np.argsort(-keys if largest else keys, axis=-1, kind="stable")[:, : int(k[0])]
        return np.take_along_axis(x, places, -1), places
    return calculate


def _i(value: Any) -> np.ndarray:
    return np.array(value, np.int64)


def resamples() -> Iterator[Form]:
    x = Values("resize").floats(1, 2, 5, 4)
    transforms = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
    for transform in transforms:
        common = {"coordinate_transformation_mode": transform}
        for sizes in ([1, 2, 8, 7], [1, 2, 3, 2], [1, 2, 1, 9], [1, 2, 10, 8]):
            for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                yield Form("Resize", [x, None, None, _i(sizes)], {**common, "mode": "nearest", "nearest_mode": nearest},
                           constants=(3,), version=19)
            yield Form("Resize", [x, None, None, _i(sizes)], {**common, "mode": "linear"}, constants=(3,), version=19, mixed=True)
            if transform == "pytorch_half_pixel" and 1 in sizes[2:]:
                continue  # where the specification has 0, the reference of the ONNX package has −0.5
            for a in (-0.75, -0.5):
                yield Form("Resize", [x, None, None, _i(sizes)], {**common, "mode": "cubic", "cubic_coeff_a": a},
                           constants=(3,), version=19, mixed=True)
        for scales in ([1, 1, 2, 1.7], [1, 1, 0.7, 0.5], [1, 1, 2, 3]):
            s = np.array(scales, F32)
            for nearest in ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"):
                yield Form("Resize", [x, None, s], {**common, "mode": "nearest", "nearest_mode": nearest}, constants=(2,),
                           version=19)
            yield Form("Resize", [x, None, s], {**common, "mode": "linear"}, constants=(2,), version=19, mixed=True, relative=4e-6)
            yield Form("Resize", [x, None, s], {**common, "mode": "cubic"}, constants=(2,), version=19, mixed=True, relative=4e-6)
    for mode in ("linear", "cubic"):
        yield Form("Resize", [x, None, None, _i([1, 2, 3, 2])], {"mode": mode, "antialias": 1}, constants=(3,), version=19, mixed=True)
        yield Form("Resize", [x, None, None, _i([1, 2, 3, 2])], {"mode": mode, "exclude_outside": 1}, constants=(3,), version=19,
                   mixed=True)
    yield Form("Resize", [x, np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], F32), None, _i([1, 2, 3, 6])],
               {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0},
               constants=(1, 3), version=19, mixed=True)
    yield Form("Resize", [x, None, None, _i([7, 9])], {"mode": "linear", "axes": [2, 3]}, constants=(3,), version=19, mixed=True)
    for rank in (1, 3):
        y = Values("resize", rank).floats(1, 2, *(5, 4, 3)[:rank])
        for mode in ("nearest", "linear"):
            yield Form("Resize", [y, None, None, _i([1, 2, *(8, 7, 4)[:rank]])], {"mode": mode}, constants=(3,), version=19, mixed=True)
    for mode in ("nearest", "linear"):
        yield Form("Upsample", [x, np.array([1, 1, 2, 3], F32)], {"mode": mode}, constants=(1,), version=9,
                   expected=_upsample(mode), mixed=True)
    for align in (0, 1):
        grid = Values("grid", align).floats(1, 3, 5, 2, low=-1.4, high=1.4)
        for padding in ("zeros", "border", "reflection"):
            for mode in ("linear", "nearest", "cubic"):
                yield Form("GridSample", [x, grid], {"align_corners": align, "padding_mode": padding, "mode": mode}, version=20,
                           mixed=True, relative=1e-5)
        theta = Values("theta").floats(2, 2, 3)
        yield Form("AffineGrid", [theta, _i([2, 3, 5, 4])], {"align_corners": align}, constants=(1,), version=20, mixed=True)
        yield Form("AffineGrid", [Values("theta").floats(1, 3, 4), _i([1, 3, 3, 5, 4])], {"align_corners": align}, constants=(1,),
                   version=20, mixed=True)
    rois = np.array([[0, 0, 3, 4], [1, 0.5, 2.5, 3.5]], F32)
    for mode in ("avg", "max"):
        for transform in ("half_pixel", "output_half_pixel"):
            yield Form("RoiAlign", [x, rois, _i([0, 0])], {"mode": mode, "coordinate_transformation_mode": transform,
                       "output_height": 3, "output_width": 2, "sampling_ratio": 2}, version=16, mixed=True, relative=1e-5)


def _upsample(mode: str) -> Any:
    def calculate(x: np.ndarray, scales: np.ndarray) -> np.ndarray:
        form = Form("Resize", [x, None, scales], {"mode": mode, "coordinate_transformation_mode": "asymmetric",
                                                  "nearest_mode": "floor"}, version=19)
        return form.reference()[1][0].astype(x.dtype)
    return calculate


def quantised() -> Iterator[Form]:
    halves = np.array([-300, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 126.5, 127.5, 254.5, 255.5, 400, 0.3, -128.5], F32)
    for kind in (np.uint8, np.int8, np.uint16, np.int16):
        for zero in (0, 7):
            for scale in (1.0, 0.5, 0.1):
                uneven = Values("q", kind).floats(23, low=-30, high=30)
                x = uneven if scale == 0.1 else (halves * scale).astype(F32)
                yield Form("QuantizeLinear", [x, np.array(scale, F32), np.array(zero, kind)], wide=False, version=21,
                           expected=_quantise)
        x = Values("q", kind).floats(3, 4, 5, low=-60, high=60)
        s, z = np.array([0.5, 0.3, 1.0, 2.0], F32), np.array([0, 3, 5, 100], kind)
        yield Form("QuantizeLinear", [x, s, z], {"axis": 1}, wide=False, version=21, expected=_per_axis(_quantise))
        info = np.iinfo(kind)
        q = Values("dq", kind).ints(3, 4, 5, dtype=np.int64, low=max(info.min, -30000), high=min(info.max, 60000)).astype(kind)
        yield Form("DequantizeLinear", [q, s, z], {"axis": 1}, wide=False, version=21, expected=_per_axis(_dequantise))
        yield Form("DequantizeLinear", [q, s[0], z[1]], wide=False, version=21, expected=_dequantise)
        yield Form("DequantizeLinear", [q, s[1]], wide=False, version=21, expected=_dequantise)
    yield Form("DequantizeLinear", [Values("dq").ints(3, 5, low=-70000, high=70000), np.array(0.3, F32)], wide=False,
               expected=_dequantise, version=21)
    near_half = np.array([0, 2, -3, -2.5, 1.34, 0.5], F32)
    for x in (Values("d").floats(3, 7), Values("d").floats(9, low=1), Values("d").floats(9, low=-3, high=-1), near_half):
        yield Form("DynamicQuantizeLinear", [x], outputs=("y", "s", "z"), version=11, wide=False)


def _quantise(x: np.ndarray, s: np.ndarray, z: np.ndarray) -> np.ndarray:
    info = np.iinfo(z.dtype)
    return np.clip(np.rint(x / s).astype(np.float64) + z, info.min, info.max).astype(z.dtype)


def _dequantise(x: np.ndarray, s: np.ndarray, z: np.ndarray | int = 0) -> np.ndarray:
    return ((x.astype(np.int64) - np.asarray(z, np.int64)).astype(F32) * s).astype(F32)


def _per_axis(function: Any) -> Any:
    return lambda x, s, z: function(x, s.reshape(1, -1, 1), z.reshape(1, -1, 1))


def recurrent() -> Iterator[Form]:
    steps, batch, width, hidden = 5, 3, 4, 2
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction in ("forward", "reverse", "bidirectional"):
            ways = 2 if direction == "bidirectional" else 1
            v = Values(op, direction)
            x = v.floats(steps, batch, width, low=-1, high=1)
            w, r = v.floats(ways, gates * hidden, width, low=-1, high=1), v.floats(ways, gates * hidden, hidden, low=-1, high=1)
            b = v.floats(ways, 2 * gates * hidden, low=-1, high=1)
            h, c = v.floats(ways, batch, hidden, low=-1, high=1), v.floats(ways, batch, hidden, low=-1, high=1)
            outputs = ("y", "h", "c") if op == "LSTM" else ("y", "h")
            common: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
            extra = [{"linear_before_reset": 1}, {"linear_before_reset": 0}] if op == "GRU" else [{}]
            for more in extra:
                a = {**common, **more}
                plain = {"version": 14, "relative": 5e-6, "mixed": True, "outputs": outputs}
                yield Form(op, [x, w, r], a, constants=(1, 2), **plain)
                yield Form(op, [x, w, r, b], a, constants=(1, 2, 3), **plain)
                yield Form(op, [x, w, r, b, None, h, *([c] if op == "LSTM" else [])], a, constants=(1, 2, 3), **plain)
                yield Form(op, [x, w, r, b], {**a, "layout": 1} if direction == "forward" else a, **plain)
                if op == "LSTM":
                    p = v.floats(ways, 3 * hidden, low=-1, high=1)
                    yield Form(op, [x, w, r, b, None, h, c, p], a, **plain)
                # The reference of the ONNX package overlooks shorter ones, `clip`, `input_forget` and activations: those
                # are compared with numpy in tests/unit/compiler/frontends/test_onnx_cells.py.
                yield Form(op, [x, w, r, b, np.array([5, 5, 5], np.int32)], a, constants=(4,), **plain)


def attends() -> Iterator[Form]:
    v = Values("attention")
    q, k, u = v.floats(2, 4, 3, 8), v.floats(2, 4, 5, 8), v.floats(2, 4, 5, 6)
    mask = v.floats(3, 5)
    plain: dict[str, Any] = {"version": 23, "relative": 5e-6, "mixed": True}
    for a in ({}, {"scale": 0.3}, {"is_causal": 1}, {"softcap": 2.0}, {"softmax_precision": 1}):
        yield Form("Attention", [q, k, u], a, **plain)
        if "is_causal" not in a:
            yield Form("Attention", [q, k, u, mask], a, **plain)
    yield Form("Attention", [q, k, u, np.array(v.bools(3, 5) | (np.arange(5) == 0))], {}, **plain)
    yield Form("Attention", [q, k[:, :2], u[:, :2]], {}, **plain)
    yield Form("Attention", [v.floats(2, 3, 32), v.floats(2, 5, 16), v.floats(2, 5, 16)], {"q_num_heads": 4, "kv_num_heads": 2},
               **plain)
    half = [a.astype(F16) for a in (q, k, u)]
    yield Form("Attention", half, {}, **plain)
    x, cos, sin = v.floats(2, 3, 4, 8), v.floats(10, 4), v.floats(10, 4)
    ids = np.array([[0, 1, 2, 3], [5, 6, 7, 9]])
    for interleaved in (0, 1):
        yield Form("RotaryEmbedding", [x, cos, sin, ids], {"interleaved": interleaved}, **plain)
    for reduction in ("mean", "sum", "none"):
        target = np.array([1, 0, 4])
        scores = v.floats(3, 5)
        deep, places = v.floats(2, 5, 3), np.array([[0, 1, 4], [2, 2, 3]])
        for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
            for weights in (None, v.floats(5, low=0.2)):
                tail = [] if weights is None else [weights]
                for ignore in ({}, {"ignore_index": 4}):
                    a = {"reduction": reduction, **ignore}
                    yield Form(op, [scores, target, *tail], a, version=13, relative=4e-6, mixed=True)
                    yield Form(op, [deep, places, *tail], a, version=13, relative=4e-6, mixed=True)
    near = np.array([NAN, 1.0, 2.0], F32)
    yield Form("Softmax", [near], version=13)
    yield Form("TensorScatter", [v.floats(2, 3, 5, 4), v.floats(2, 3, 2, 4), np.array([1, 3])], {}, version=24)
    yield Form("MaxUnpool", [v.floats(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])], {"kernel_shape": [2, 2], "strides": [2, 2]})
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], F32)
    yield Form("NonMaxSuppression", [boxes, np.array([[[0.9, 0.75, 0.6]]], F32), _i([3]), np.array([0.5], F32), np.array([0.0], F32)])
    yield Form("BitCast", [v.floats(3, 4)], {"to": 6}, version=26, wide=False)
    yield Form("CumProd", [v.floats(3, 4), _i(1)], {}, constants=(1,), version=26)
    yield Form("DeformConv", [v.floats(1, 2, 5, 5), v.floats(3, 2, 2, 2), v.floats(1, 8, 4, 4)], version=22, mixed=True)
    yield Form("MelWeightMatrix", [_i(8), _i(16), _i(8192), np.array(0, F32), np.array(4096, F32)], constants=(0, 1, 2, 3, 4),
               version=17, wide=False)
    yield Form("STFT", [v.floats(1, 32, 1), _i(8), v.floats(16, low=0.1), _i(16)], constants=(1, 3), version=17, mixed=True)
    yield Form("Gather", [v.floats(3, 4).astype(F64), np.array([-1, 0])])
