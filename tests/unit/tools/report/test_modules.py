"""Parts of a graph by module: runs of operations, so that the graph of parts has no cycle."""

from __future__ import annotations

import random

import pytest

from motet.tools.report.model import GraphNode
from motet.tools.report.modules import first_level, levels, module_at


@pytest.mark.parametrize(("computes", "depth", "module"), [
    ("layer1.0.conv1 + layer1.0.bn1", 1, "layer1"), ("layer1.0.conv1", 2, "layer1.0"),
    ("layer1.0.conv1", 9, "layer1.0"),
    ("/encoder/layer.3/MatMul", 1, "/encoder"), ("/encoder/layer.3/MatMul", 3, "/encoder/layer.3"),
    ("conv_1 + relu_1", 1, ""), ("", 1, ""), ("model.mlir:12:8: linalg.matmul", 1, ""), ("...", 1, ""),
])
def test_modules_are_the_first_parts_of_a_name(computes: str, depth: int, module: str) -> None:
    assert module_at(computes, depth) == module


def nodes(names: list[str]) -> list[GraphNode]:
    return [GraphNode("input", "x", 0), *(GraphNode("kernel", "k", 0, computes=name) for name in names)]


def test_every_level_has_each_operation_once_and_in_order() -> None:
    generator = random.Random(5)
    names = [f"a{generator.randrange(3)}.b{generator.randrange(2)}.c" for _ in range(200)]
    operations = nodes(sorted(names[:150]) + names[150:])
    known = levels(operations)
    for level in known:
        assert [at for part in level.parts for at in part.operations] == list(range(len(operations)))
        for part in level.parts:
            assert all(operations[at].computes.startswith(part.module) for at in part.operations)
    assert len(known) > 2 and [level.depth for level in known][-1] == 0
    sizes = [len(level.parts) for level in known]
    assert sizes == sorted(sizes)
    shown = known[first_level(known)]
    assert len(shown.parts) <= 60 or shown is known[0]


def test_graphs_without_modules_are_shown_as_they_are() -> None:
    assert [level.depth for level in levels(nodes(["conv_1", "conv_2"]))] == [0]
