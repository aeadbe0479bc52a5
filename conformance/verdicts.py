"""Verdicts of suites that have runners of their own, as the exceptions that `results.py` describes."""

from __future__ import annotations

from conformance.results import Crash, Wrong
from motet.errors import CompileError


def raise_for(verdict: str, reason: str) -> None:
    """Returns for `ok`; a case that is `skipped` counts as refused."""
    if verdict == "wrong":
        raise Wrong(reason)
    if verdict == "crash":
        raise Crash(reason)
    if verdict != "ok":
        raise CompileError(reason)
