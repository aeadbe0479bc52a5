"""settle-stretches: an operand is stretched only along extents that may really differ.

    %b = linalg.generic outs(%0 : [n]) {                 where n is the extent of %a,
      %i = linalg.index 0                          →     whatever the call:  %b = %a
      %k = arith.muli %i, %moves
      linalg.yield tensor.extract %a[%k]

`onnx_extents` writes one for each operand whose extents the model does not call by the same name. Extents that are
equal for many values of the inputs' are taken to be equal; those that walk together are compared in every call.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from motet.artifact.schema import Expr
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.expressions import substitute, symbols_of
from motet.compiler.scheduling.shapes import Shapes

_SMALL = (1, 2, 3, 4, 5, 7, 8, 9)
_SAMPLES = 32
_BODY = frozenset({"linalg.index", "arith.muli", "tensor.extract", "linalg.yield"})


def settle_stretches(function: ir.Operation) -> None:
    """In place, in a public function."""
    shapes = Shapes(function)
    block = function.regions[0].blocks[0]
    for operation in [entry.operation for entry in block.operations]:
        shapes.note(operation)
        extract = _stretch(operation)
        if extract is not None and extract.operands[0] in shapes.tensors and operation.results[0] in shapes.tensors:
            _settle(operation, extract, shapes)


def _stretch(operation: ir.Operation) -> ir.Operation | None:
    """The element that a stretch takes; None of any other operation."""
    if operation.name != "linalg.generic" or len(operation.operands) != 1:
        return None
    body = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    extracts = [inner for inner in body if inner.name == "tensor.extract"]
    if len(extracts) != 1 or not all(inner.name in _BODY for inner in body):
        return None
    return extracts[0] if list(body[-1].operands) == list(extracts[0].results) else None


def _settle(stretch: ir.Operation, extract: ir.Operation, shapes: Shapes) -> None:
    source, *places = extract.operands
    own, target = shapes.tensors[source], shapes.tensors[stretch.results[0]]
    kept = 0
    for axis, place in enumerate(places):
        moved = place.owner.operation
        if moved.name != "arith.muli":
            continue
        position = moved.operands[0]
        loop = ir.IntegerAttr(position.owner.operation.attributes["dim"]).value
        if always_equal(own[axis], target[loop]):
            extract.operands[1 + axis] = position
        else:
            kept += 1
    if not kept and len(own) == len(target):
        stretch.results[0].replace_all_uses_with(_cast(source, stretch))


def _cast(source: ir.Value, stretch: ir.Operation) -> ir.Value:
    kind = stretch.results[0].type
    if source.type == kind:
        return source
    return ir.Operation.create(
        "tensor.cast", results=[kind], operands=[source], loc=stretch.location, ip=ir.InsertionPoint(stretch)
    ).result


def always_equal(left: Expr, right: Expr) -> bool:
    """Whether two extents are equal for all values of the symbols, as far as trying many shows."""
    if left == right:
        return True
    symbols = sorted(symbols_of(left) | symbols_of(right))
    return all(_value(left, values) == _value(right, values) for values in _samples(symbols))


def _samples(symbols: list[str]) -> Iterator[dict[str, Expr]]:
    """Values for `symbols`: all of them small, then all large, then any; the same in every compilation."""
    chosen = random.Random(0)
    for number in range(_SAMPLES):
        large = number % 2
        yield {symbol: chosen.randint(64, 4096) if large else chosen.choice(_SMALL) for symbol in symbols}


def _value(expression: Expr, values: dict[str, Expr]) -> Expr | None:
    try:
        return substitute(expression, values)
    except ZeroDivisionError:
        return None
