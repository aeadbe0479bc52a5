"""Checks that the statements of a nest may run one after the other, each over all of its iterations.

    for i { A[i] = x[i];  B[i] = A[i] * 2 }    →    for i { A[i] = x[i] };  for i { B[i] = A[i] * 2 }

is allowed, because `B[i]` reads what the same iteration wrote; with `A[i+1]` it would not be.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.raising.nest import Load, LoopNest, Statement, Unraisable, loads
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine

VIEWS = frozenset({
    "memref.cast", "memref.memory_space_cast", "memref.subview", "memref.expand_shape", "memref.collapse_shape",
    "memref.reinterpret_cast", "memref.view", "memref.reshape", "memref.transpose",
})  # fmt: skip


@dataclass(frozen=True)
class _Access:
    """A load or store; `within` are the dimensions of the loops around it."""

    memref: ir.Value
    indices: tuple[Affine, ...]
    within: tuple[int, ...]
    writes: bool


def check_order(nest: LoopNest) -> None:
    """Raises Unraisable if statements of `nest` must interleave, or if one reads other elements of what it writes."""
    for number, later in enumerate(nest.statements):
        _check_self(nest, later)
        for earlier in nest.statements[:number]:
            _check_pair(nest, earlier, later)


def root(memref: ir.Value) -> ir.Value:
    """The memory that `memref` is a view of."""
    while not isinstance(memref.owner, ir.Block) and memref.owner.operation.name in VIEWS:
        memref = memref.owner.operation.operands[0]
    return memref


def _check_self(nest: LoopNest, statement: Statement) -> None:
    """Checks that a statement only reads the element that it writes, or reads before a loop begins that writes."""
    for load in loads(statement.value):
        if root(load.memref) != root(statement.memref):
            continue
        if _same(load, statement):
            if any(dim not in load.within and nest.extents[dim] > 1 for dim in statement.dims):
                raise Unraisable("a statement uses in every iteration what was read before the first one")
            continue
        shared = [dim for dim in statement.dims if dim in load.within and nest.extents[dim] > 1]
        outside = any(dim not in load.within for dim in statement.dims)
        a, b = _read(load), _write(statement)
        if not outside or a.memref != b.memref or not all(_meet_only_in_one_iteration(a, b, dim) for dim in shared):
            raise Unraisable("a statement reads other elements of what it writes")


def _same(load: Load, statement: Statement) -> bool:
    return load.memref == statement.memref and load.indices == statement.indices


def _check_pair(nest: LoopNest, earlier: Statement, later: Statement) -> None:
    for load in loads(later.value):
        if root(load.memref) == root(earlier.memref) and load.place < earlier.place:
            raise Unraisable("a statement uses what was read before another one wrote there")
    for a in _accesses(earlier):
        for b in _accesses(later):
            if not (a.writes or b.writes) or root(a.memref) != root(b.memref):
                continue
            shared = [dim for dim in a.within if dim in b.within and nest.extents[dim] > 1]
            if a.memref != b.memref or not all(_meet_only_in_one_iteration(a, b, dim) for dim in shared):
                raise Unraisable("statements depend on one another across iterations")


def _accesses(statement: Statement) -> list[_Access]:
    return [*map(_read, loads(statement.value)), _write(statement)]


def _read(load: Load) -> _Access:
    return _Access(load.memref, load.indices, load.within, False)


def _write(statement: Statement) -> _Access:
    return _Access(statement.memref, statement.indices, statement.dims, True)


def _meet_only_in_one_iteration(a: _Access, b: _Access, dim: int) -> bool:
    """Whether equal elements imply equal values of `dim`: the same axis depends on `dim` alone, equally in both."""
    return any(
        left == right and left.dims == (dim,) for left, right in zip(a.indices, b.indices, strict=True)
    )
