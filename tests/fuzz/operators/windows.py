"""Convolutions and pools: operators over windows of the innermost axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import FLOATS, TINY, is_float
from tests.fuzz.registry import Attributes, Operands, Rejected, drawn, given, meaning
from tests.fuzz.tracked import (
    Array,
    Invalid,
    Tracked,
    Undefined,
    biased,
    contract,
    divide,
    exact,
    integer,
    magnitude,
    total,
)

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


class Windows:
    """The windows of an operator with the attributes that convolutions and pools share."""

    def __init__(self, attributes: Attributes, extents: Sequence[int], kernel: Sequence[int]) -> None:
        axes = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = tuple(attributes.get("strides") or [1] * axes)
        self.dilations = tuple(attributes.get("dilations") or [1] * axes)
        self.reach = [(k - 1) * step + 1 for k, step in zip(self.kernel, self.dilations, strict=True)]
        pads = attributes.get("pads") or [0] * (2 * axes)
        automatic = attributes.get("auto_pad", "NOTSET")
        self.before, self.after = list(pads[:axes]), list(pads[axes:])
        if automatic.startswith("SAME"):
            for axis in range(axes):
                out = -(-extents[axis] // self.strides[axis])
                needed = max(0, (out - 1) * self.strides[axis] + self.reach[axis] - extents[axis])
                small, large = needed // 2, needed - needed // 2
                upper = automatic == "SAME_UPPER"
                self.before[axis], self.after[axis] = (small, large) if upper else (large, small)
        self.extents = tuple(extents)
        rounding = math.ceil if attributes.get("ceil_mode", 0) else math.floor
        self.results = []
        for axis in range(axes):
            room = extents[axis] + self.before[axis] + self.after[axis] - self.reach[axis]
            places = rounding(room / self.strides[axis]) + 1
            if room < 0 and places < 1:  # of 0 places some make a result without elements
                raise (Undefined if places == 0 else Invalid)("the window is larger than the image")
            # With ceil_mode ONNX's formula leaves one place to a window that is larger by less than the stride.
            behind = (places - 1) * self.strides[axis] >= extents[axis] + self.before[axis]
            if attributes.get("ceil_mode", 0) and behind:
                places -= 1  # no window begins in the padding behind
            self.results.append(places)

    def gather(self, image: Array, fill: float | bool) -> Array:
        """The elements of each window: the result's axes, then those of the windows, behind what comes first."""
        axes = len(self.kernel)
        far = [
            max(0, (n - 1) * s + r - e - b)
            for n, s, r, e, b in zip(self.results, self.strides, self.reach, self.extents, self.before, strict=True)
        ]
        width = [(0, 0)] * (image.ndim - axes) + list(zip(self.before, far, strict=True))
        padded = np.pad(image, width, constant_values=fill)
        places = [
            np.arange(n)[:, None] * s + np.arange(k)[None, :] * step
            for n, s, k, step in zip(self.results, self.strides, self.kernel, self.dilations, strict=True)
        ]
        index: list[Array] = []
        for axis, place in enumerate(places):
            shape = [1] * (2 * axes)
            shape[axis], shape[axes + axis] = place.shape
            index.append(place.reshape(shape))
        return padded[(..., *index)]

    def counted(self, image: Sequence[int]) -> Array:
        """Which elements of a window count for a mean that includes padding: those that are not behind the padding."""
        axes = len(self.kernel)
        ones = np.ones([e + b + a for e, b, a in zip(image, self.before, self.after, strict=True)])
        shifted = Windows.__new__(Windows)
        shifted.__dict__.update(self.__dict__)
        shifted.before = [0] * axes
        shifted.extents = ones.shape
        return shifted.gather(ones, 0.0)


@meaning("Conv")
def _convolution(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, w = given(operands[0]), given(operands[1])
    groups = attributes.get("group", 1)
    axes = len(x.shape) - 2
    if axes < 1 or len(w.shape) != axes + 2 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise Invalid("channels or ranks do not fit")
    windows = Windows(attributes, x.shape[2:], w.shape[2:])
    batch, outs = x.shape[0], w.shape[0]

    def product(image: Array, weights: Array) -> Array:
        found = windows.gather(image, 0)
        found = found.reshape(batch, groups, -1, *found.shape[2:])
        parts = weights.reshape(groups, outs // groups, *weights.shape[1:])
        space = "uvw"[:axes]
        kernel = "xyz"[:axes]
        found = np.einsum(f"ngc{space}{kernel},goc{kernel}->ngo{space}", found, parts)
        return found.reshape(batch, outs, *windows.results)

    found = contract(x, w, product, math.prod(w.shape[1:]))
    if len(operands) > 2 and operands[2] is not None:
        bias = operands[2].moved(lambda b: b.reshape(-1, *[1] * axes))
        found = biased(found, bias, x, w, magnitude(x, w, product), math.prod(w.shape[1:]))
    return [found]


def _window_attributes(d: Drawer, extents: Sequence[int], kernel: Sequence[int], *, pool: bool) -> dict[str, object]:
    axes = len(kernel)
    found: dict[str, object] = {}
    if d.rng.random() < 0.5:
        found["strides"] = [d.rng.choice((1, 1, 2, 3)) for _ in range(axes)]
    if d.rng.random() < 0.3:
        found["dilations"] = [d.rng.choice((1, 1, 2, 3)) for _ in range(axes)]
    if d.rng.random() < 0.5:
        most = [k - 1 if pool else 3 for k in kernel]
        found["pads"] = [d.rng.randint(0, min(m, 3)) for m in (*most, *most)]
    elif d.rng.random() < 0.3:
        found["auto_pad"] = d.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return found


@drawn("window", "Conv")
def _draw_convolution(d: Drawer) -> None:
    x = d.pick(FLOATS, (3, 5), lambda n: all(d.shape(n)[1:]))
    shape = d.shape(x)
    groups = d.rng.choice([g for g in (1, 1, 1, 2, 3, 4, shape[1]) if shape[1] % g == 0])
    outs = groups * d.rng.choice((1, 1, 2, 3, 4))
    kernel = [d.rng.choice([k for k in (1, 2, 3, 3, 5) if k <= e + 2] or [1]) for e in shape[2:]]
    w = d.fresh(d.dtype(x), (outs, shape[1] // groups, *kernel), -2, 2, static=True, constant=0.7)
    bias = [d.fresh(d.dtype(x), (outs,), static=True, constant=0.7)] if d.rng.random() < 0.5 else []
    attributes = _window_attributes(d, shape[2:], kernel, pool=False)
    if math.prod(shape[2:]) * math.prod(kernel) * shape[0] * shape[1] * outs // groups > 200000:
        raise Rejected("too large")
    d.node("Conv", [x, w, *bias], group=groups, **attributes)


@meaning("ConvTranspose")
def _transposed(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, w = given(operands[0]), given(operands[1])
    groups = attributes.get("group", 1)
    axes = len(x.shape) - 2
    if len(w.shape) != axes + 2 or x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise Invalid("channels or ranks do not fit")
    kernel = w.shape[2:]
    strides = attributes.get("strides") or [1] * axes
    dilations = attributes.get("dilations") or [1] * axes
    pads = attributes.get("pads") or [0] * (2 * axes)
    more = attributes.get("output_padding") or [0] * axes
    full = [
        (e - 1) * s + (k - 1) * step + 1 + m
        for e, s, k, step, m in zip(x.shape[2:], strides, kernel, dilations, more, strict=True)
    ]
    outs = w.shape[1]

    def product(image: Array, weights: Array) -> Array:
        image = image.reshape(x.shape[0], groups, -1, *x.shape[2:])
        parts = weights.reshape(groups, -1, outs, *kernel)
        found = np.zeros((x.shape[0], groups, outs, *full), np.result_type(image, weights))
        for place in itertools.product(*map(range, kernel)):
            part = np.einsum("ngc...,gco->ngo...", image, parts[(..., *place)])
            where = [slice(p * step, p * step + (e - 1) * s + 1, s) for p, step, e, s in
                     zip(place, dilations, x.shape[2:], strides, strict=True)]
            found[(..., *where)] += part
        found = found.reshape(x.shape[0], groups * outs, *full)
        cut = [slice(pads[a], full[a] - pads[axes + a]) for a in range(axes)]
        return found[(..., *cut)]

    found = contract(x, w, product, math.prod(kernel) * x.shape[1] // groups)
    if any(e < 1 for e in found.shape[2:]):
        raise Undefined("nothing is left")
    if len(operands) > 2 and operands[2] is not None:
        bias = operands[2].moved(lambda b: b.reshape(-1, *[1] * axes))
        found = biased(found, bias, x, w, magnitude(x, w, product), math.prod(kernel) * x.shape[1] // groups)
    return [found]


@drawn("window", "ConvTranspose")
def _draw_transposed(d: Drawer) -> None:
    x = d.pick(FLOATS, (3, 4), lambda n: all(d.shape(n)))
    shape = d.shape(x)
    groups = d.rng.choice([g for g in (1, 1, 2, 3, shape[1]) if shape[1] % g == 0])
    kernel = [d.rng.choice((1, 2, 3, 4)) for _ in shape[2:]]
    outs = d.rng.choice((1, 2, 3))
    w = d.fresh(d.dtype(x), (shape[1], outs, *kernel), -2, 2, static=True, constant=0.7)
    bias = [d.fresh(d.dtype(x), (outs * groups,), static=True, constant=0.7)] if d.rng.random() < 0.4 else []
    strides = [d.rng.choice((1, 2, 3)) for _ in kernel]
    attributes: dict[str, object] = {"strides": strides, "group": groups}
    if d.rng.random() < 0.4:
        attributes["dilations"] = [d.rng.choice((1, 2)) for _ in kernel]
    if d.rng.random() < 0.4:
        attributes["pads"] = [d.rng.randint(0, min(2, k - 1)) for k in (*kernel, *kernel)]
    if d.rng.random() < 0.3:
        attributes["output_padding"] = [d.rng.randrange(s) for s in strides]
    if math.prod(shape) * math.prod(kernel) * outs > 100000:
        raise Rejected("too large")
    d.node("ConvTranspose", [x, w, *bias], **attributes)


@meaning("MaxPool")
def _max_pool(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    windows = Windows(attributes, x.shape[2:], attributes["kernel_shape"])
    axes = tuple(range(-len(windows.kernel), 0))
    inside = windows.gather(np.ones(x.shape, bool), False)
    if not inside.any(axis=axes).all():
        raise Undefined("a window of padding alone")
    unknown = windows.gather(x.unknown, False).any(axis=axes)
    if not is_float(x.dtype):
        least = np.iinfo(x.value.dtype).min
        return [integer(windows.gather(x.value, least).max(axis=axes), x.dtype, unknown)]
    value = windows.gather(x.value, -np.inf).max(axis=axes)
    error = windows.gather(x.error, 0.0).max(axis=axes)
    error = np.where(value == 0, np.maximum(error, TINY[x.dtype]), np.where(np.isfinite(value), error, 0.0))
    return [Tracked(x.dtype, value, error, unknown)]


@meaning("AveragePool")
def _average_pool(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    windows = Windows(attributes, x.shape[2:], attributes["kernel_shape"])
    axes = tuple(range(-len(windows.kernel), 0))
    parts = Tracked(
        x.dtype, windows.gather(x.value, 0.0), windows.gather(x.error, 0.0), windows.gather(x.unknown, False)
    )
    if attributes.get("count_include_pad", 0):
        size = windows.counted(x.shape[2:]).sum(axis=axes)
    else:
        size = windows.gather(np.ones(x.shape[2:]), 0.0).sum(axis=axes)
    if (size == 0).any():
        raise Undefined("a window of padding alone")
    rank = len(parts.shape)
    sums = total(parts, tuple(axis + rank for axis in axes), False)
    return [divide(sums, exact(np.broadcast_to(size, sums.shape), x.dtype))]


def _norm(x: Tracked, axes: tuple[int, ...], degree: int, keep: bool) -> Tracked:
    """The sum of |x| for degree 1, the root of the sum of squares for degree 2."""
    from tests.fuzz.operators.reductions import REDUCTIONS

    return REDUCTIONS[f"ReduceL{degree}"](x, axes, keep)


@meaning("LpPool")
def _norm_pool(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    windows = Windows(attributes, x.shape[2:], attributes["kernel_shape"])
    parts = Tracked(
        x.dtype, windows.gather(x.value, 0.0), windows.gather(x.error, 0.0), windows.gather(x.unknown, False)
    )
    rank = len(parts.shape)
    found = _norm(parts, tuple(range(rank - len(windows.kernel), rank)), attributes.get("p", 2), False)
    # Forms that count no padding are a mean times the window's size: a sum that is a whole number is rounded, too.
    return [divide(found, exact(np.ones(found.shape), x.dtype))]


@meaning("GlobalLpPool")
def _global_norm(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    found = _norm(x, tuple(range(2, len(x.shape))), attributes.get("p", 2), True)
    return [divide(found, exact(np.ones(found.shape), x.dtype))]  # a mean times the image's size, as LpPool


@meaning("GlobalAveragePool", "GlobalMaxPool")
def _unused(attributes: Attributes, operands: Operands) -> list[Tracked]:
    raise AssertionError("replaced below")


@meaning("GlobalAveragePool")
def _global_average(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axes = tuple(range(2, len(x.shape)))
    size = float(math.prod(x.shape[2:]))
    if not size:
        raise Undefined("of nothing")
    return [divide(total(x, axes, True), exact(np.array(size), x.dtype))]


@meaning("GlobalMaxPool")
def _global_max(attributes: Attributes, operands: Operands) -> list[Tracked]:
    from tests.fuzz.operators.reductions import extreme

    x = given(operands[0])
    return [extreme(x, tuple(range(2, len(x.shape))), True, True)]


@drawn("window", "pools")
def _draw_pool(d: Drawer) -> None:
    op = d.rng.choice((
        "MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool",
        "GlobalLpPool",
    ))  # fmt: skip
    kinds = (*FLOATS, "i8", "u8") if op == "MaxPool" else FLOATS
    x = d.pick(kinds, (3, 5), lambda n: all(d.shape(n)[1:]))
    degree = {"p": d.rng.choice((1, 2))} if "LpPool" in op else {}
    if op.startswith("Global"):
        d.node(op, [x], **degree)
        return
    extents = d.shape(x)[2:]
    kernel = [d.rng.choice([k for k in (1, 2, 2, 3, 3, 5) if k <= e] or [1]) for e in extents]
    attributes = _window_attributes(d, extents, kernel, pool=True)
    attributes |= degree
    if op == "AveragePool":
        attributes["count_include_pad"] = d.rng.choice((0, 1))
    since = {"AveragePool": 19, "LpPool": 18}.get(op, 10)  # operator set that added dilations
    if d.opset < since:
        attributes.pop("dilations", None)
    if d.rng.random() < 0.3 and "auto_pad" not in attributes and (op != "LpPool" or d.opset >= 18):
        attributes["ceil_mode"] = 1
    d.node(op, [x], kernel_shape=kernel, **attributes)
