"""The contract of devices, on the OpenCL platforms of this machine."""

from __future__ import annotations

import pytest
from tests.unit.runtime.drivers.opencl.opening import opencl_device

from motet.runtime.conformance import Check, all_checks, run_checks


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: f"{check.area}-{check.name}")
def test_contract(check: Check) -> None:
    opencl_device("opencl:0")
    [outcome] = run_checks("opencl:0", [check.name])
    if outcome.verdict == "skip":
        pytest.skip(outcome.reason)
    assert outcome.verdict == "pass", outcome.reason
