"""Converts verdicts of suites with separate runners to the exceptions of `results.py`."""

from __future__ import annotations

from conformance.results import Crash, Wrong
from motet.errors import CompileError


def raise_for(verdict: str, reason: str) -> None:
    """Raise the exception for a verdict; returns for `ok`. `skipped` cases count as refused."""
    if verdict == "wrong":
        raise Wrong(reason)
    if verdict == "crash":
        raise Crash(reason)
    if verdict != "ok":
        raise CompileError(reason)
