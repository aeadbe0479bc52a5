"""Sizes as expressions over symbols (`artifact.schema.Expr`): construction with folding, and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from motet.artifact.schema import Expr
from motet.errors import CallError

LIMIT = 1 << 62  # sizes and counts are smaller, so that native code can add them
LARGEST = 1 << 48  # the largest extent


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
OPERATORS = tuple(_OPERATIONS)
_CALLS = ("max", "min", "ceildiv")  # operators that are written as calls


# -- evaluation ----------------------------------------------------------------------------------


def evaluate(expression: Expr, symbols: Mapping[str, int]) -> int:
    """The value of a well-formed expression (checked by `artifact/validation.py`).

    Raises CallError for a division by zero, and if an intermediate value exceeds 2^62.
    """
    if isinstance(expression, int):
        if not -LIMIT <= expression <= LIMIT:
            raise CallError(f"{expression}: too large")
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


def show(expression: Expr, space: str = " ") -> str:
    """The expression in infix notation with `space` around operators: `(n + 1) * 4`."""
    if not isinstance(expression, list):
        return str(expression)
    operator, left, right = expression
    if operator in _CALLS:
        return f"{operator}({show(left, space)}, {show(right, space)})"
    return space.join((_bracket(left, space), str(operator), _bracket(right, space)))


def _bracket(expression: Expr, space: str) -> str:
    infix = isinstance(expression, list) and expression[0] not in _CALLS
    return f"({show(expression, space)})" if infix else show(expression, space)


def _listing(symbols: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in symbols.items())


# -- construction --------------------------------------------------------------------------------


def substitute(expression: Expr, bindings: Mapping[str, Expr]) -> Expr:
    """`expression` with symbols substituted."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return bindings.get(expression, expression)
    operator, left, right = expression
    return apply(str(operator), substitute(left, bindings), substitute(right, bindings))


def apply(operator: str, left: Expr, right: Expr) -> Expr:
    """`left operator right`. Folds integers, additions of 0 and multiplications by 1. Raises CallError for a division
    of integers by zero."""
    if isinstance(left, int) and isinstance(right, int):
        return _calculate(operator, left, right)
    if operator in ("+", "-") and right == 0:
        return left
    if operator == "+" and left == 0:
        return right
    if operator in ("+", "-") and isinstance(right, int):
        return _moved(left, right if operator == "+" else -right)
    if operator == "+" and left == right:
        return apply("*", left, 2)
    if operator in ("*", "//", "ceildiv") and right == 1:
        return left
    if operator == "*":
        if left == 1:
            return right
        if left == 0 or right == 0:
            return 0
        if isinstance(left, int):
            left, right = right, left  # numbers are on the right: equal products look equal
        if right == ["min", left, 1] and not may_be_negative(left):
            return left  # plus 0, or times 1
        extent = _broadcast_extent(left, right)
        if extent is not None:
            return extent
    if operator in ("max", "min"):
        return _extreme(operator, left, right)
    if operator == "//":
        if isinstance(right, int) and isinstance(left, list) and left[0] == "//" and isinstance(left[2], int):
            return apply("//", left[1], left[2] * right)
        cancelled = _cancel(left, right)
        if cancelled is not None:
            return cancelled
    return [operator, left, right]


def _moved(expression: Expr, by: int) -> Expr:
    """The sum of an expression and a number: equal sums look equal."""
    if isinstance(expression, list) and expression[0] in ("+", "-") and isinstance(expression[2], int):
        by += expression[2] if expression[0] == "+" else -expression[2]
        expression = expression[1]
    if by == 0:
        return expression
    return ["+", expression, by] if by > 0 else ["-", expression, -by]


def _extreme(operator: str, left: Expr, right: Expr) -> Expr:
    """The maximum or minimum, if it is known for all non-negative values of the symbols."""
    if at_most(left, right):
        return right if operator == "max" else left
    if at_most(right, left):
        return left if operator == "max" else right
    if isinstance(left, list) and left[0] == operator and isinstance(left[2], int) and isinstance(right, int):
        return apply(operator, left[1], _calculate(operator, left[2], right))
    return [operator, left, right]


def _broadcast_extent(left: Expr, right: Expr) -> Expr | None:
    """The extent of a broadcast, `max(a, b) * min(min(a, b), 1)`, with each extent once; None for other products.

    Broadcasts of broadcasts, as in a chain of operators, would otherwise double the expression at every operator. The
    operation is associative, commutative and idempotent on non-negative numbers: 0 if one of them is, else the maximum.
    """
    if not (isinstance(left, list) and left[0] == "max") or may_be_negative(left):
        return None
    if right != ["min", ["min", left[1], left[2]], 1]:
        return None
    sides = [_broadcast_parts(side) for side in left[1:]]
    if all(len(parts) == 1 for parts in sides):
        return None  # it is as short as it can be
    parts = sorted({show(part): part for side in sides for part in side}.items())
    greatest: Expr = parts[0][1]
    least: Expr = parts[0][1]
    for _, part in parts[1:]:
        greatest, least = ["max", greatest, part], ["min", least, part]
    return ["*", greatest, ["min", least, 1]]


def _broadcast_parts(extent: Expr) -> list[Expr]:
    """The extents that are broadcast to one; the extent itself if it is not of a broadcast."""
    if not (isinstance(extent, list) and extent[0] == "*" and isinstance(extent[2], list) and extent[2][0] == "min"):
        return [extent]
    greatest, least, parts = extent[1], extent[2][1], []
    while isinstance(greatest, list) and isinstance(least, list) and (greatest[0], least[0]) == ("max", "min"):
        if greatest[2] != least[2]:
            return [extent]
        parts.append(greatest[2])
        greatest, least = greatest[1], least[1]
    return [greatest, *parts] if greatest == least and extent[2][2] == 1 and parts else [extent]


def may_be_negative(expression: Expr) -> bool:
    """Whether an expression is not composed in a way that makes it non-negative for all symbols."""
    least = _least(expression)
    return least is None or least < 0


def _least(expression: Expr) -> int | None:
    """A number that an expression is not below, whatever its symbols are, which are not negative; None if none is
    known. `(n - 1) // 2 + 1` is not below 0."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return 0
    operator, right = expression[0], expression[2]
    sides = [_least(side) for side in expression[1:]]
    known = [side for side in sides if side is not None]
    if operator == "max":
        return max(known, default=None)
    if len(known) < 2 or (operator == "-" and not isinstance(right, int)):
        return None
    if operator in ("+", "-", "min") or (isinstance(right, int) and right > 0):
        return _calculate(str(operator), *known)
    return 0 if min(known) >= 0 else None  # of a product or a quotient


def is_increasing(expression: Expr) -> bool:
    """Whether an expression is composed in a way that it never decreases where symbols, which are not negative,
    increase: its values for the bounds of the symbols are its bounds."""
    if not isinstance(expression, list):
        return True
    operator, left, right = expression
    if operator == "*" and (may_be_negative(left) or may_be_negative(right)):
        return False
    if operator in ("-", "//", "ceildiv") and not (isinstance(right, int) and right > 0):
        return False
    return is_increasing(left) and is_increasing(right)


def at_most(left: Expr, right: Expr) -> bool:
    """Whether `left` <= `right` for all values of the symbols, as far as that is easily proven."""
    if left == right:
        return True
    if isinstance(left, list) and left[0] == "max":
        return at_most(left[1], right) and at_most(left[2], right)
    if isinstance(right, list) and right[0] == "min":
        return at_most(left, right[1]) and at_most(left, right[2])
    if isinstance(left, list) and left[0] == "min" and (at_most(left[1], right) or at_most(left[2], right)):
        return True
    if isinstance(right, list) and right[0] == "max" and (at_most(left, right[1]) or at_most(left, right[2])):
        return True
    if isinstance(left, int) and (least := _least(right)) is not None and left <= least:
        return True
    terms: dict[str, int] = {"": 0}
    if not _add_terms(right, 1, terms) or not _add_terms(left, -1, terms):
        return False
    return terms.pop("") + sum(min(0, factor) for factor in terms.values()) * LARGEST >= 0


def _add_terms(expression: Expr, factor: int, terms: dict[str, int]) -> bool:
    """Adds `factor` times the terms of a sum to `terms`, by symbol, with "" for numbers; returns whether it is a sum of
    such terms."""
    if isinstance(expression, int):
        terms[""] = terms.get("", 0) + factor * expression
        return True
    if isinstance(expression, str):
        terms[expression] = terms.get(expression, 0) + factor
        return True
    operator, left, right = expression
    if operator in ("+", "-"):
        return _add_terms(left, factor, terms) and _add_terms(right, factor if operator == "+" else -factor, terms)
    return operator == "*" and isinstance(right, int) and _add_terms(left, factor * right, terms)


def _cancel(left: Expr, right: Expr) -> Expr | None:
    """`left // right` if every factor of `right` is a factor of `left`; assumes that `right` is not 0."""
    number, factors = _factors(left)
    divisor, others = _factors(right)
    for other in others:
        if other not in factors:
            return None
        factors.remove(other)
    if divisor == 0 or number % divisor:
        return None
    return apply("*", product(factors), number // divisor)


def _factors(expression: Expr) -> tuple[int, list[Expr]]:
    """The numeric factor and the other factors of a product."""
    if isinstance(expression, int):
        return expression, []
    if isinstance(expression, list) and expression[0] == "*":
        (left, some), (right, more) = _factors(expression[1]), _factors(expression[2])
        return left * right, [*some, *more]
    return 1, [expression]


def ceildiv(value: Expr, by: Expr) -> Expr:
    """`value` divided by `by`, rounded up."""
    return apply("ceildiv", value, by)


def round_up(value: Expr, to: int) -> Expr:
    """The least multiple of `to` that is at least `value`."""
    return apply("*", ceildiv(value, to), to)


def product(factors: Iterable[Expr]) -> Expr:
    result: Expr = 1
    for factor in factors:
        result = apply("*", result, factor)
    return result


def balanced(operator: str, parts: Sequence[Expr]) -> Expr:
    """All of `parts`, at least one, combined by an associative operator in a tree whose depth is logarithmic."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return apply(operator, balanced(operator, parts[:middle]), balanced(operator, parts[middle:]))


def _calculate(operator: str, left: int, right: int) -> int:
    try:
        return _OPERATIONS[operator](left, right)
    except ZeroDivisionError as error:
        raise CallError(f"{show([operator, left, right])}: division by zero") from error
