"""StableHLO's interpreter tests and test data (`stablehlo.py`) as two suites.

Functions without constants to compare with are omitted.
"""

from __future__ import annotations

import functools

from conformance import stablehlo

_READ = {"stablehlo-interpret": stablehlo.interpreted, "stablehlo-testdata": stablehlo.exported}


@functools.cache
def _cases(suite: str) -> dict[str, stablehlo.Case]:
    return {case.name: case for case in _READ[suite](stablehlo.repository()) if not case.skipped}


def cases(suite: str) -> list[str]:
    """The names of the cases of `stablehlo-interpret` or `stablehlo-testdata`."""
    return list(_cases(suite))


def check(suite: str, case: str) -> None:
    """Compile and run a case."""
    stablehlo.run_case(_cases(suite)[case])
