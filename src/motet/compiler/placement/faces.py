"""What callers see of a function whose work is a plan over devices: its signature, told by its regions'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from motet.artifact.schema import Constraint, Expr, Plan, Signature, Step, TensorSpec
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.expressions import substitute
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, NAME, PARAMETER, STRIDED, caller_dtype, value_of
from motet.compiler.kernels.reader.reading import dtype_of
from motet.compiler.scheduling.shapes import Shapes


def face(function: ir.Operation, constraints: Sequence[Constraint]) -> Signature:
    """What callers see of a function, but for the extents of its results, which its regions tell. `constraints` are
    what the whole function takes for granted of extents (`scheduling/requirements.py`): assertions are in no region."""
    shapes = Shapes(function)
    block = function.regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1].operation
    inputs = [
        TensorSpec(
            _name(attributes, f"arg{index}"), list(shapes.of(argument)),
            caller_dtype(dtype_of(argument.type), attributes), strided=STRIDED in attributes,
            value=value_of(attributes),
        )
        for index, (argument, attributes) in enumerate(
            zip(block.arguments, _dictionaries(function, "arg_attrs", len(block.arguments)), strict=True)
        )
        if PARAMETER not in attributes
    ]
    results = [
        TensorSpec(
            _name(attributes, f"result{index}"), [], caller_dtype(dtype_of(operand.type), attributes),
            _destination(attributes),
        )
        for index, (operand, attributes) in enumerate(
            zip(terminator.operands, _dictionaries(function, "res_attrs", len(terminator.operands)), strict=True)
        )
    ]
    return Signature(symbol_name(function), inputs, results, shapes.symbols, list(constraints))


def complete(signature: Signature, plan: Plan, regions: Mapping[str, Signature]) -> Signature:
    """`signature` with its results' extents, and with what its regions take for granted of extents."""
    extents: dict[int, list[Expr]] = {
        number: spec.shape for number, spec in zip(plan.inputs, signature.inputs, strict=True)
    }
    constraints = list(signature.constraints)
    known = {(own.relation, str(own.left), str(own.right)) for own in constraints}
    for step in plan.steps:
        if step.op == "transfer":
            extents[step.results[0]] = extents[step.operands[0]]
            continue
        region = regions[step.region]
        symbols = _bindings(step, region, extents)
        for number, spec in zip(step.results, region.results, strict=True):
            extents[number] = [substitute(extent, symbols) for extent in spec.shape]
        for own in region.constraints:
            constraint = structs.replace(
                own, left=substitute(own.left, symbols), right=substitute(own.right, symbols)
            )
            key = constraint.relation, str(constraint.left), str(constraint.right)
            if constraint.left != constraint.right and key not in known:
                known.add(key)
                constraints.append(constraint)
    results = [
        TensorSpec(spec.name, extents[number], spec.dtype, spec.destination)
        for number, spec in zip(plan.results, signature.results, strict=True)
    ]
    results = as_large_as_destinations(signature.inputs, results, constraints)
    return Signature(signature.name, signature.inputs, results, signature.symbols, constraints)


def as_large_as_destinations(
    inputs: Sequence[TensorSpec], results: Sequence[TensorSpec], constraints: list[Constraint]
) -> list[TensorSpec]:
    """`results` with the extents of the inputs that they are written to; that these are their own is added to
    `constraints`, which every call is checked for."""
    found: list[TensorSpec] = []
    for spec in results:
        if spec.destination is None:
            found.append(spec)
            continue
        shape = inputs[spec.destination].shape
        destination = inputs[spec.destination].name
        for axis, (own, wanted) in enumerate(zip(spec.shape, shape, strict=True)):
            if own != wanted:
                text = f"axis {axis} of {destination} must be as long as that of what is written to it"
                constraints.append(Constraint(wanted, own, "equal", text))
        found.append(TensorSpec(spec.name, list(shape), spec.dtype, spec.destination))
    return found


def _bindings(step: Step, region: Signature, extents: Mapping[int, list[Expr]]) -> dict[str, Expr]:
    return {symbol.name: extents[step.operands[symbol.input]][symbol.axis] for symbol in region.symbols}


def _dictionaries(function: ir.Operation, group: str, count: int) -> list[ir.DictAttr]:
    if group not in function.attributes:
        return [ir.DictAttr.get({})] * count
    return [ir.DictAttr(attribute) for attribute in ir.ArrayAttr(function.attributes[group])]


def _name(attributes: ir.DictAttr, default: str) -> str:
    return ir.StringAttr(attributes[NAME]).value if NAME in attributes else default


def _destination(attributes: ir.DictAttr) -> int | None:
    return ir.IntegerAttr(attributes[DESTINATION]).value if DESTINATION in attributes else None
