"""Launches as they were written: what their code computes, run thread by thread on the processor, and on the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.building import X86_64_V3, run
from tests.unit.compiler.codegen.nvvm import launches
from tests.unit.compiler.codegen.nvvm.emulator import run_launches

SMALL = [case for case in launches.CASES if "raised" not in case.name and case.name not in ("transpose_16x16",)]


def _check(case: launches.Case, found: list[launches.Array], inputs: list[launches.Array]) -> None:
    for got, wanted in zip(found, case.expected(*inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_code_of_a_launch_computes_what_its_threads_do(case: launches.Case) -> None:
    inputs = case.inputs()
    _check(case, run_launches(case.text, inputs), inputs)


@pytest.mark.parametrize("case", launches.CASES, ids=lambda case: case.name)
def test_the_host_computes_the_same(case: launches.Case) -> None:
    inputs = case.inputs()
    _check(case, run(case.text, [array.copy() for array in inputs], X86_64_V3), inputs)
