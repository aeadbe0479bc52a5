"""The ONNX node cases that pass must go on passing: `python -m conformance ratchet` writes the list."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from conformance.ratchet import passing, tenth
from conformance.results import Result, Wrong
from conformance.runner import Child, run_cases
from conformance.suites import SUITES

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

from conformance.onnx_cases import NODE, POOLS, RANDOM, Case, judge, load, node_cases  # noqa: E402
from onnx import compose  # noqa: E402

SUITE = SUITES[NODE]
PARTS = 32  # one of them in `make test`; the last one are pools
TOGETHER = 60  # cases in one model: each then takes a third of the time
APART = (*RANDOM, "Dropout", "If", "Loop", "Scan", "SequenceMap", "NonMaxSuppression")


@pytest.mark.slow
def test_a_tenth_of_the_cases_pass_by_themselves() -> None:
    child = Child(sys.executable, SUITE.module, SUITE.name)
    results: list[Result] = []
    try:
        there = set(child.names())
        chosen = [case for case in tenth(passing(SUITE.name)) if case in there]
        run_cases([child], chosen, SUITE.limit, results.append)
    finally:
        child.stop()
    assert len(results) == len(chosen) > 0
    failing = [f"{result.name}: {result.outcome}: {result.reason}" for result in results if result.outcome != "ok"]
    assert not failing, "\n".join(failing)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_cases_pass_as_parts_of_one_model(part: int) -> None:
    groups: dict[str, dict[str, Case]] = defaultdict(dict)
    pools = part == PARTS - 1
    known, there = passing(NODE), node_cases(pools)
    chosen = [name for name in known if name in there and name.startswith(POOLS) == pools]
    for name in chosen if pools else chosen[part :: PARTS - 1]:
        case = load(NODE, name)
        if may_be_a_part(case):
            groups[str(sorted((entry.domain, entry.version) for entry in case.model.opset_import))][name] = case
    wrong: list[str] = []
    for group in groups.values():
        for begin in range(0, len(group), TOGETHER):
            wrong += run_together(dict(list(group.items())[begin : begin + TOGETHER]))
    assert not wrong and sum(map(len, groups.values())) > (40 if pools else 1600 // PARTS), "\n".join(wrong)


def may_be_a_part(case: Case) -> bool:
    """Whether a model is of operators on tensors of known shapes, whose results do not depend on chance."""
    graph = case.model.graph
    kinds = [value.type for value in (*graph.input, *graph.output)]
    return (
        len(case.data) == 1 and not case.model.functions and all(node.op_type not in APART for node in graph.node)
        and all(kind.HasField("tensor_type") and kind.tensor_type.HasField("shape") for kind in kinds)
        and not any(dim.dim_param for kind in kinds for dim in kind.tensor_type.shape.dim)
    )


def run_together(some: Mapping[str, Case]) -> list[str]:
    """What is wrong with each of the cases, compiled as one model."""
    graph = onnx.GraphProto(name="cases")
    for name, case in some.items():
        own = compose.add_prefix(case.model, f"{name}/").graph
        for field in ("node", "initializer", "sparse_initializer", "input", "output", "value_info"):
            getattr(graph, field).extend(getattr(own, field))
    imports = next(iter(some.values())).model.opset_import
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=onnx.IR_VERSION)
    data = {name: case.data[0] for name, case in some.items()}
    found = motet.load(motet.compile(model, cache=False))(*(value for given, _ in data.values() for value in given))
    results = list(found) if isinstance(found, tuple) else [found]
    wrong: list[str] = []
    for name, (given, expected) in data.items():
        own = [results.pop(0) for _ in expected]
        try:
            judge(some[name], given, own, expected)
        except Wrong as difference:
            wrong.append(f"{name}: {difference}")
    return wrong
