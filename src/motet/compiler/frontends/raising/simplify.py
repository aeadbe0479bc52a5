"""Reduces the dimensions of a nest: drops those of one iteration, merges those that only occur together.

    for b in 0..8, t in 0..128 { C[128*b + t] = … }        →        for i in 0..1024 { C[i] = … }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

from motet.compiler.frontends.raising.nest import (
    Compute,
    Load,
    LoopNest,
    NestScalar,
    Node,
    Reduce,
    free_dims,
    loads,
    nodes,
    rewrite_statement,
    statement_linears,
)
from motet.compiler.frontends.raising.order import root
from motet.compiler.frontends.raising.sizes import Sizes, is_known
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine


def simplify(nest: LoopNest, sizes: Sizes) -> None:
    """Rewrites `nest` in place."""
    nest.statements = [replace(statement, value=_begin_with_what_is_added(statement.value))
                       for statement in nest.statements]  # fmt: skip
    _drop_units(nest)
    while (pair := _mergeable(nest)) is not None:
        outer, inner = pair
        nest.extents[inner] *= nest.extents.pop(outer)
        _substitute(nest, {outer: Affine()})
    for dim in nest.extents:
        _shorten(nest, dim, sizes)


def _shorten(nest: LoopNest, dim: int, sizes: Sizes) -> None:
    """Ends `dim` where conditions on it alone, the same in all statements, end it: `if (i < n)`."""
    if any(isinstance(node, Reduce) and dim in node.dims for s in nest.statements for node in nodes(s.value)):
        return
    found = {
        frozenset(condition for condition in statement.conditions if _is_upper_bound(condition, dim))
        for statement in nest.statements if dim in statement.dims
    }
    if len(found) != 1:
        return
    ends = found.pop()
    known = [end.constant // -end.terms[0][1] + 1 for end in ends if is_known(end.constant)]
    if is_known(nest.extents[dim]) and 0 < (end := min(known, default=0)) < nest.extents[dim]:
        nest.extents[dim] = end
    unknown = [end for end in ends if not (is_known(end.constant) and is_known(nest.extents[dim]))]
    if any(end.terms[0][1] != -1 for end in unknown):
        return
    for end in unknown:
        nest.extents[dim] = sizes.least(nest.extents[dim], end.constant + 1)
    nest.statements = [
        replace(statement, conditions=tuple(c for c in statement.conditions if c not in unknown))
        for statement in nest.statements
    ]


def _is_upper_bound(condition: Affine, dim: int) -> bool:
    return len(condition.terms) == 1 and condition.terms[0][0] == dim and condition.terms[0][1] < 0


def _begin_with_what_is_added(node: Node) -> Node:
    """Makes b the initial value of `reduce(+, 0, t) + b`: a bias then needs no separate pass over the sums."""
    if not isinstance(node, Compute):
        return node
    node = replace(node, operands=tuple(map(_begin_with_what_is_added, node.operands)))
    if node.name not in ("arith.addf", "arith.addi"):
        return node
    for sums, added in (node.operands, node.operands[::-1]):
        if (
            isinstance(sums, Reduce) and sums.combiner == node.name and isinstance(added, Load)
            and _is_zero(sums.initial) and free_dims(added) < free_dims(sums)
        ):
            return replace(sums, initial=added)
    return node


def _is_zero(node: Node) -> bool:
    if not isinstance(node, NestScalar) or isinstance(node.value.owner, ir.Block):
        return False
    constant = node.value.owner.operation
    if constant.name != "arith.constant":
        return False
    value = constant.attributes["value"]
    return isinstance(value, (ir.FloatAttr, ir.IntegerAttr)) and value.value == 0


def _linears(nest: LoopNest) -> list[Affine]:
    return [found for statement in nest.statements for found in statement_linears(statement)]


def _drop_units(nest: LoopNest) -> None:
    """Drops dimensions of one iteration, except where an index is only that dimension: it then denotes an axis."""
    for dim in [dim for dim, extent in nest.extents.items() if extent == 1]:
        if not any(found.single == dim for found in _linears(nest)):
            del nest.extents[dim]
            _substitute(nest, {dim: Affine()})


def _substitute(nest: LoopNest, replaced: Mapping[int, Affine]) -> None:
    """Replaces dimensions by linear expressions, which eliminates them."""
    nest.statements = [
        rewrite_statement(
            statement, lambda linear: linear.substitute(replaced),
            lambda dims: tuple(dim for dim in dims if dim not in replaced),
        )
        for statement in nest.statements
    ]


def _mergeable(nest: LoopNest) -> tuple[int, int] | None:
    """Two dimensions of the same loops that occur as one number, with the first as the more significant part."""
    groups = [statement.dims for statement in nest.statements]
    written = [root(statement.memref) for statement in nest.statements]
    for statement in nest.statements:
        groups += [node.dims for node in nodes(statement.value) if isinstance(node, Reduce)]
        groups += [load.within for load in loads(statement.value) if root(load.memref) in written]
    found = set(_linears(nest))
    for outer, inner in permutations(nest.extents, 2):
        extent = nest.extents[inner]
        if (
            all((outer in dims) == (inner in dims) for dims in groups)
            and all(linear.coefficient(outer) == linear.coefficient(inner) * extent for linear in found)
            and any(linear.coefficient(outer) for linear in found)
        ):
            return outer, inner
    return None
