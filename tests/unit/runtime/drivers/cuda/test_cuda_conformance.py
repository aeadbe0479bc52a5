"""The driver of NVIDIA's GPUs keeps to the contract: over a driver for tests, and over a GPU if there is one."""

from __future__ import annotations

import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi

from motet.runtime.conformance import Check, all_checks, run_checks
from motet.runtime.device import probe
from motet.runtime.drivers.cuda import driver

_GPU = probe("cuda")[0]
# They begin other processes, which know nothing of the driver for tests, or need a compiler for its kernels.
_NOT_OVER_THE_FAKE = {*driver.conformance_in_processes, "exit-while-open", "interrupt"}


@pytest.mark.parametrize(
    "check", [check for check in all_checks() if check.area != "program" and check.name not in _NOT_OVER_THE_FAKE],
    ids=lambda check: f"{check.area}-{check.name}",
)
def test_the_driver_keeps_to_the_contract(check: Check, monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi()
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    [outcome] = run_checks("cuda:0", [check.name])
    if outcome.verdict == "skip":
        pytest.skip(outcome.reason)
    assert outcome.verdict == "pass", outcome.reason
    assert +fake.alive == {} and fake.retained == 0


@pytest.mark.cuda
@pytest.mark.skipif(not _GPU.available, reason=_GPU.reason)
@pytest.mark.parametrize("check", all_checks(), ids=lambda check: f"{check.area}-{check.name}")
def test_a_gpu_keeps_to_the_contract(check: Check):
    [outcome] = run_checks("cuda:0", [check.name])
    if outcome.verdict == "skip":
        pytest.skip(outcome.reason)
    assert outcome.verdict == "pass", outcome.reason
