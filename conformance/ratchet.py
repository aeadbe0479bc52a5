"""The ratchet: lists of the cases that pass, `passing/SUITE.txt`, which a change must not make shorter."""

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
    """One of ten cases, the same ones every time, however many cases are added."""
    return [case for case in cases if hashlib.sha256(case.encode()).digest()[0] * 10 < 256]


def update(suite: str, results: Path, drop: bool) -> int:
    """Adds what passes in the last results to the list of `suite`. Names whose cases fail leave it only with `drop`;
    the status is 1 where there are such names and it is not given."""
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
