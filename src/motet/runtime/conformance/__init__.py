"""The conformance suite, which checks a device against every sentence of `motet.runtime.device`.

    python -m motet.runtime.conformance null            from a shell
    for outcome in run_checks("null", ["memory"]): …    from a test

A driver lists checks that do not apply to its devices in `conformance_exempt`, a mapping of names to reasons; they are
reported as skipped. Checks in `conformance_expected_failures` run, and must fail. The areas follow those of IREE's
conformance tests for HAL drivers (driver, buffer, command buffer, executable, semaphore, queue), plus faults, threads
and profiles.
"""

from motet.runtime.conformance.isolated import run_isolated
from motet.runtime.conformance.listing import Check, Outcome
from motet.runtime.conformance.suite import AREAS, all_checks, run_checks, select

__all__ = ["AREAS", "Check", "Outcome", "all_checks", "run_checks", "run_isolated", "select"]
