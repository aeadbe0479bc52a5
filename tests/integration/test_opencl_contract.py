"""The contract of devices, on the OpenCL platforms of this machine."""

from __future__ import annotations

import pytest
from tests.unit.runtime.drivers.opencl.opening import opencl_device

from motet.runtime.conformance import Check, all_checks, run_checks

# What differs on devices without shared virtual memory.
_BUFFERS = (
    "allocate-sizes", "write-and-read", "copy", "fill", "references-have-offsets", "many-buffers", "scratch-is-private",
    "random-work", "in-place", "random-submissions", "whole-program", "memory-comes-back",
)
_CHECKS = [
    *(("opencl:0", check) for check in all_checks()),
    *(("opencl:1?svm=0", check) for check in all_checks() if check.name in _BUFFERS),
]


@pytest.mark.parametrize(
    ("uri", "check"), _CHECKS, ids=[f"{uri[9:]}-{check.area}-{check.name}" for uri, check in _CHECKS]
)
def test_contract(uri: str, check: Check) -> None:
    opencl_device(uri.partition("?")[0])
    [outcome] = run_checks(uri, [check.name])
    if outcome.verdict == "skip":
        pytest.skip(outcome.reason)
    assert outcome.verdict == "pass", outcome.reason
