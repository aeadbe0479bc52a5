"""Checks the device against the contract: every check of the conformance suite is a test."""

from __future__ import annotations

import pytest

from motet.runtime.conformance import Check, all_checks, run_checks


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: f"{check.area}-{check.name}")
def test_contract(check: Check):
    [outcome] = run_checks("sandbox", [check.name])
    if outcome.verdict == "skip":
        pytest.skip(outcome.reason)
    assert outcome.verdict == "pass", outcome.reason
