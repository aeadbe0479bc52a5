"""The table of what ONNX's operators demand of extents: how signatures are read, and that a demand is one formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest

from motet.compiler.frontends.onnx.extent_demands import Counted, Demand, Fixed, Tie
from motet.compiler.frontends.onnx.model import ShapedNode
from motet.compiler.frontends.onnx.operator_demands import demands_of

ONE = "axis {} of input {} must be 1, or equal to axis {} of input {}".format
EQUAL = "axis {} of input {} and axis {} of input {} must be equal".format
EITHER = "axis {} of input {} and axis {} of input {} must be equal, or one of them 1".format
DEMANDS: dict[str, tuple[Sequence[int], dict[str, Any], Sequence[str]]] = {
    "InstanceNormalization": ([4, 1, 1], {}, [EQUAL(0, 1, 1, 0), EQUAL(0, 2, 1, 0)]),
    "GroupNormalization": ([3, 1, 1], {"num_groups": 2}, [
        "axis 1 of input 0 must be a multiple of 2", EQUAL(0, 1, 1, 0), EQUAL(0, 2, 1, 0)]),
    "Add": ([2, 3], {}, [EITHER(1, 1, 0, 0), EITHER(2, 1, 1, 0)]),
    "Sum": ([1, 1, 1], {}, [EITHER(0, 1, 0, 0), EITHER(0, 2, 0, 0), EITHER(0, 2, 0, 1)]),
    "PRelu": ([3, 2], {}, [ONE(0, 1, 1, 0), ONE(1, 1, 2, 0)]),
    "MatMul": ([3, 3], {}, [EQUAL(1, 1, 2, 0), EITHER(0, 1, 0, 0)]),
    "Gemm": ([2, 2, 1], {"transB": 1}, [EQUAL(1, 1, 1, 0), ONE(0, 2, 0, 1)]),
    "Conv": ([3, 3, 1], {"group": 2}, ["axis 1 of input 0 must be 2 times axis 1 of input 1", EQUAL(0, 2, 0, 1)]),
    "Concat": ([2, 2], {"axis": -1}, [EQUAL(0, 1, 0, 0)]),
    "Einsum": ([4, 3], {"equation": "b...i,...ij->b...j"}, [EQUAL(1, 1, 3, 0), EITHER(0, 1, 2, 0)]),
    "GatherElements": ([2, 2], {"axis": 1}, ["axis 0 of input 1 must be at most axis 0 of input 0"]),
    "GridSample": ([5, 5], {}, [EQUAL(0, 1, 0, 0), "axis 4 of input 1 must be 3", *(
        f"axis {axis} of input 0 must be at least 1" for axis in (2, 3, 4))]),
    "DequantizeLinear": ([2, 2], {"axis": 1, "block_size": 4}, [
        EQUAL(0, 1, 0, 0), "axis 1 of input 1 must be the number of blocks of 4 along axis 1 of input 0"]),
}  # fmt: skip


def demanded(operator: str, ranks: Sequence[int], attributes: dict[str, Any], version: int = 24) -> list[Demand]:
    names = [f"x{number}" for number in range(len(ranks))]
    node = onnx.helper.make_node(operator, names, ["y"], "node", **attributes)
    extents = [[f"{name}.{axis}" for axis in range(rank)] for name, rank in zip(names, ranks, strict=True)]
    return [*demands_of(ShapedNode(node, extents, None, [None] * len(names)), version)]


@pytest.mark.parametrize("operator", DEMANDS)
def test_a_signature_names_the_axes_that_are_compared(operator: str) -> None:
    ranks, attributes, expected = DEMANDS[operator]
    assert sorted(map(str, demanded(operator, ranks, attributes))) == sorted(expected)


def test_an_input_of_another_rank_demands_nothing() -> None:
    assert [*map(str, demanded("InstanceNormalization", [3, 2, 1], {}))] == [EQUAL(0, 2, 1, 0)]
    assert [*map(str, demanded("InstanceNormalization", [1, 1, 2], {}))] == []
    assert [*map(str, demanded("MatMul", [1, 2], {}))] == [EQUAL(0, 1, 0, 0)]


def test_older_operator_sets_have_a_scale_for_each_group() -> None:
    said = [str(demand) for demand in demanded("GroupNormalization", [3, 1, 1], {"num_groups": 2}, 18)]
    assert said == ["axis 1 of input 0 must be a multiple of 2", *(f"axis 0 of input {n} must be 2" for n in (1, 2))]


@pytest.mark.parametrize(("demand", "right", "wrong"), [
    (Tie(1, 0, 0, 1), [(9, 9), (0, 0)], [(1, 9), (9, 1)]),
    (Tie(1, 0, 0, 1, stretches=True), [(1, 9), (9, 9)], [(9, 1)]),
    (Tie(1, 0, 0, 1, either=True), [(1, 9), (9, 1), (1, 0)], [(2, 9), (0, 9)]),
    (Tie(1, 0, 0, 1, times=3), [(27, 9)], [(9, 9), (9, 27)]),
    (Tie(1, 0, 0, 1, block=4), [(3, 9), (2, 8), (0, 0)], [(2, 9), (3, 8)]),
    (Tie(1, 0, 0, 1, at_most=True), [(8, 9), (9, 9)], [(10, 9)]),
    (Fixed(0, 0, 4), [(4,)], [(1,), (8,)]), (Fixed(0, 0, 4, multiple=True), [(0,), (8,)], [(1,), (6,)]),
    (Fixed(0, 0, 4, stretches=True), [(1,), (4,)], [(8,)]), (Fixed(0, 0, 4, at_least=True), [(4,), (5,)], [(3,)]),
    (Counted(0, 2, 12), [(3, 4), (12, 1)], [(3, 3)]), (Counted(0, 2, 4, multiple=True), [(6, 2), (0, 3)], [(3, 3)]),
])  # fmt: skip
def test_known_extents_are_compared(demand: Demand, right: Sequence[Any], wrong: Sequence[Any]) -> None:
    assert all(demand.fits(*extents) for extents in right)
    assert not any(demand.fits(*extents) for extents in wrong)
