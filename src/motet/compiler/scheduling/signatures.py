"""Reads the signature of a public function: the inputs and results that callers see, without parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from motet.artifact.schema import Constraint, Expr, Signature, TensorSpec
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, NAME, PARAMETER, STRIDED, caller_dtype, memory_of, state_of, value_of
from motet.compiler.ir.short_types import SHORT_TYPES
from motet.compiler.kernels.layout import callee
from motet.compiler.kernels.reader.reading import dtype_of
from motet.compiler.scheduling.shapes import Shapes


def read_signature(function: ir.Operation, shapes: Shapes, required: Sequence[Constraint] = ()) -> Signature:
    """The signature of a function with the extents `shapes` of its values. `required` are the constraints of its
    operations on extents as in the source; its kernels may have more."""
    interface = read_interface(function, shapes)
    extents = [shapes.of(operand) for operand in _terminator(function).operands]
    known = {frozenset((str(each.left), str(each.right))) for each in required if each.relation == "equal"}
    more = [Constraint(a, b) for a, b in shapes.equalities if frozenset((str(a), str(b))) not in known]
    return with_extents(interface, extents, [*required, *more])


def read_interface(function: ir.Operation, shapes: Shapes, required: Sequence[Constraint] = ()) -> Signature:
    """The signature of a function, with empty lists for the extents of its results."""
    block = function.regions[0].blocks[0]
    inputs = [
        TensorSpec(
            _name(attributes, f"arg{index}"), list(shapes.of(argument)),
            _dtype(argument.type, attributes), strided=STRIDED in attributes,
            value=value_of(attributes), state=state_of(attributes),
            memory=memory_of(attributes, f"{symbol_name(function)}: argument {index}"),
        )
        for index, (argument, attributes) in enumerate(
            zip(block.arguments, _dictionaries(function, "arg_attrs", len(block.arguments)), strict=True)
        )
        if PARAMETER not in attributes
    ]
    operands = _terminator(function).operands
    results = [
        TensorSpec(
            _name(attributes, f"result{index}"), [], _dtype(operand.type, attributes),
            _destination(attributes), state=state_of(attributes),
            memory=memory_of(attributes, f"{symbol_name(function)}: result {index}"),
        )
        for index, (operand, attributes) in enumerate(
            zip(operands, _dictionaries(function, "res_attrs", len(operands)), strict=True)
        )
    ]
    return Signature(symbol_name(function), inputs, results, shapes.symbols, list(required))


def _dtype(kind: ir.Type, attributes: ir.DictAttr) -> str:
    """The dtype that callers see. Before the normal form short elements are not yet bytes."""
    element = str(ir.RankedTensorType(kind).element_type)
    return caller_dtype(element if element in SHORT_TYPES else dtype_of(kind), attributes)


def with_extents(
    signature: Signature, extents: Sequence[Sequence[Expr]], constraints: Sequence[Constraint]
) -> Signature:
    """`signature` with the extents of its results and with `constraints`. A result that is written to an input has that
    input's extents; a constraint, checked in every call, requires its own extents to be equal to them."""
    constraints = list(constraints)
    results: list[TensorSpec] = []
    for spec, shape in zip(signature.results, extents, strict=True):
        if spec.destination is not None:
            destination = signature.inputs[spec.destination]
            for axis, (own, wanted) in enumerate(zip(shape, destination.shape, strict=True)):
                if own != wanted:
                    text = f"axis {axis} of {destination.name} must be as long as that of what is written to it"
                    constraints.append(Constraint(wanted, own, "equal", text))
            shape = destination.shape
        results.append(msgspec.structs.replace(spec, shape=list(shape)))
    return Signature(signature.name, signature.inputs, results, signature.symbols, constraints)


def function_shapes(function: ir.Operation, kernels: Mapping[str, ir.Operation]) -> Shapes:
    """The extents of every value of a public function that calls `kernels`, functions by name."""
    shapes = Shapes(function)
    for entry in function.regions[0].blocks[0].operations:
        operation = entry.operation
        if operation.name != "func.call":
            shapes.read(operation)
            continue
        kernel = kernels[callee(operation)]
        inner = Shapes(kernel)
        inner.equalities += shapes.equalities
        for argument, operand in zip(kernel.regions[0].blocks[0].arguments, operation.operands, strict=True):
            inner.tensors[argument] = shapes.of(operand)
        returned = inner.results_of(kernel)
        shapes.equalities += [pair for pair in inner.equalities if pair not in shapes.equalities]
        shapes.tensors.update(zip(operation.results, returned, strict=True))
    return shapes


def _terminator(function: ir.Operation) -> ir.Operation:
    operations = function.regions[0].blocks[0].operations
    return operations[len(operations) - 1].operation


def _dictionaries(function: ir.Operation, group: str, count: int) -> list[ir.DictAttr]:
    """The attributes of every argument or result of a function."""
    if group not in function.attributes:
        return [ir.DictAttr.get({})] * count
    return [ir.DictAttr(attribute) for attribute in ir.ArrayAttr(function.attributes[group])]


def _name(attributes: ir.DictAttr, default: str) -> str:
    return ir.StringAttr(attributes[NAME]).value if NAME in attributes else default


def _destination(attributes: ir.DictAttr) -> int | None:
    return ir.IntegerAttr(attributes[DESTINATION]).value if DESTINATION in attributes else None
