"""Operators on single elements, as MLIR says them in the body of a linalg.generic."""

from __future__ import annotations

from tests.fuzz.dtypes import SIGNED, UNSIGNED, is_float
from tests.fuzz.graph import Node

_MATH = {
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Erf": "erf",
    "Floor": "floor", "Ceil": "ceil", "Round": "roundeven",
}  # fmt: skip
_BINARY = {
    "Add": ("addf", "addi", "addi"), "Sub": ("subf", "subi", "subi"), "Mul": ("mulf", "muli", "muli"),
    "Max": ("maximumf", "maxsi", "maxui"), "Min": ("minimumf", "minsi", "minui"),
    "And": ("", "andi", "andi"), "Or": ("", "ori", "ori"), "Xor": ("", "xori", "xori"),
    "BitwiseAnd": ("", "andi", "andi"), "BitwiseOr": ("", "ori", "ori"), "BitwiseXor": ("", "xori", "xori"),
}  # fmt: skip
_RELATIONS = {
    "Equal": ("oeq", "eq", "eq"), "Less": ("olt", "slt", "ult"), "Greater": ("ogt", "sgt", "ugt"),
    "LessOrEqual": ("ole", "sle", "ule"), "GreaterOrEqual": ("oge", "sge", "uge"),
}  # fmt: skip
# Integers are divided by what a call gives, which in MLIR must not be 0: floats alone.
SCALARS = frozenset(_MATH) | frozenset(_BINARY) | frozenset(_RELATIONS) | {
    "Div", "Neg", "Abs", "Where", "Cast", "Pow", "Reciprocal", "Relu", "Clip", "Not", "BitwiseNot", "PRelu",
}
_BITS = {"bool": 1, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def element(dtype: str) -> str:
    """MLIR's name of a type; its integers have no sign."""
    if dtype == "bool":
        return "i1"
    return f"i{dtype[1:]}" if dtype in UNSIGNED else dtype


def body_of(node: Node, dtypes: list[str], result: str) -> list[str]:
    """The lines of a body whose arguments are %a0, %a1, …."""
    lines = _lines(node, dtypes, result)
    return [*lines, f"linalg.yield %r : {element(result)}"]


def _lines(node: Node, dtypes: list[str], result: str) -> list[str]:
    op = node.op
    kind = element(dtypes[0])
    which = 0 if is_float(dtypes[0]) else 2 if dtypes[0] in UNSIGNED or dtypes[0] == "bool" else 1
    if op in _MATH:
        return [f"%r = math.{_MATH[op]} %a0 : {kind}"]
    if op in _BINARY:
        return [f"%r = arith.{_BINARY[op][which]} %a0, %a1 : {kind}"]
    if op in _RELATIONS:
        return [f"%r = arith.cmp{'i' if which else 'f'} {_RELATIONS[op][which]}, %a0, %a1 : {kind}"]
    if op == "Cast":
        return _cast(dtypes[0], result)
    if op == "Where":
        return [f"%r = arith.select %a0, %a1, %a2 : {element(result)}"]
    if op == "Clip":
        low, high = _BINARY["Max"][which], _BINARY["Min"][which]
        return [f"%m = arith.{low} %a0, %a1 : {kind}", f"%r = arith.{high} %m, %a2 : {kind}"]
    if op == "PRelu":
        return [f"%z = arith.constant 0.0 : {kind}", f"%n = arith.cmpf olt, %a0, %z : {kind}",
                f"%m = arith.mulf %a0, %a1 : {kind}", f"%r = arith.select %n, %m, %a0 : {kind}"]
    return _plain(op, kind, which)


def _plain(op: str, kind: str, which: int) -> list[str]:
    one = f"%one = arith.constant {'1.0' if which == 0 else '-1' if kind != 'i1' else 'true'} : {kind}"
    zero = f"%zero = arith.constant {'0.0' if which == 0 else '0' if kind != 'i1' else 'false'} : {kind}"
    if kind == "i1":
        one, zero = "%one = arith.constant true", "%zero = arith.constant false"
    return {
        "Div": [f"%r = arith.divf %a0, %a1 : {kind}" if which == 0 else
                f"%r = arith.{'divsi' if which == 1 else 'divui'} %a0, %a1 : {kind}"],
        "Pow": [f"%r = math.powf %a0, %a1 : {kind}"],
        "Reciprocal": [one, f"%r = arith.divf %one, %a0 : {kind}"],
        "Neg": [f"%r = arith.negf %a0 : {kind}"] if which == 0 else [zero, f"%r = arith.subi %zero, %a0 : {kind}"],
        "Abs": [f"%r = math.absf %a0 : {kind}"] if which == 0 else [f"%r = math.absi %a0 : {kind}"] if which == 1 else
               [zero, f"%r = arith.addi %zero, %a0 : {kind}"],
        "Relu": [zero, f"%r = arith.{('maximumf', 'maxsi', 'maxui')[which]} %a0, %zero : {kind}"],
        "Not": [one, f"%r = arith.xori %a0, %one : {kind}"], "BitwiseNot": [one, f"%r = arith.xori %a0, %one : {kind}"],
    }[op]


def _cast(source: str, result: str) -> list[str]:
    a, b = element(source), element(result)
    if result == "bool":
        zero = f"%zero = arith.constant {'0.0' if is_float(source) else '0'} : {a}"
        compare = "arith.cmpf une" if is_float(source) else "arith.cmpi ne"
        return [zero, f"%r = {compare}, %a0, %zero : {a}"]
    if is_float(source) and is_float(result):
        if _BITS[source] == _BITS[result]:  # f16 and bf16
            return [f"%w = arith.extf %a0 : {a} to f32", f"%r = arith.truncf %w : f32 to {b}"]
        return [f"%r = arith.{'extf' if _BITS[source] < _BITS[result] else 'truncf'} %a0 : {a} to {b}"]
    if is_float(source):
        return [f"%r = arith.fptosi %a0 : {a} to {b}"]
    if is_float(result):
        return [f"%r = arith.{'sitofp' if source in SIGNED else 'uitofp'} %a0 : {a} to {b}"]
    narrow, wide = _bits(source), _bits(result)
    if narrow == wide:
        zero = "%zero = arith.constant 0 : " + a
        return [zero, f"%r = arith.addi %a0, %zero : {a}"]
    if narrow > wide:
        return [f"%r = arith.trunci %a0 : {a} to {b}"]
    return [f"%r = arith.{'extsi' if source in SIGNED else 'extui'} %a0 : {a} to {b}"]


def _bits(dtype: str) -> int:
    return 1 if dtype == "bool" else int(dtype[1:])
