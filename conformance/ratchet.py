"""The ratchet: lists of the passing cases, `passing/SUITE.txt`, which a change must not shorten."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from conformance.results import read_results

PASSING = Path(__file__).parent / "passing"


def passing(suite: str) -> list[str]:
    """The cases of `suite` that passed when the list was last written."""
    path = PASSING / f"{suite}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def tenth(cases: Iterable[str]) -> list[str]:
    """A tenth of the cases, which stays the same when cases are added."""
    return [case for case in cases if hashlib.sha256(case.encode()).digest()[0] * 10 < 256]


def update(suite: str, results: Path, drop: bool) -> int:
    """Add the passing cases of the last results to the list of `suite`. Failing cases are removed only with `drop`;
    otherwise the status is 1 if there are any."""
    found = read_results(results / f"{suite}.jsonl")
    before, now = set(passing(suite)), {name for name, result in found.items() if result.outcome == "ok"}
    lost = sorted(name for name in before - now if name in found)
    for name in lost:
        print(f"{suite}: {name}: passed, and does not now: {found[name].outcome}: {found[name].reason}")
    kept = (before | now) - (set(lost) if drop else set())
    if kept:
        PASSING.mkdir(exist_ok=True)
        (PASSING / f"{suite}.txt").write_text("".join(f"{name}\n" for name in sorted(kept)), encoding="utf-8")
    print(f"{suite}: {len(kept)} cases pass, {len(kept - before)} more than before")
    if lost and not drop:
        print(f"{suite}: {len(lost)} cases that passed do not; --drop takes them off the list")
        return 1
    return 0
