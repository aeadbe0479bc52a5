"""Grouping and automatic placement form the same kernels, and a table of what may join what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from motet import builder as mb
from motet.builder.graph import Tensor
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.kernels.roles import Role
from motet.compiler.passes.fuse.group import group_block
from motet.compiler.passes.fuse.rules import Space, may_join, waits_for
from motet.compiler.passes.pipelines import NORMALISE
from motet.compiler.passes.running import run_steps
from motet.compiler.placement.units import units_of


def softmax_by_hand(x: Tensor) -> Tensor:
    e = mb.exp(x - mb.reduce_max(x, [1], keepdims=True))
    return e / mb.reduce_sum(e, [1], keepdims=True)


PROGRAMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "element-wise": (lambda x, w: mb.tanh(mb.relu(x) * x) + x, 1),
    "softmax": (lambda x, w: mb.softmax(x, axis=-1), 1),
    "softmax in parts": (lambda x, w: softmax_by_hand(x), 1),
    "a reduction of columns after what only it reads": (lambda x, w: mb.reduce_sum(mb.exp(x), [0]), 1),
    "columns, then their rows": (lambda x, w: mb.tanh(mb.reduce_sum(x * x, [0])), 1),
    "columns, then all of what they are taken from": (lambda x, w: x - mb.reduce_sum(x, [0], keepdims=True), 2),
    "a reduction of columns that others read": (
        lambda x, w: mb.exp(x) - mb.reduce_sum(mb.exp(x), [0], keepdims=True), 3,
    ),
    "a product and its epilogue": (lambda x, w: mb.relu(mb.matmul(x, w) + 1.0), 1),
    "a product, then rows": (lambda x, w: mb.softmax(mb.matmul(x, w), axis=-1), 2),
    "rows, then a product": (lambda x, w: mb.matmul(mb.softmax(x, axis=-1), w), 2),
}


@pytest.mark.parametrize(("make", "count"), PROGRAMS.values(), ids=PROGRAMS)
def test_units_are_groups(make: Callable[[Tensor, Tensor], Tensor], count: int) -> None:
    with mb.Graph("g") as graph:
        x, w = graph.input("x", (6, 10), "f32"), graph.input("w", (10, 10), "f32")
        graph.result(make(x, w), name="r")
    program = graph.program()
    with program.module.context, ir.Location.unknown():
        run_steps(NORMALISE, program)
        (function,) = public_functions(program.module)
        groups = group_block(function.regions[0].blocks[0]).groups
        work = {operation for group in groups for operation in group.operations}
        units = [work & set(unit.operations) for unit in units_of(function, lambda operation: "").units]
        assert len(groups) == count
        assert {frozenset(unit) for unit in units if unit} == {frozenset(group.operations) for group in groups}


ROWS, COLUMNS = Space((4, 6), frozenset({1})), Space((4, 6), frozenset({0}))
SAME, OUTER, OTHER = Space((4, 6)), Space((4,)), Space((6, 4))


@pytest.mark.parametrize(("role", "space", "group", "among", "expected"), [
    (Role.ELEMENTWISE, SAME, Role.ELEMENTWISE, SAME, True),
    (Role.ELEMENTWISE, OTHER, Role.ELEMENTWISE, SAME, False),
    (Role.ELEMENTWISE, SAME, Role.CONTRACTION, SAME, True),
    (Role.ELEMENTWISE, SAME, Role.WINDOW, SAME, True),
    (Role.ELEMENTWISE, SAME, Role.OPAQUE, SAME, False),
    (Role.ELEMENTWISE, OUTER, Role.REDUCTION, ROWS, True),
    (Role.ELEMENTWISE, SAME, Role.REDUCTION, ROWS, True),
    (Role.ELEMENTWISE, SAME, Role.REDUCTION, COLUMNS, False),
    (Role.ELEMENTWISE, Space((6,)), Role.REDUCTION, COLUMNS, True),
    (Role.REDUCTION, ROWS, Role.ELEMENTWISE, SAME, True),
    (Role.REDUCTION, COLUMNS, Role.ELEMENTWISE, SAME, False),
    (Role.REDUCTION, ROWS, Role.REDUCTION, ROWS, True),
    (Role.REDUCTION, ROWS, Role.REDUCTION, COLUMNS, False),
    (Role.REDUCTION, COLUMNS, Role.REDUCTION, COLUMNS, False),
    (Role.REDUCTION, ROWS, Role.CONTRACTION, SAME, False),
    (Role.CONTRACTION, SAME, Role.ELEMENTWISE, SAME, False),
])
def test_what_may_join(role: Role, space: Space, group: Role, among: Space, expected: bool) -> None:
    assert may_join(role, space, group, among, lambda: False) == expected
    alone = role is Role.REDUCTION and group is Role.ELEMENTWISE and space.extents == among.extents
    assert may_join(role, space, group, among, lambda: True) == (expected or alone)


def test_a_group_waits_for_what_its_sources_wait_for() -> None:
    depends = {4: [3], 3: [1, 2], 2: [0], 1: [], 0: []}
    assert waits_for(4, 0, depends.__getitem__)
    assert waits_for(0, 0, depends.__getitem__)
    assert not waits_for(1, 0, depends.__getitem__)
    assert not waits_for(4, 0, depends.__getitem__, lambda group: group == 2)
