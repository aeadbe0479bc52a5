"""A tenth of the ONNX node cases that pass must go on passing: `python -m conformance ratchet` writes the list."""

from __future__ import annotations

import sys

import pytest
from conformance.ratchet import passing, tenth
from conformance.results import Result
from conformance.runner import Child, run_cases
from conformance.suites import SUITES

pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

SUITE = SUITES["onnx-node"]
PARTS = 4  # which processors can run at the same time


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_cases_that_passed_pass(part: int) -> None:
    child = Child(sys.executable, SUITE.module, SUITE.name)
    results: list[Result] = []
    try:
        there = set(child.names())
        chosen = [case for case in tenth(passing(SUITE.name)) if case in there][part::PARTS]
        run_cases([child], chosen, SUITE.limit, results.append)
    finally:
        child.stop()
    assert len(results) == len(chosen) > 0
    failing = [f"{result.name}: {result.outcome}: {result.reason}" for result in results if result.outcome != "ok"]
    assert not failing, "\n".join(failing)
