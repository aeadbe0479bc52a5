"""The computation of a loop nest, independent of its loops: statements over dimensions, each one store of one value.

    for i, j { C[i, j] = reduce(k, +, 0, A[i, k] * B[k, j]) + b[j] }

Dimensions are numbers; each runs from 0 to its extent, with step 1. Conditions are linear expressions that must be
non-negative for an iteration to be executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine


class Unraisable(Exception):
    """A nest has no tensor form; it then remains a loop nest. The message is the reason."""


@dataclass(frozen=True)
class Load:
    """An element of a memref, or the constant `otherwise` in iterations that violate `conditions`. `place` is its
    position among the program's loads and stores, `within` the dimensions of the loops around it."""

    memref: ir.Value
    indices: tuple[Affine, ...]
    place: int
    within: tuple[int, ...]
    conditions: tuple[Affine, ...] = ()
    otherwise: float | int = 0


@dataclass(frozen=True)
class NestScalar:
    """A value defined outside the nest, or a constant."""

    value: ir.Value


@dataclass(frozen=True)
class Index:
    """A loop counter or a linear expression of counters, used as data."""

    value: Affine


@dataclass(frozen=True, eq=False)
class Compute:
    """A scalar operation."""

    name: str
    operands: tuple[Node, ...]
    kind: ir.Type
    attributes: dict[str, ir.Attribute]


@dataclass(frozen=True, eq=False)
class Reduce:
    """`combiner` over `initial` and the terms of all iterations of `dims` that satisfy `conditions`, in any order."""

    dims: tuple[int, ...]
    conditions: tuple[Affine, ...]
    combiner: str
    initial: Node
    term: Node
    kind: ir.Type


Node = Load | NestScalar | Index | Compute | Reduce


@dataclass(frozen=True, eq=False)
class Statement:
    """A store of `value`, in all iterations of `dims` that satisfy `conditions`."""

    dims: tuple[int, ...]
    conditions: tuple[Affine, ...]
    memref: ir.Value
    indices: tuple[Affine, ...]
    value: Node
    place: int


@dataclass
class LoopNest:
    """Statements in program order, and the extents of their dimensions; placeholders of `sizes.py` for unknown
    ones."""

    extents: dict[int, int]
    statements: list[Statement]


def nodes(node: Node) -> Iterator[Node]:
    """`node` and all nodes below it."""
    yield node
    if isinstance(node, Compute):
        for operand in node.operands:
            yield from nodes(operand)
    elif isinstance(node, Reduce):
        yield from nodes(node.initial)
        yield from nodes(node.term)


def loads(node: Node) -> list[Load]:
    return [found for found in nodes(node) if isinstance(found, Load)]


def linears(node: Node) -> Iterator[Affine]:
    """Every linear expression in `node`."""
    for found in nodes(node):
        if isinstance(found, Load):
            yield from found.indices
            yield from found.conditions
        elif isinstance(found, Index):
            yield found.value
        elif isinstance(found, Reduce):
            yield from found.conditions


def statement_linears(statement: Statement) -> Iterator[Affine]:
    yield from statement.indices
    yield from statement.conditions
    yield from linears(statement.value)


def free_dims(node: Node) -> frozenset[int]:
    """The dimensions that the value of `node` depends on."""
    if isinstance(node, Load):
        return frozenset[int]().union(*(index.dims for index in (*node.indices, *node.conditions)))
    if isinstance(node, Index):
        return frozenset(node.value.dims)
    if isinstance(node, Compute):
        return frozenset[int]().union(*(free_dims(operand) for operand in node.operands))
    if isinstance(node, Reduce):
        inner = free_dims(node.term).union(*(condition.dims for condition in node.conditions))
        return free_dims(node.initial) | (inner - frozenset(node.dims))
    return frozenset()


def rewrite(node: Node, linear: Callable[[Affine], Affine], dims: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Node:
    """`node` with `linear` applied to every linear expression and `dims` to the dimensions of reductions."""
    if isinstance(node, Load):
        return replace(
            node, indices=tuple(map(linear, node.indices)), conditions=tuple(map(linear, node.conditions)),
            within=dims(node.within),
        )
    if isinstance(node, Index):
        return Index(linear(node.value))
    if isinstance(node, Compute):
        return replace(node, operands=tuple(rewrite(operand, linear, dims) for operand in node.operands))
    if isinstance(node, Reduce):
        return replace(
            node, dims=dims(node.dims), conditions=tuple(map(linear, node.conditions)),
            initial=rewrite(node.initial, linear, dims), term=rewrite(node.term, linear, dims),
        )
    return node


def rewrite_statement(
    statement: Statement, linear: Callable[[Affine], Affine], dims: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Statement:
    return replace(
        statement, dims=dims(statement.dims), conditions=tuple(map(linear, statement.conditions)),
        indices=tuple(map(linear, statement.indices)), value=rewrite(statement.value, linear, dims),
    )
