"""What a check is, and what comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from motet.runtime.conformance.trial import DeviceTrial

Verdict = Literal["pass", "fail", "skip"]
VERDICTS: tuple[Verdict, ...] = ("pass", "fail", "skip")


@dataclass(frozen=True)
class Check:
    """`name` is the function's, `area` what it is about, `summary` the sentence it checks."""

    name: str
    area: str
    summary: str
    run: Callable[[DeviceTrial], None]


@dataclass(frozen=True)
class Outcome:
    """What came of a check: `reason` says what failed, or why it was skipped; `seconds` is how long it took."""

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
