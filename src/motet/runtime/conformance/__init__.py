"""The conformance suite: puts a device through every sentence of `motet.runtime.device`.

    python -m motet.runtime.conformance null            from a shell
    for outcome in run_checks("null", ["memory"]): …    from a test

A driver names checks that cannot be made of its devices in `conformance_exempt`, a mapping of their names to
reasons; they are skipped, and shown as such. The areas follow those of IREE's conformance tests for HAL drivers
(driver, buffer, command buffer, executable, semaphore, queue), with faults, threads and profiles in addition.
"""

from motet.runtime.conformance.listing import Check, Outcome
from motet.runtime.conformance.suite import AREAS, all_checks, run_checks, select

__all__ = ["AREAS", "Check", "Outcome", "all_checks", "run_checks", "select"]
