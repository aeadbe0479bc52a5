"""StableHLO's interpreter tests and test data, as `stablehlo.py` reads them, as two suites."""

from __future__ import annotations

import functools

from conformance import stablehlo
from conformance.results import Unavailable
from conformance.verdicts import raise_for

_READ = {"stablehlo-interpret": stablehlo.interpreted, "stablehlo-testdata": stablehlo.exported}


@functools.cache
def _cases(suite: str) -> dict[str, stablehlo.Case]:
    try:
        folder = stablehlo.suite(None)
    except SystemExit as error:
        raise Unavailable(str(error).removeprefix("error: ")) from None
    return {case.name: case for case in _READ[suite](folder)}


def cases(suite: str) -> list[str]:
    """The names of the cases of `stablehlo-interpret` or `stablehlo-testdata`."""
    return list(_cases(suite))


def check(suite: str, case: str) -> None:
    """Compiles and runs one of them."""
    raise_for(*stablehlo.run_case(_cases(suite)[case]))
