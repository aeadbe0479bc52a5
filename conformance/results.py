"""The record of a case, the interface of a suite's module, and files of records.

A suite's module (see `suites.py`) has two functions:

    def cases(suite: str) -> list[str]              # the names of the cases, each once
    def check(suite: str, case: str) -> None        # compiles and runs one of them

`check` returns if the case passes. It raises `Wrong` if a result differs from the expected one. An error of Motet
counts as a refusal; `Crash`, a `WorkerCrash` and every other exception as a crash. `cases` raises `Unavailable`, with
the command that helps, if the suite's data are missing. `check` runs in a child process with a time limit; its output
is discarded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

Outcome = Literal["ok", "refused", "wrong", "crash"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Wrong(Exception):
    """The results of a case differ from what is expected."""


class Crash(Exception):
    """A case ended without a result or an error message, in a process run by `check` itself."""


class Unavailable(Exception):
    """A suite cannot be run here; the text says why and what to do."""


@dataclass(frozen=True)
class Result:
    """The outcome of one case. `reason` is one line, empty if the case passes."""

    name: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0

    def to_line(self) -> str:
        return json.dumps({**asdict(self), "seconds": round(self.seconds, 2)}, ensure_ascii=False)

    @staticmethod
    def from_line(line: str) -> Result:
        return Result(**json.loads(line))


def read_results(path: Path) -> dict[str, Result]:
    """The results in a file of JSON lines, by name; the last one of a name counts. An incomplete line is ignored."""
    found: dict[str, Result] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            result = Result.from_line(line)
        except (ValueError, TypeError):
            continue  # the run was stopped while it wrote this line
        found[result.name] = result
    return found


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write a file of results, sorted by name, atomically."""
    lines = [result.to_line() + "\n" for result in sorted(results, key=lambda result: result.name)]
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(path)


def counts(results: Iterable[Result]) -> dict[Outcome, int]:
    """The number of results by outcome."""
    found = dict.fromkeys(OUTCOMES, 0)
    for result in results:
        found[result.outcome] += 1
    return found


def failures(results: Iterable[Result]) -> Iterator[Result]:
    """The results of cases that do not pass."""
    return (result for result in results if result.outcome != "ok")


def one_line(text: str, length: int = 300) -> str:
    """`text` on one line, truncated to `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
