"""Descriptions of checks and their outcomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from motet.runtime.conformance.trial import DeviceTrial

# "skip": the device does not support what is checked; "expected": the check fails, as the driver said that it would.
Verdict = Literal["pass", "fail", "skip", "expected"]
VERDICTS: tuple[Verdict, ...] = ("pass", "fail", "skip", "expected")


@dataclass(frozen=True)
class Check:
    """`name` is derived from the function's, `area` is the subject, `summary` the sentence that it checks. `group` is
    the name that the checks of one function for several cases share, otherwise the check's own."""

    name: str
    area: str
    summary: str
    run: Callable[[DeviceTrial], None]
    group: str

    @property
    def id(self) -> str:
        """The area and the name, `memory-copy-sizes`; stable from version to version."""
        return f"{self.area}-{self.name}"

    @property
    def tags(self) -> tuple[str, ...]:
        """The words that select it: its area, its group and its name."""
        return self.area, self.group, self.name

    @property
    def is_case(self) -> bool:
        """Whether it is one of several checks of a group."""
        return self.group != self.name


@dataclass(frozen=True)
class Cases:
    """A check for each case: `function(trial, case)`. Its docstring has `{}` in place of the case."""

    function: Callable[[DeviceTrial, Any], None]
    cases: tuple[object, ...]


def each(function: Callable[[DeviceTrial, Any], None], cases: Iterable[object]) -> Cases:
    """A check for each of `cases`, whose texts are words: `copy_of` with the cases 1 and 63 is `copy-of-1` and
    `copy-of-63`."""
    return Cases(function, tuple(cases))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check: `reason` tells what failed, or why it was skipped; `seconds` is its duration."""

    check: Check
    verdict: Verdict
    reason: str
    seconds: float


def checks_of(area: str, functions: Sequence[Callable[[DeviceTrial], None] | Cases]) -> list[Check]:
    """The checks of an area, named after their functions: `copy_sizes` is `copy-sizes`."""
    found: list[Check] = []
    for function in functions:
        named = function.function if isinstance(function, Cases) else function
        group = named.__name__.replace("_", "-")
        summary = " ".join((inspect.getdoc(named) or "").split())
        if isinstance(function, Cases):
            found += [
                Check(f"{group}-{case}", area, summary.format(case), partial(_run, function.function, case), group)
                for case in function.cases
            ]
        else:
            found.append(Check(group, area, summary, function, group))
    return found


def _run(function: Callable[[DeviceTrial, Any], None], case: object, trial: DeviceTrial) -> None:
    function(trial, case)
