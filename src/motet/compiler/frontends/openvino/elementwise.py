"""Arithmetic, comparisons, logic and conversions of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation, constant_value
from motet.compiler.frontends.openvino.writer import GraphWriter, Rule, Rules

_SAME = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Sign",
    "Sin", "Sinh", "Sqrt", "Tan", "Tanh", "Identity",
)
_UNARY = {"Ceiling": "Ceil", "Negative": "Neg", "LogicalNot": "Not", "IsNaN": "IsNaN", **{name: name for name in _SAME}}
_BINARY = {
    "Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Maximum": "Max", "Minimum": "Min", "Power": "Pow",
    "Equal": "Equal", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
    "LessEqual": "LessOrEqual", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor",
}
_BITWISE = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor", "BitwiseNot": "Not"}
# Operators whose results are not below 0 if their operands are not: the arithmetic of extents.
_MONOTONE = frozenset({
    "Add", "Multiply", "Divide", "Maximum", "Minimum", "Gather", "Concat", "Convert", "Squeeze", "Unsqueeze", "Reshape",
    "Slice", "StridedSlice", "ReduceProd", "ReduceSum", "Broadcast",
})


_WHOLE = ("Floor", "Ceil", "Round", "Identity")  # leave integers as they are
_OF_INTEGERS = ("Abs", "Neg", "Sign", "Not")


def _unary(name: str) -> Rule:
    """ONNX defines most functions of floats only: those of integers are computed in f32."""
    def rule(op: OpenvinoOperation, w: GraphWriter) -> str:
        if op.dtype(0).kind == "f" or op.dtype(0).name == "bfloat16" or name in _OF_INTEGERS:
            return w.add(name, op.inputs[0])
        if name in _WHOLE:
            return op.inputs[0]
        return w.cast(w.add(name, w.cast(op.inputs[0], np.float32)), op.result_dtype())

    return rule


def _binary(name: str) -> Rule:
    def rule(op: OpenvinoOperation, w: GraphWriter) -> str:
        return w.add(name, *_aligned(op, w))

    return rule


def _aligned(op: OpenvinoOperation, w: GraphWriter, first: int = 0) -> list[str]:
    """The operands of a binary operator, which broadcast as numpy's: with `pdpd` extents of 1 at the end of the second
    are dropped, and it is then aligned with the last axes of the first."""
    one, other = op.inputs[first], op.inputs[first + 1]
    if op.attribute("auto_broadcast", "numpy") != "pdpd":
        return [one, other]
    if op.rank(first) < op.rank(first + 1):
        raise NoLowering("broadcasting pdpd, with a second operand of a higher rank; expected a lower one")
    return [one, other]


def _divide(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Integers are rounded down, unless the model asks for rounding towards zero."""
    one, other = _aligned(op, w)
    quotient = w.add("Div", one, other)
    floors = op.attribute("m_pythondiv", True) and op.result_dtype().kind == "i"
    if not floors or (is_natural(op.node.input_value(0)) and is_natural(op.node.input_value(1))):
        return quotient
    zero = w.constant(0, op.result_dtype())
    rest = w.add("Sub", one, w.add("Mul", quotient, other))
    apart = w.add("Xor", w.add("Less", rest, zero), w.add("Less", other, zero))
    down = w.add("And", w.add("Not", w.add("Equal", rest, zero)), apart)
    return w.add("Sub", quotient, w.cast(down, op.result_dtype()))


def is_natural(output: Any, depth: int = 0) -> bool:
    """Whether no element of an output can be below 0: constants, extents, and their sums, products and quotients."""
    value = constant_value(output)
    if value is not None:
        return bool(np.all(value >= 0))
    node = output.get_node()
    kind = node.get_type_name()
    if kind == "ShapeOf":
        return True
    if kind not in _MONOTONE or depth > 32:
        return False
    read = node.input_values()[:1] if kind not in _BINARY and kind not in ("Divide", "Concat") else node.input_values()
    return all(is_natural(each, depth + 1) for each in read)


def _mod(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Mod", *_aligned(op, w), fmod=1)


def _floor_mod(op: OpenvinoOperation, w: GraphWriter) -> str:
    one, other = _aligned(op, w)
    if op.result_dtype().kind in "iu":
        return w.add("Mod", one, other, fmod=0)
    return w.add("Sub", one, w.add("Mul", w.add("Floor", w.add("Div", one, other)), other))


def _squared_difference(op: OpenvinoOperation, w: GraphWriter) -> str:
    difference = w.add("Sub", *_aligned(op, w))
    return w.add("Mul", difference, difference)


def _not_equal(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Not", w.add("Equal", *_aligned(op, w)))


def _bitwise(op: OpenvinoOperation, w: GraphWriter) -> str:
    name = _BITWISE[op.kind]
    return w.add(name if op.dtype(0).kind == "b" else f"Bitwise{name}", *op.inputs[: 1 if name == "Not" else 2])


def _shift(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Shifts of signed integers: as unsigned ones, negative ones as the complement of what is shifted right."""
    left, dtype = op.kind == "BitwiseLeftShift", op.dtype(0)
    direction = "LEFT" if left else "RIGHT"
    if dtype.kind == "u":
        return w.add("BitShift", op.inputs[0], op.inputs[1], direction=direction)
    plain = np.dtype(f"u{dtype.itemsize}")
    by = w.cast(op.inputs[1], plain)
    if left:
        return w.cast(w.add("BitShift", w.cast(op.inputs[0], plain), by, direction=direction), dtype)
    negative = w.add("Less", op.inputs[0], w.constant(0, dtype))
    magnitude = w.add("Where", negative, w.add("BitwiseNot", op.inputs[0]), op.inputs[0])
    shifted = w.cast(w.add("BitShift", w.cast(magnitude, plain), by, direction=direction), dtype)
    return w.add("Where", negative, w.add("BitwiseNot", shifted), shifted)


def _round(op: OpenvinoOperation, w: GraphWriter) -> str:
    if op.dtype(0).kind in "iu":
        return op.inputs[0]
    if str(op.attribute("mode", "half_to_even")).lower() == "half_to_even":
        return w.add("Round", op.inputs[0])
    half = w.constant(0.5, op.dtype(0))
    return w.add("Mul", w.add("Sign", op.inputs[0]), w.add("Floor", w.add("Add", w.add("Abs", op.inputs[0]), half)))


def _is_infinite(op: OpenvinoOperation, w: GraphWriter) -> str:
    flags = {name: int(bool(op.attribute(name, True))) for name in ("detect_negative", "detect_positive")}
    return w.add("IsInf", op.inputs[0], **flags)


def _is_finite(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Not", w.add("Or", w.add("IsNaN", op.inputs[0]), w.add("IsInf", op.inputs[0])))


def _convert(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.cast(op.inputs[0], op.result_dtype())


def _promote(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    return [w.cast(op.inputs[place], op.result_dtype(place)) for place in (0, 1)]


def _select(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Where", op.inputs[0], op.inputs[1], op.inputs[2])


RULES: Rules = {
    **{kind: _unary(name) for kind, name in _UNARY.items()},
    **{kind: _binary(name) for kind, name in _BINARY.items()},
    **dict.fromkeys(_BITWISE, _bitwise),
    "BitwiseLeftShift": _shift, "BitwiseRightShift": _shift, "NotEqual": _not_equal, "Divide": _divide, "Mod": _mod,
    "FloorMod": _floor_mod, "SquaredDifference": _squared_difference, "Round": _round, "IsInf": _is_infinite,
    "IsFinite": _is_finite, "Convert": _convert, "ConvertLike": _convert, "ConvertPromoteTypes": _promote,
    "Select": _select,
}
