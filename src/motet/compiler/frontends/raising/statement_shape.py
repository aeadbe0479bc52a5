"""Normalises statements of a loop nest before they are raised: the dimensions are those of the stored elements.

Conditions on single dimensions become extents, reductions in memory become reductions of values, and stores run
upwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from motet.compiler.frontends.raising.nest import (
    Compute,
    Load,
    Node,
    Reduce,
    Statement,
    Unraisable,
    free_dims,
    loads,
    nodes,
    rewrite_statement,
)
from motet.compiler.frontends.raising.read import COMBINERS
from motet.compiler.frontends.raising.sizes import is_known
from motet.compiler.ir.affine import Affine


def shape_statement(statement: Statement, extents: dict[int, int]) -> tuple[Statement, dict[int, int]]:
    """Normalises the statement: conditions on single dimensions become extents, reductions in memory become
    reductions of values, and stores run upwards."""
    statement = _as_reduction(statement)
    statement = _tighten(statement, extents)
    if statement.conditions:
        raise Unraisable("a store under a condition on several counters")
    for index in statement.indices:
        if len(index.terms) > 1:
            raise Unraisable("a store whose index has several counters")
        if index.terms and index.terms[0][1] < 0:
            dim = index.terms[0][0]
            if not is_known(extents[dim]):
                raise Unraisable("a store counted downwards from what is not known")
            statement = _replace(statement, dim, Affine(((dim, -1),), extents[dim] - 1))
    used = [index.terms[0][0] for index in statement.indices if index.terms]
    if len(set(used)) != len(used):
        raise Unraisable("a store along a diagonal")
    return replace(statement, dims=tuple(used)), extents


def _as_reduction(statement: Statement) -> Statement:
    """Converts `C[i] = C[i] + t[i, k]` over i and k, and stores repeated by loops, to a reduction over k."""
    stored = frozenset[int]().union(*(index.dims for index in statement.indices))
    over = tuple(dim for dim in statement.dims if dim not in stored)
    if not over:
        return statement
    value = statement.value
    concerned = tuple(c for c in statement.conditions if set(c.dims) & set(over))
    kept = tuple(c for c in statement.conditions if not set(c.dims) & set(over))
    reads_itself = any(load.memref == statement.memref for load in loads(value))
    if not reads_itself and not free_dims(value) & set(over) and not concerned:
        return replace(statement, dims=tuple(dim for dim in statement.dims if dim in stored))
    if isinstance(value, Compute) and value.name == "math.fma":
        value = Compute("arith.addf", (Compute("arith.mulf", value.operands[:2], value.kind, {}), value.operands[2]),
                        value.kind, {})  # fmt: skip
    if isinstance(value, Compute) and value.name == "arith.subf":
        value = Compute("arith.addf", (value.operands[0], Compute("arith.negf", value.operands[1:], value.kind, {})),
                        value.kind, {})  # fmt: skip
    if not isinstance(value, Compute) or value.name not in COMBINERS:
        raise Unraisable("a store repeated over a loop that is no reduction")
    sides = [side for side in value.operands if _is_target(side, statement)]
    terms = [side for side in value.operands if not _is_target(side, statement)]
    if len(sides) != 1 or any(load.memref == statement.memref for load in loads(terms[0])):
        raise Unraisable("a store repeated over a loop that is no reduction")
    reduced = Reduce(over, concerned, value.name, sides[0], terms[0], value.kind)
    return replace(
        statement, dims=tuple(dim for dim in statement.dims if dim in stored), conditions=kept, value=reduced
    )


def _is_target(node: Node, statement: Statement) -> bool:
    return isinstance(node, Load) and node.memref == statement.memref and node.indices == statement.indices


def _tighten(statement: Statement, extents: dict[int, int]) -> Statement:
    """Converts conditions on a single counter of the statement to a shorter range."""
    while True:
        found = next(
            ((c, c.terms[0]) for c in _all_conditions(statement) if len(c.terms) == 1 and not holds(c, extents)), None
        )
        if found is None:
            break
        condition, (dim, coefficient) = found
        low = max(0, -(condition.constant // coefficient)) if coefficient > 0 else 0
        high = extents[dim] - 1 if coefficient > 0 else min(extents[dim] - 1, condition.constant // -coefficient)
        if high < low or dim not in _owned(statement, condition):
            raise Unraisable("a condition that is never, or not for its own loop, fulfilled")
        extents[dim] = high - low + 1
        statement = _replace(statement, dim, Affine(((dim, 1),), low))
    return replace(statement, conditions=tuple(c for c in statement.conditions if not holds(c, extents)))


def _all_conditions(statement: Statement) -> list[Affine]:
    inner = [c for node in nodes(statement.value) if isinstance(node, Reduce) for c in node.conditions]
    return [*statement.conditions, *inner]


def _owned(statement: Statement, condition: Affine) -> tuple[int, ...]:
    """The dimensions that a condition bounds: those of the loops that contain it directly, not of outer loops."""
    if condition in statement.conditions:
        return statement.dims
    return tuple(
        dim for node in nodes(statement.value) if isinstance(node, Reduce) and condition in node.conditions
        for dim in node.dims
    )


def holds(condition: Affine, extents: Mapping[int, int]) -> bool:
    return condition.range(extents)[0] >= 0


def _replace(statement: Statement, dim: int, by: Affine) -> Statement:
    return rewrite_statement(statement, lambda linear: linear.substitute({dim: by}), lambda dims: dims)
