"""Softmax and normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import FLOATS
from tests.fuzz.operators.reductions import extreme, mean
from tests.fuzz.registry import Attributes, Operands, drawn, given, meaning
from tests.fuzz.tracked import (
    Invalid,
    Tracked,
    add,
    apply,
    divide,
    exact,
    multiply,
    rounded,
    subtract,
    total,
)

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


def _scalar(value: float, dtype: str) -> Tracked:
    return exact(np.array(float(np.float32(value))), dtype)


def _shifted(x: Tracked, axis: int) -> Tracked:
    """Less the largest, of which any number near does as well."""
    largest = extreme(x, (axis,), True, True)
    return subtract(x, Tracked(x.dtype, largest.value, np.zeros(largest.shape), largest.unknown))


def _axis(attributes: Attributes, x: Tracked, default: int) -> int:
    axis = attributes.get("axis", default)
    if not -len(x.shape) <= axis < len(x.shape):
        raise Invalid("axis")
    return axis % len(x.shape)


@meaning("Softmax")
def _softmax(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axis = _axis(attributes, x, -1)
    if 0 in x.shape:
        return [x]
    powers = apply(_shifted(x, axis), np.exp)
    return [divide(powers, total(powers, (axis,), True))]


@meaning("LogSoftmax")
def _log_softmax(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axis = _axis(attributes, x, -1)
    if 0 in x.shape:
        return [x]
    shifted = _shifted(x, axis)
    return [subtract(shifted, apply(total(apply(shifted, np.exp), (axis,), True), np.log, absolute=8))]


def _stashed(x: Tracked) -> Tracked:
    """In f32, as ONNX has some norms calculated, also those of f64."""
    return rounded("f32", x.value, x.error, x.unknown) if x.dtype == "f64" else x


def _centred(x: Tracked, axes: tuple[int, ...], epsilon: float) -> Tracked:
    """Less the mean, over the deviation."""
    difference = subtract(x, mean(x, axes, True))
    variance = mean(multiply(difference, difference), axes, True)
    return divide(difference, apply(add(variance, _scalar(epsilon, x.dtype)), np.sqrt, 2), 4)


@meaning("LayerNormalization")
def _layer(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale = given(operands[0]), given(operands[1])
    axis = _axis(attributes, x, -1)
    centred = _centred(_stashed(x), tuple(range(axis, len(x.shape))), attributes.get("epsilon", 1e-5))
    found = multiply(_of_type(centred, x.dtype), scale)
    if len(operands) > 2 and operands[2] is not None:
        found = add(found, operands[2])
    return [found]


def _of_type(x: Tracked, dtype: str) -> Tracked:
    return Tracked(dtype, x.value, x.error, x.unknown)


@meaning("InstanceNormalization")
def _instance(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale, bias = (given(operand) for operand in operands)
    spread = [1] * (len(x.shape) - 2)
    found = _centred(x, tuple(range(2, len(x.shape))), attributes.get("epsilon", 1e-5))
    return [add(multiply(found, _channels(scale, spread)), _channels(bias, spread))]


def _channels(x: Tracked, spread: list[int]) -> Tracked:
    return x.moved(lambda array: array.reshape(-1, *spread))


@meaning("GroupNormalization")
def _group(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale, bias = (given(operand) for operand in operands)
    groups = attributes["num_groups"]
    if x.shape[1] % groups or scale.shape != (x.shape[1],) or bias.shape != (x.shape[1],):
        raise Invalid("channels")
    parts = _stashed(x).moved(lambda array: array.reshape(array.shape[0], groups, -1))
    found = _centred(parts, (2,), attributes.get("epsilon", 1e-5)).moved(lambda array: array.reshape(x.shape))
    found = _of_type(found, x.dtype)
    spread = [1] * (len(x.shape) - 2)
    return [add(multiply(found, _channels(scale, spread)), _channels(bias, spread))]


@meaning("BatchNormalization")
def _batch(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale, bias, middle, variance = (given(operand) for operand in operands)
    spread = [1] * (len(x.shape) - 2)
    scale, bias, middle, variance = (_channels(v, spread) for v in (scale, bias, middle, variance))
    deviation = apply(add(variance, _scalar(attributes.get("epsilon", 1e-5), x.dtype)), np.sqrt, 2)
    # Scales and means may be folded: the error is that of their products, not that of the difference.
    factor = divide(scale, deviation, 4)
    direct = add(multiply(subtract(x, middle), factor), bias).as_operand()
    folded = add(multiply(x, factor), subtract(bias, multiply(middle, factor))).as_operand()
    same = (direct.value == folded.value) | (np.isnan(direct.value) & np.isnan(folded.value))
    unknown = direct.unknown | folded.unknown | ~(same | (np.isfinite(direct.value) & np.isfinite(folded.value)))
    return [Tracked(x.dtype, direct.value, direct.error + 2 * folded.error, unknown)]


@meaning("RMSNormalization")
def _root_mean_square(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale = given(operands[0]), given(operands[1])
    axis = _axis(attributes, x, -1)
    narrow = _stashed(x)
    square = mean(multiply(narrow, narrow), tuple(range(axis, len(x.shape))), True)
    deviation = apply(add(square, _scalar(attributes.get("epsilon", 1e-5), narrow.dtype)), np.sqrt, 2)
    return [multiply(_of_type(divide(narrow, deviation, 4), x.dtype), scale)]


@meaning("LpNormalization")
def _lp(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axis = _axis(attributes, x, -1)
    absolute = Tracked(x.dtype, np.abs(x.value), x.error, x.unknown)
    if attributes.get("p", 2) == 1:
        length = total(absolute, (axis,), True)
    else:
        length = apply(total(multiply(x, x), (axis,), True), np.sqrt, 2)
    return [divide(x, length)]


@drawn("norm", "softmax")
def _draw_softmax(d: Drawer) -> None:
    x = d.pick(FLOATS, (1, 4))
    axis = d.rng.randrange(-len(d.shape(x)), len(d.shape(x)))
    d.node(d.rng.choice(("Softmax", "LogSoftmax")), [x], axis=axis)


@drawn("norm", "LpNormalization")
def _draw_lp(d: Drawer) -> None:
    x = d.pick(FLOATS, (1, 4), lambda n: bool(np.abs(d.known[n].value).sum() > 0))
    axis = d.rng.randrange(-len(d.shape(x)), len(d.shape(x)))
    d.node("LpNormalization", [x], axis=axis, p=d.rng.choice((1, 2)))


@drawn("norm", "LayerNormalization")
def _draw_layer(d: Drawer) -> None:
    op = d.rng.choice(("LayerNormalization", "LayerNormalization", "RMSNormalization"))
    x = d.pick(FLOATS, (1, 4), lambda n: 0 not in d.shape(n))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    scale = d.fresh(d.dtype(x), shape[axis:], -2, 2, constant=0.5)
    bias = [d.fresh(d.dtype(x), shape[axis:], constant=0.5)] if op[0] == "L" and d.rng.random() < 0.6 else []
    given_axis = axis - len(shape) if d.rng.random() < 0.5 else axis
    d.node(op, [x, scale, *bias], axis=given_axis, epsilon=float(np.float32(d.rng.choice((1e-5, 1e-3, 0.1)))))


@drawn("norm", "by channels")
def _draw_channels(d: Drawer) -> None:
    op = d.rng.choice(("InstanceNormalization", "GroupNormalization", "BatchNormalization", "BatchNormalization"))
    x = d.pick(FLOATS, (3, 4), lambda n: 0 not in d.shape(n))
    channels = d.shape(x)[1]
    attributes: dict[str, object] = {"epsilon": float(np.float32(d.rng.choice((1e-5, 1e-2))))}
    if op[0] == "G":
        if d.opset < 21:
            return
        attributes["num_groups"] = d.rng.choice([g for g in (1, 2, 3, 4, channels) if channels % g == 0])
    dtype = d.dtype(x)

    def vector(low: float, high: float) -> str:
        return d.fresh(dtype, (channels,), low, high, static=True, constant=0.7)

    more = [vector(-2, 2), vector(0.3, 4)] if op[0] == "B" else []
    d.node(op, [x, vector(-2, 2), vector(-2, 2), *more], **attributes)

