"""Splits axes of memrefs that linearize several: `C[64*i + j]` becomes `C'[i, j]`, where C' views C as rows of 64.

An axis is split by a stride c if every index into it is a multiple of c plus a number in `[0, c)`. Views are created
before the loop; they are free, whether the nest is raised or not.
"""

from __future__ import annotations

from dataclasses import replace

from motet.compiler.frontends.raising.nest import Compute, Load, LoopNest, Node, Reduce, Statement, loads
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine


def unflatten(nest: LoopNest, before: ir.Operation) -> None:
    """Rewrites `nest` in place, creating views before `before`."""
    tried: list[tuple[ir.Value, int, int]] = []
    while (found := _stride(nest, tried)) is not None:
        memref, axis, stride = found
        tried.append(found)
        view = _view(memref, axis, stride, before)
        nest.statements = [_on_view(statement, memref, axis, stride, view, nest) for statement in nest.statements]


def _accesses(nest: LoopNest) -> list[Load | Statement]:
    return [access for statement in nest.statements for access in (statement, *loads(statement.value))]


def _stride(nest: LoopNest, tried: list[tuple[ir.Value, int, int]]) -> tuple[ir.Value, int, int] | None:
    """A memref, an axis of it, and a stride that splits it; the largest stride first."""
    accesses = _accesses(nest)
    found: list[tuple[int, ir.Value, int]] = []
    for access in accesses:
        kind = ir.MemRefType(access.memref.type)
        if kind.layout != ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank)):
            continue
        for axis, index in enumerate(access.indices):
            if len(index.terms) > 1:
                found += [(abs(c), access.memref, axis) for _, c in index.terms if abs(c) > 1]
    for stride, memref, axis in sorted(found, key=lambda one: -one[0]):
        extent = ir.MemRefType(memref.type).shape[axis]
        if (memref, axis, stride) in tried or extent <= 0 or extent % stride or extent == stride:
            continue
        there = [access for access in accesses if access.memref == memref]
        if all(_fits(access.indices[axis], stride, extent, nest) for access in there):
            return memref, axis, stride
    return None


def _fits(index: Affine, stride: int, extent: int, nest: LoopNest) -> bool:
    """Whether both parts of `index` stay in bounds of their axes."""
    parts = _parts(index, stride, nest)
    if parts is None:
        return False
    low, high = parts[0].range(nest.extents)
    return low >= 0 and high < extent // stride


def _parts(index: Affine, stride: int, nest: LoopNest) -> tuple[Affine, Affine] | None:
    """`index` split into a multiple of `stride`, divided by it, and the rest."""
    rest = Affine.of({dim: c for dim, c in index.terms if c % stride}, index.constant)
    whole = rest.range(nest.extents)[0] // stride * stride
    rest = rest.plus(-whole)
    low, high = rest.range(nest.extents)
    if low < 0 or high >= stride:
        return None
    return Affine.of({dim: c // stride for dim, c in index.terms if not c % stride}, whole // stride), rest


def _view(memref: ir.Value, axis: int, stride: int, before: ir.Operation) -> ir.Value:
    kind = ir.MemRefType(memref.type)
    shape = [*kind.shape[:axis], kind.shape[axis] // stride, stride, *kind.shape[axis + 1 :]]
    groups = [[i if i <= axis else i + 1] + ([i + 1] if i == axis else []) for i in range(kind.rank)]
    index = ir.IntegerType.get_signless(64)
    reassociation = ir.ArrayAttr.get(
        [ir.ArrayAttr.get([ir.IntegerAttr.get(index, place) for place in group]) for group in groups]
    )
    return ir.Operation.create(
        "memref.expand_shape", results=[ir.MemRefType.get(shape, kind.element_type, None, kind.memory_space)],
        operands=[memref], loc=before.location, ip=ir.InsertionPoint(before),
        attributes={"reassociation": reassociation, "static_output_shape": ir.DenseI64ArrayAttr.get(shape)},
    ).result  # fmt: skip


def _on_view(
    statement: Statement, memref: ir.Value, axis: int, stride: int, view: ir.Value, nest: LoopNest
) -> Statement:
    def taken_apart(indices: tuple[Affine, ...]) -> tuple[Affine, ...]:
        parts = _parts(indices[axis], stride, nest) or (indices[axis],)
        return (*indices[:axis], *parts, *indices[axis + 1 :])

    def on(node: Node) -> Node:
        if isinstance(node, Load) and node.memref == memref:
            return replace(node, memref=view, indices=taken_apart(node.indices))
        if isinstance(node, Compute):
            return replace(node, operands=tuple(map(on, node.operands)))
        if isinstance(node, Reduce):
            return replace(node, initial=on(node.initial), term=on(node.term))
        return node

    value = on(statement.value)
    if statement.memref != memref:
        return replace(statement, value=value)
    return replace(statement, value=value, memref=view, indices=taken_apart(statement.indices))
