"""settle-stretches: removes expansions of operands along extents that are always equal.

    %b = linalg.generic outs(%0 : [n]) {                 if n always is the extent of %a:
      %i = linalg.index 0                          →       %b = %a
      %k = arith.muli %i, %moves
      linalg.yield tensor.extract %a[%k]

`broadcasts.py` writes such an expansion for each operand with an extent that has another name than the result's.
Extents that are not proved to be equal for all values of the symbols are compared in every call.
"""

from __future__ import annotations

from motet.artifact.expressions import at_most, symbols_of
from motet.artifact.schema import Expr
from motet.compiler.frontends.onnx.periodic import equal_from_one_on
from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.shapes import Shapes

_COMMUTATIVE = ("+", "*", "min", "max")
_BODY = frozenset({"linalg.index", "arith.muli", "tensor.extract", "linalg.yield"})


def settle_stretches(function: ir.Operation) -> None:
    """Rewrites a public function in place."""
    shapes = Shapes(function)
    block = function.regions[0].blocks[0]
    for operation in [entry.operation for entry in block.operations]:
        shapes.note(operation)
        extract = _stretch(operation)
        if extract is not None and extract.operands[0] in shapes.tensors and operation.results[0] in shapes.tensors:
            _settle(operation, extract, shapes)


def _stretch(operation: ir.Operation) -> ir.Operation | None:
    """The element that an expansion extracts; None for other operations."""
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
        loop = axis + len(target) - len(own)
        position = _position(place, loop)
        if position is not None and always_equal(own[axis], target[loop]):
            extract.operands[1 + axis] = position
        elif position is not None or target[loop] != 1 or _number(place) != 0:
            kept += 1  # expanded, or not an expansion: a transposition reads at other loops
    if not kept and len(own) == len(target):
        stretch.results[0].replace_all_uses_with(_cast(source, stretch))


def _position(place: ir.Value, loop: int) -> ir.Value | None:
    """The index of `loop` if `place` is that index, possibly times a factor of 0 or 1; None otherwise."""
    for value in (place, *(place.owner.operands if _made_by(place, "arith.muli") else ())):
        if _made_by(value, "linalg.index") and ir.IntegerAttr(value.owner.attributes["dim"]).value == loop:
            return value
    return None


def _number(place: ir.Value) -> int | None:
    return ir.IntegerAttr(place.owner.attributes["value"]).value if _made_by(place, "arith.constant") else None


def _made_by(value: ir.Value, name: str) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == name


def _cast(source: ir.Value, stretch: ir.Operation) -> ir.Value:
    kind = stretch.results[0].type
    if source.type == kind:
        return source
    return ir.Operation.create(
        "tensor.cast", results=[kind], operands=[source], loc=stretch.location, ip=ir.InsertionPoint(stretch)
    ).result


def always_equal(left: Expr, right: Expr) -> bool:
    """Whether two extents are proved to be equal for all values of the symbols from 1 on. Those of several symbols are
    compared part by part."""
    if left == right or (at_most(left, right) and at_most(right, left)):
        return True
    symbols = symbols_of(left) | symbols_of(right)
    if len(symbols) < 2:
        return equal_from_one_on(left, right)
    if not isinstance(left, list) or not isinstance(right, list) or left[0] != right[0]:
        return False
    (_, a, b), (operator, c, d) = left, right
    same = always_equal(a, c) and always_equal(b, d)
    return same or (operator in _COMMUTATIVE and always_equal(a, d) and always_equal(b, c))


# -- readers


def read_in_place(function: ir.Operation) -> None:
    """Makes element-wise operations read through an expansion, which is then not materialised."""
    for operation in [entry.operation for entry in function.regions[0].blocks[0].operations]:
        if operation.name == "linalg.generic" and _is_element_wise(operation):
            inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
            found = [number for number in range(inputs) if _is_stretched(operation, number)]
            if found:
                _rebuild(operation, inputs, found)


def _is_element_wise(operation: ir.Operation) -> bool:
    iterators = ir.ArrayAttr(operation.attributes["iterator_types"])
    identity = ir.AffineMap.get_identity(len(iterators), operation.context)
    parallel = all("parallel" in str(iterator) for iterator in iterators)
    return parallel and len(operation.results) == 1 and _maps(operation)[-1] == identity


def _maps(operation: ir.Operation) -> list[ir.AffineMap]:
    return [ir.AffineMapAttr(map_).value for map_ in ir.ArrayAttr(operation.attributes["indexing_maps"])]


def _is_stretched(operation: ir.Operation, number: int) -> bool:
    """Whether an input is an expansion that is read element by element."""
    value, map_ = operation.operands[number], _maps(operation)[number]
    simple = all(isinstance(each, ir.AffineDimExpr) for each in map_.results)
    return simple and not isinstance(value.owner, ir.Block) and _stretch(value.owner.operation) is not None


def _rebuild(operation: ir.Operation, inputs: int, found: list[int]) -> None:
    """Rebuilds `operation` without the inputs `found`, whose elements its body extracts instead."""
    kept = [number for number in range(len(operation.operands)) if number not in found]
    maps = _maps(operation)
    with operation.location, ir.InsertionPoint(operation):
        made = ir.Operation.create(
            "linalg.generic", results=[result.type for result in operation.results],
            operands=[operation.operands[number] for number in kept], regions=1, attributes={
                "iterator_types": operation.attributes["iterator_types"],
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs - len(found), 1]),
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(maps[number]) for number in kept]),
            },
        )  # fmt: skip
        old = operation.regions[0].blocks[0]
        arguments = list(old.arguments)
        block = made.regions[0].blocks.append(
            *(arguments[number].type for number in kept), arg_locs=[operation.location] * len(kept)
        )
        with ir.InsertionPoint(block):
            for number in found:
                stretch = operation.operands[number].owner.operation
                arguments[number].replace_all_uses_with(_element(stretch, maps[number]))
        for number, argument in zip(kept, block.arguments, strict=True):
            arguments[number].replace_all_uses_with(argument)
        for entry in list(old.operations):
            entry.operation.detach_from_parent()
            block.append(entry)
    operation.results[0].replace_all_uses_with(made.results[0])
    operation.erase()


def _element(stretch: ir.Operation, map_: ir.AffineMap) -> ir.Value:
    """Copies the body of an expansion, to compute the element that the loops read by `map_`."""
    mapping: dict[ir.Value, ir.Value] = {}
    for entry in stretch.regions[0].blocks[0].operations:
        if entry.operation.name == "linalg.yield":
            return mapping[entry.operation.operands[0]]
        copy = entry.operation.clone()
        for number, operand in enumerate(copy.operands):
            copy.operands[number] = mapping.get(operand, operand)
        if copy.name == "linalg.index":
            place = map_.results[ir.IntegerAttr(copy.attributes["dim"]).value]
            dimension = ir.AffineDimExpr(place).position
            copy.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dimension)
        mapping[entry.operation.results[0]] = copy.results[0]
    raise ValueError("a body without an end")
