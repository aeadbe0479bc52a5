"""Completes the signature of a function that became a plan over devices, from those of its regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from motet.artifact.expressions import show, substitute
from motet.artifact.schema import Constraint, Expr, Plan, Signature, Step
from motet.compiler.scheduling.signatures import with_extents
from motet.errors import CompileError, Location


def complete(
    signature: Signature, plan: Plan, regions: Mapping[str, Signature], loops: Mapping[str, Location]
) -> Signature:
    """`signature` with its results' extents, and the constraints of its regions. Raises CompileError for a loop, at its
    place in `loops`, whose iterations yield other extents than they receive."""
    extents: dict[int, list[Expr]] = {
        number: spec.shape for number, spec in zip(plan.inputs, signature.inputs, strict=True)
    }
    constraints = list(signature.constraints)
    _walk(plan, regions, extents, constraints, loops)
    return with_extents(signature, [extents[number] for number in plan.results], constraints)


def _walk(
    plan: Plan, regions: Mapping[str, Signature], extents: dict[int, list[Expr]], constraints: list[Constraint],
    loops: Mapping[str, Location],
) -> None:
    """Adds the extents of all values to `extents`, which has those of the inputs, and the regions' constraints."""
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


def _bindings(step: Step, region: Signature, extents: Mapping[int, list[Expr]]) -> dict[str, Expr]:
    return {symbol.name: extents[step.operands[symbol.input]][symbol.axis] for symbol in region.symbols}
