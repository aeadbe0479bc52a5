"""Forms of ONNX operators at the edges of what they take: the ends of integer types, pads that cancel, rows of zeros,
infinite weights, sums that do not fit a narrow type, blocks and zero points in every arrangement, nothing at all.

What is expected is worked out by numpy in float64, or in integers without end.
"""

# ruff: noqa: E501 - tables, one form a line

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.integration.onnx_forms import BF16, F16, F32, F64, FLOATS, INF, NAN, Form, Values

_INTEGERS = (np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64)


def edges() -> Iterator[Form]:
    yield from _bounds()
    yield from _signs()
    yield from _shifts()
    yield from _blocks()
    yield from _pads()
    yield from _norms()
    yield from _overflows()
    yield from _transposed()
    yield from _quantised()
    yield from _empty()


def _i(value: Any) -> np.ndarray:
    return np.array(value, np.int64)


def _ends(dtype: Any, *shape: int) -> np.ndarray:
    """Integers of the whole range of a type, its ends among them."""
    info = np.iinfo(dtype)
    found = Values("ends", dtype).generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    found.flat[:2] = info.max, info.min
    return found


def _bounds() -> Iterator[Form]:
    for dtype in _INTEGERS:
        x, info = _ends(dtype, 3, 5), np.iinfo(dtype)
        least, most = np.array(info.max // 4, dtype), np.array(info.max - info.max // 4, dtype)
        for given in ([], [least], [None, most], [least, most], [most, least]):
            for constants in ((), tuple(1 + n for n, bound in enumerate(given) if bound is not None)):
                if given or not constants:
                    yield Form("Clip", [x, *given], constants=constants, version=13, expected=_clip)
    for dtype in FLOATS:
        x = np.array([INF, -INF, NAN, 0, 1, 7], np.float64).astype(dtype)
        for given in ([], [np.array(0.5, dtype)], [None, np.array(2, dtype)], [np.array(3, dtype), np.array(2, dtype)]):
            yield Form("Clip", [x, *given], version=13, expected=_clip)


def _signs() -> Iterator[Form]:
    for dtype in _INTEGERS[:4]:
        x = _ends(dtype, 3, 5)
        yield Form("Abs", [x], version=13)
        yield Form("Sign", [x], version=13, expected=lambda x: np.minimum(x, 1))


def _clip(x: np.ndarray, least: np.ndarray | None = None, most: np.ndarray | None = None) -> np.ndarray:
    x = x if least is None else np.maximum(x, least)
    return x if most is None else np.minimum(x, most)


def _shifts() -> Iterator[Form]:
    for dtype in _INTEGERS:
        info = np.iinfo(dtype)
        signed = info.min < 0
        x = _ends(dtype, 3, 5)
        given = [0, 1, info.bits - 1, info.bits, info.bits + 1, info.max, *([-1, -3] if signed else [])]
        places = np.array([given[n % len(given)] for n in range(15)], dtype)
        for direction in ("LEFT", "RIGHT"):
            yield Form("BitShift", [x, places.reshape(3, 5)], {"direction": direction},
                       version=28 if signed else 11, expected=_shift(direction == "LEFT"))


def _shift(left: bool) -> Callable[..., np.ndarray]:
    def calculate(x: np.ndarray, places: np.ndarray) -> np.ndarray:
        bits = np.iinfo(x.dtype).bits
        found: list[int] = []
        for value, by in zip(x.ravel().tolist(), places.ravel().tolist(), strict=True):
            beyond = not 0 <= by < bits
            moved = (0 if beyond else value << by) if left else (-1 if value < 0 else 0) if beyond else value >> by
            found.append(moved % (1 << bits))
        return np.array(found, np.uint64).astype(f"u{x.dtype.itemsize}").view(x.dtype).reshape(x.shape)
    return calculate


def _blocks() -> Iterator[Form]:
    for dtype in (F32, F16, np.uint8):
        for channels, block in ((4, 2), (8, 2), (12, 2), (18, 3), (9, 3), (5, 1)):
            x = np.arange(2 * channels * 15).reshape(2, channels, 3, 5).astype(dtype)
            for mode in ("DCR", "CRD"):
                yield Form("DepthToSpace", [x], {"blocksize": block, "mode": mode}, version=13, expected=_to_space(block, mode))
        for channels, block in ((1, 2), (3, 2), (4, 2), (2, 3)):
            x = np.arange(2 * channels * 6 * block**2).reshape(2, channels, 2 * block, 3 * block).astype(dtype)
            for mode in ("DCR", "CRD"):
                yield Form("SpaceToDepth", [x], {"blocksize": block, **({} if mode == "DCR" else {"mode": mode})},
                           version=13 if mode == "DCR" else 28, expected=_to_depth(block, mode))


def _to_space(block: int, mode: str) -> Callable[[np.ndarray], np.ndarray]:
    def calculate(x: np.ndarray) -> np.ndarray:
        result = np.zeros((x.shape[0], x.shape[1] // block**2, x.shape[2] * block, x.shape[3] * block), x.dtype)
        for c, i, j in np.ndindex(result.shape[1], block, block):
            source = (i * block + j) * result.shape[1] + c if mode == "DCR" else (c * block + i) * block + j
            result[:, c, i::block, j::block] = x[:, source]
        return result
    return calculate


def _to_depth(block: int, mode: str) -> Callable[[np.ndarray], np.ndarray]:
    def calculate(x: np.ndarray) -> np.ndarray:
        parts = {(c, i, j): x[:, c, i::block, j::block] for c, i, j in np.ndindex(x.shape[1], block, block)}
        order = sorted(parts, key=lambda p: (p[1], p[2], p[0]) if mode == "DCR" else p)
        return np.stack([parts[place] for place in order], 1)
    return calculate


def _pads() -> Iterator[Form]:
    x = Values("pads").floats(4, 5)
    for pads in ([1, 0, -1, 0], [-1, 2, 1, -2], [0, -1, 0, 1], [-2, 0, 2, 0], [1, 2, 0, 1], [-4, 0, 4, 0], [-1, -1, -1, -1]):
        for constants in ((1,), ()):
            for mode in ("constant", "edge", "reflect", "wrap"):
                if mode == "constant" or pads[0] > -4:
                    yield Form("Pad", [x, _i(pads)], {"mode": mode}, constants=constants, version=19, expected=_padded(pads, mode))
            for dtype in (np.uint8, np.int64, F16, bool):
                yield Form("Pad", [x.astype(dtype), _i(pads), np.array(1, dtype)], constants=constants, version=19,
                           expected=_padded(pads, "constant"))
            yield Form("Pad", [x, _i(pads[1::2]), None, _i([-1])], constants=(*constants, 3), version=19,
                       expected=_padded([0, pads[1], 0, pads[3]], "constant"))
        yield Form("Pad", [x, _i(pads[1::2]), None, _i([-1])], version=19,
                   expected=_padded([0, pads[1], 0, pads[3]], "constant"))
        yield Form("Pad", [x], {"pads": pads, "value": 1.5}, version=2, expected=lambda x, p=pads: _pad(x, p, "constant", 1.5))


def _padded(pads: list[int], mode: str) -> Callable[..., np.ndarray]:
    def calculate(x: np.ndarray, _pads: np.ndarray, value: np.ndarray | None = None, *_axes: Any) -> np.ndarray:
        return _pad(x, pads, mode, 0 if value is None else value)
    return calculate


def _pad(x: np.ndarray, pads: list[int], mode: str, value: Any) -> np.ndarray:
    """What is negative is removed first."""
    sides = np.array(pads).reshape(2, -1).T.tolist()
    left = x[tuple(slice(max(0, -low), size - max(0, -high)) for (low, high), size in zip(sides, x.shape, strict=True))]
    more = {"constant_values": value} if mode == "constant" else {}
    return np.pad(left, [(max(0, low), max(0, high)) for low, high in sides], mode=mode, **more)  # type: ignore[call-overload]


def _norms() -> Iterator[Form]:
    for dtype in FLOATS:
        v = Values("rows", dtype)
        x = v.floats(3, 4, 5, dtype=dtype)
        x[1], x[0, 2], x[2, :, 3] = 0, 0, 0
        for axis in (0, 1, -1):
            for p in (1, 2):
                for version in (13, 22) if dtype == F32 else (22,):
                    yield Form("LpNormalization", [x], {"axis": axis, "p": p}, version=version, expected=_unit(axis, p))
                    yield Form("LpNormalization", [x], {"axis": axis, "p": p}, constants=(0,), version=version, expected=_unit(axis, p))
        y, scale, shift = (v.floats(*shape, dtype=dtype, low=0.5) for shape in ((3, 4, 5), (5,), (5,)))
        if dtype == F64:
            continue  # the statistics are of float32, as `stash_type` says
        near: dict[str, Any] = {"mixed": dtype == F32, "relative": 4e-6}  # narrow types are held to each element
        for given in ([y, scale, shift], [y, scale], [y * 0, scale, shift]):
            yield Form("LayerNormalization", given, version=17, expected=_layer_norm, **near)
        yield Form("RMSNormalization", [y, scale], version=23, expected=_root_mean_square, **near)


def _unit(axis: int, p: int) -> Callable[[np.ndarray], np.ndarray]:
    def calculate(x: np.ndarray) -> np.ndarray:
        wide = x.astype(F64)
        norm = np.linalg.norm(wide, p, axis, keepdims=True)
        return (wide / np.where(norm == 0, 1, norm)).astype(x.dtype)
    return calculate


_EPSILON = float(np.float32(1e-5))


def _root_mean_square(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    wide = x.astype(F64)
    return (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + _EPSILON) * scale.astype(F64)).astype(x.dtype)


def _layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray | None = None) -> np.ndarray:
    wide = x.astype(F64)
    unit = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + _EPSILON)
    return (unit * scale.astype(F64) + (0 if shift is None else shift.astype(F64))).astype(x.dtype)


def _overflows() -> Iterator[Form]:
    """Sums, squares and products that do not fit float16, of results that do."""
    x = Values("overflow").floats(1, 3, 20, 30, low=200, high=300, dtype=F16)
    wide = x.astype(F64)
    both = (2, 3)
    reductions = {"ReduceMean": wide.mean(both), "ReduceL2": np.sqrt((wide**2).sum(both)), "ReduceLogSum": np.log(wide.sum(both))}
    for op, exact in reductions.items():
        yield Form(op, [x, _i([2, 3])], {"keepdims": 0}, constants=(1,), version=18, expected=lambda *_, e=exact: e.astype(F16))
    tiny = np.array([[300, 300, 1e-3, 1e-3, 7]], F16)
    yield Form("ReduceProd", [tiny, _i([1])], {"keepdims": 0}, constants=(1,), version=18,
               expected=lambda x, _: x.astype(F64).prod(1).astype(F16))
    yield Form("GlobalAveragePool", [x], expected=lambda x: x.astype(F64).mean((2, 3), keepdims=True).astype(F16))
    yield Form("AveragePool", [x], {"kernel_shape": [20, 30]}, version=19,
               expected=lambda x: x.astype(F64).mean((2, 3), keepdims=True).astype(F16))
    yield Form("LpPool", [x], {"kernel_shape": [20, 30]}, version=18,
               expected=lambda x: np.sqrt((x.astype(F64) ** 2).sum((2, 3), keepdims=True)).astype(F16))
    yield Form("LpNormalization", [x], version=22, expected=_unit(-1, 2))
    yield Form("Gemm", [x[0, 0], x[0, 1].T.copy()], {"alpha": 0.001}, version=13,
               expected=lambda a, b: (0.001 * (a.astype(F64) @ b.astype(F64))).astype(F16))
    yield Form("LRN", [x], {"size": 1, "alpha": 1.0}, version=13,
               expected=lambda x: (x.astype(F64) / (1 + x.astype(F64) ** 2) ** 0.75).astype(F16))
    scale, shift = np.array([0.7, 1.3, 2], F16), np.array([1, -1, 0.5], F16)
    for groups, version in ((1, 21), (3, 21)):
        rows = wide.reshape(1, groups, -1)
        unit = ((rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
        exact = unit * scale.astype(F64)[:, None, None] + shift.astype(F64)[:, None, None]
        yield Form("GroupNormalization", [x, scale, shift], {"num_groups": groups}, version=version, mixed=True,
                   expected=lambda *_, e=exact: e.astype(F16))


def _transposed() -> Iterator[Form]:
    grids: list[dict[str, Any]] = [
        {}, {"strides": [2, 2]}, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, {"strides": [2, 3], "pads": [1, 0, 0, 1]},
        {"strides": [3, 2], "output_padding": [1, 1], "dilations": [2, 2]}, {"strides": [2, 2], "group": 2},
    ]  # fmt: skip
    for grid in grids:
        for odd, operand in ((INF, 1), (NAN, 1), (INF, 0)):
            for constants in ((), (1,)):
                v = Values("infinite", grid, operand)
                given = [v.floats(2, 4, 4, 5), v.floats(4, 3, 3, 2)]
                given[operand].flat[1] = odd
                yield Form("ConvTranspose", given, grid, constants=constants, version=22, relative=4e-6, mixed=True,
                           expected=_scattered(grid))
    v = Values("infinite")
    line = [v.floats(1, 2, 5, dtype=F16), v.floats(2, 3, 3, dtype=F16)]
    line[1][0, 0, 1] = INF
    yield Form("ConvTranspose", line, {"strides": [2]}, version=22, expected=_scattered({"strides": [2]}))


def _scattered(grid: dict[str, Any]) -> Callable[..., np.ndarray]:
    """ConvTranspose as it is defined: every pixel adds the filters, times its value, to where they meet the result."""
    def calculate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        rank, groups = x.ndim - 2, grid.get("group", 1)
        strides, dilations = grid.get("strides", [1] * rank), grid.get("dilations", [1] * rank)
        pads, more = grid.get("pads", [0] * 2 * rank), grid.get("output_padding", [0] * rank)
        lengths = [(x.shape[i + 2] - 1) * strides[i] + (w.shape[i + 2] - 1) * dilations[i] + 1 + more[i] for i in range(rank)]
        result = np.zeros((x.shape[0], w.shape[1] * groups, *lengths))
        apart = x.reshape(x.shape[0], groups, -1, *x.shape[2:]).astype(F64)
        filters = w.reshape(groups, -1, *w.shape[1:]).astype(F64)
        for place in np.ndindex(*w.shape[2:]):
            taps = filters[(..., *place)]
            product = (apart[:, :, :, None] * taps[(None, ..., *[None] * rank)]).sum(2)
            spans = tuple(slice(p * d, p * d + (n - 1) * s + 1, s)
                          for p, d, n, s in zip(place, dilations, x.shape[2:], strides, strict=True))
            result[(slice(None), slice(None), *spans)] += product.reshape(x.shape[0], -1, *x.shape[2:])
        ends = [length - high for length, high in zip(lengths, pads[rank:], strict=True)]
        return result[(slice(None), slice(None), *map(slice, pads[:rank], ends))].astype(x.dtype)
    return calculate


def _quantised() -> Iterator[Form]:
    for types in ((np.uint8,) * 3, (np.int8,) * 3, (np.uint8, np.int8, np.uint8)):
        for left, right, rows, columns in (
            ((2, 4), (4, 3), (), ()), ((2, 4), (4, 3), (1,), (1,)), ((2, 4), (4, 3), (2, 1), (1, 3)), ((2, 4), (4, 3), (), (3,)),
            ((2, 2, 4), (2, 4, 3), (), ()), ((2, 2, 4), (2, 4, 3), (1,), (1,)), ((2, 2, 4), (2, 4, 3), (2, 2, 1), (2, 1, 3)),
            ((2, 1, 3, 4), (1, 2, 4, 5), (), ()), ((2, 2, 4), (4, 3), (), (3,)), ((2, 4), (3, 4, 3), (), (3, 1, 3)),
        ):  # fmt: skip
            v = Values("qlinear", types, left, right, rows, columns)
            a, b = (_ends(kind, *shape) for kind, shape in zip(types, (left, right), strict=False))
            scales = [v.floats(*shape, low=0.01, high=0.02) for shape in (rows, columns)]
            zeros = [v.ints(*shape, dtype=kind, low=0, high=99) for kind, shape in zip(types, (rows, columns), strict=False)]
            yield Form("QLinearMatMul", [a, scales[0], zeros[0], b, scales[1], zeros[1], np.array(0.04, F32), np.array(3, types[2])],
                       version=21, wide=False, expected=_quantised_product)


def _quantised_product(a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any, zy: Any) -> np.ndarray:
    product = (a.astype(np.int64) - za.astype(np.int64)) @ (b.astype(np.int64) - zb.astype(np.int64))
    info = np.iinfo(zy.dtype)
    scaled = product.astype(F32) * (sa * sb / sy)
    return np.clip(np.rint(scaled) + zy.astype(F32), info.min, info.max).astype(zy.dtype)


def _empty() -> Iterator[Form]:
    none, x = np.zeros((0, 3, 4), F32), Values("empty").floats(3, 4)
    yield Form("Reshape", [none, _i([3, 4, 0])], {"allowzero": 1}, constants=(1,), expected=lambda *_: np.zeros((3, 4, 0), F32))
    yield Form("MatMul", [x, np.zeros((4, 0), F32)])
    yield Form("MatMul", [np.zeros((3, 0), F32), np.zeros((0, 4), F32)])
    yield Form("Concat", [x, x[:0]], {"axis": 0})
    yield Form("Transpose", [none], {"perm": [2, 0, 1]})
    yield Form("Softmax", [none], version=13, expected=lambda x: x)
    yield Form("Slice", [x, _i([3]), _i([9])], constants=(1, 2))
    yield Form("Einsum", [x, np.array(2, F32)], {"equation": "ij,->ji"}, version=12, expected=lambda x, s: x.T * s)
    for equation, left, right in [
        ("...ij,...jk->...ik", (2, 1, 3, 4), (1, 5, 4, 2)), ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)),
        ("ij,jk", (3, 1), (4, 5)), ("...,...->...", (1, 4), (3, 1)), ("b...,b...->b", (2, 1, 4), (2, 3, 4)),
    ]:
        operands = [np.arange(math.prod(shape)).reshape(shape).astype(F32) for shape in (left, right)]
        yield Form("Einsum", operands, {"equation": equation}, version=12,
                   expected=functools.partial(np.einsum, equation))
    yield Form("Einsum", [np.array(3, F64)], {"equation": "->"}, version=12, expected=lambda x: x)
    empty = [np.ones(0, F32), np.ones((0, 5), F32)]
    yield Form("Einsum", empty, {"equation": "a,ab->"}, version=12, expected=lambda x, y: np.float32(0))
    yield Form("Einsum", [np.array(3, F32), np.array(4, F32)], {"equation": ",->"}, version=12, expected=lambda x, y: x * y)
    yield Form("Clip", [none.astype(BF16)], version=13, expected=lambda x: x)
