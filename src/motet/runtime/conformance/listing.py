"""Descriptions of checks and their outcomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from motet.runtime.conformance.trial import DeviceTrial

# "skip": the device does not support what is checked; "expected": the check fails, as the driver said that it would.
Verdict = Literal["pass", "fail", "skip", "expected"]
VERDICTS: tuple[Verdict, ...] = ("pass", "fail", "skip", "expected")


@dataclass(frozen=True)
class Check:
    """`name` is derived from the function's, `area` is the subject, `summary` the sentence that it checks."""

    name: str
    area: str
    summary: str
    run: Callable[[DeviceTrial], None]

    @property
    def id(self) -> str:
        """The area and the name, `memory-copy-sizes`; stable from version to version."""
        return f"{self.area}-{self.name}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check: `reason` tells what failed, or why it was skipped; `seconds` is its duration."""

    check: Check
    verdict: Verdict
    reason: str
    seconds: float


def checks_of(area: str, functions: Sequence[Callable[[DeviceTrial], None]]) -> list[Check]:
    """The checks of an area, named after their functions: `copy_sizes` is `copy-sizes`."""
    return [
        Check(function.__name__.replace("_", "-"), area, " ".join((inspect.getdoc(function) or "").split()), function)
        for function in functions
    ]
