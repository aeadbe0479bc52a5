"""What callers see of a function whose work is a plan over devices: its signature, told by its regions'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from motet.artifact.expressions import show
from motet.artifact.schema import Constraint, Expr, Plan, Signature, Step, TensorSpec
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.expressions import substitute
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, NAME, PARAMETER, STRIDED, caller_dtype, state_of, value_of
from motet.compiler.kernels.reader.reading import dtype_of
from motet.compiler.scheduling.shapes import Shapes
from motet.errors import CompileError, Location


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
            value=value_of(attributes), state=state_of(attributes),
        )
        for index, (argument, attributes) in enumerate(
            zip(block.arguments, _dictionaries(function, "arg_attrs", len(block.arguments)), strict=True)
        )
        if PARAMETER not in attributes
    ]
    results = [
        TensorSpec(
            _name(attributes, f"result{index}"), [], caller_dtype(dtype_of(operand.type), attributes),
            _destination(attributes), state=state_of(attributes),
        )
        for index, (operand, attributes) in enumerate(
            zip(terminator.operands, _dictionaries(function, "res_attrs", len(terminator.operands)), strict=True)
        )
    ]
    return Signature(symbol_name(function), inputs, results, shapes.symbols, list(constraints))


def complete(
    signature: Signature, plan: Plan, regions: Mapping[str, Signature], loops: Mapping[str, Location]
) -> Signature:
    """`signature` with its results' extents, and with what its regions take for granted of extents. Raises CompileError
    for a loop, at its place in `loops`, whose iterations hand on other extents than they are given."""
    extents: dict[int, list[Expr]] = {
        number: spec.shape for number, spec in zip(plan.inputs, signature.inputs, strict=True)
    }
    constraints = list(signature.constraints)
    _walk(plan, regions, extents, constraints, loops)
    results = [
        TensorSpec(spec.name, extents[number], spec.dtype, spec.destination, state=spec.state)
        for number, spec in zip(plan.results, signature.results, strict=True)
    ]
    results = as_large_as_destinations(signature.inputs, results, constraints)
    return Signature(signature.name, signature.inputs, results, signature.symbols, constraints)


def _walk(
    plan: Plan, regions: Mapping[str, Signature], extents: dict[int, list[Expr]], constraints: list[Constraint],
    loops: Mapping[str, Location],
) -> None:
    """Adds the extents of all values to `extents`, which has those of the inputs, and what regions take for granted."""
    known = {(own.relation, str(own.left), str(own.right)) for own in constraints}
    for step in plan.steps:
        if step.op == "transfer":
            extents[step.results[0]] = extents[step.operands[0]]
            continue
        if step.loop is not None:
            carried, same = step.operands[: step.loop.carried], step.operands[step.loop.carried :]
            own = {number: extents[number] for number in step.operands}
            _, *passed = _walk_part(step.loop.condition, step.operands, own, regions, constraints, loops)
            own.update(zip(step.results, passed, strict=True))
            handed_on = _walk_part(step.loop.body, [*step.results, *same], own, regions, constraints, loops)
            _expect_same([extents[number] for number in carried], handed_on, loops.get(step.region))
            extents.update(zip(step.results, passed, strict=True))
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


def _walk_part(
    plan: Plan, inputs: Sequence[int], extents: Mapping[int, list[Expr]], regions: Mapping[str, Signature],
    constraints: list[Constraint], loops: Mapping[str, Location],
) -> list[list[Expr]]:
    """The extents of the results of a loop's condition or body, whose inputs are the values `inputs` of `extents`."""
    own = {number: extents[value] for number, value in zip(plan.inputs, inputs, strict=True)}
    _walk(plan, regions, own, constraints, loops)
    return [own[number] for number in plan.results]


def _expect_same(carried: Sequence[list[Expr]], handed_on: Sequence[list[Expr]], place: Location | None) -> None:
    for before, after in zip(carried, handed_on, strict=True):
        if before != after:
            given, made = ("x".join(map(show, extents)) for extents in (before, after))
            raise CompileError(
                f"a loop whose parts are placed on several devices is given a tensor of extents {given} and hands on "
                f"one of {made}; expected equal extents, or all of the loop on one device", place,
            )


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
        found.append(TensorSpec(spec.name, list(shape), spec.dtype, spec.destination, state=spec.state))
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
