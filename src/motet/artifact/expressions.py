"""Evaluates the manifest's expressions over symbols; see `artifact/schema.py` for what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from motet.artifact.schema import Expr
from motet.errors import CallError

LIMIT = 1 << 62  # sizes and counts stay below, so that native code can add to them


def _divide(a: int, b: int) -> int:
    return a // b


def _divide_up(a: int, b: int) -> int:
    return -(-a // b)


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": _divide,
    "ceildiv": _divide_up,
    "max": max,
    "min": min,
}


def evaluate(expression: Expr, symbols: Mapping[str, int]) -> int:
    """The value of a well-formed expression (`artifact/validation.py` has checked it).

    Raises CallError if a symbol's value divides by zero or makes it larger than 2^62 on the way.
    """
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    operator, left, right = expression
    a, b = evaluate(left, symbols), evaluate(right, symbols)
    try:
        result = _OPERATIONS[str(operator)](a, b)
    except ZeroDivisionError as error:
        raise CallError(f"{show(expression)}: division by zero for {_listing(symbols)}") from error
    if not -LIMIT < result < LIMIT:
        raise CallError(f"{show(expression)}: too large for {_listing(symbols)}")
    return result


def evaluate_all(expressions: Sequence[Expr], symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(expression, symbols) for expression in expressions)


def symbols_of(expression: Expr) -> set[str]:
    """The symbols that an expression depends on."""
    if isinstance(expression, list):
        return symbols_of(expression[1]) | symbols_of(expression[2])
    return {expression} if isinstance(expression, str) else set()


def show(expression: Expr) -> str:
    """The expression as one reads it: `(n + 1) * 4`."""
    if not isinstance(expression, list):
        return str(expression)
    operator, left, right = expression
    if operator in ("max", "min", "ceildiv"):
        return f"{operator}({show(left)}, {show(right)})"
    return " ".join((_bracket(left), str(operator), _bracket(right)))


def _bracket(expression: Expr) -> str:
    infix = isinstance(expression, list) and expression[0] not in ("max", "min", "ceildiv")
    return f"({show(expression)})" if infix else show(expression)


def _listing(symbols: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in symbols.items())


def substitute(expression: Expr, bindings: Mapping[str, Expr]) -> Expr:
    """The expression with symbols replaced by expressions; what is constant then is evaluated."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return bindings[expression]
    operator, left, right = expression
    return combine(str(operator), substitute(left, bindings), substitute(right, bindings))


def combine(operator: str, left: Expr, right: Expr) -> Expr:
    """`left operator right`, evaluated where both are numbers."""
    expression: Expr = [operator, left, right]
    return evaluate(expression, {}) if isinstance(left, int) and isinstance(right, int) else expression
