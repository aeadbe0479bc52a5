"""Compares instruction counts of compiled kernels with those stored in the repository: `make bench-check`.

    python -m benchmarks.instructions                    fails if a kernel executes over 3 % more instructions
    python -m benchmarks.instructions --update           writes the counts of this tree
    python -m benchmarks.instructions --against COMMIT   compares with the code of a commit instead

Kernels are compared one by one; if two trees divide a program into different kernels, their sums are compared.
Needs valgrind and a C compiler.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checks.objects import ROOT, checked_out

from benchmarks.instructions.counting import TARGET, Counted, count, missing_tools
from benchmarks.instructions.programs import PROGRAMS, Program

REFERENCE = Path(__file__).with_name("counts.json")
ALLOWED = 0.03
NOISE = 32  # instructions; tolerance for short kernels
SHOWN = 0.01  # minimum relative change that is listed

Counts = dict[str, dict[str, int]]  # instructions of each program's kernels


@dataclass(frozen=True)
class Change:
    """A kernel, or a whole program, whose count changed."""

    where: str
    before: int
    after: int
    kind: str

    @property
    def ratio(self) -> float:
        return self.after / max(1, self.before) - 1

    def __str__(self) -> str:
        return f"{self.where} ({self.kind}): {self.before:,} -> {self.after:,} instructions ({self.ratio:+.1%})"


def changes(name: str, before: Mapping[str, int], after: Counted) -> list[Change]:
    """The changes of a program's kernels, or of their sum if the kernels are not the same."""
    if before.keys() == after.kernels.keys():
        return [Change(f"{name}: {kernel}", before[kernel], now, after.classes[kernel])
                for kernel, now in after.kernels.items()]
    kinds = ", ".join(dict.fromkeys(after.classes.values()))
    where = f"{name}: {len(before)} kernels, now {len(after.kernels)}"
    return [Change(where, sum(before.values()), after.total, kinds)]


def measure(programs: Sequence[Program], tree: Path, refused: list[str]) -> dict[str, Counted]:
    """The counts of each program that `tree` compiles; the others are added to `refused`."""
    found: dict[str, Counted] = {}
    with tempfile.TemporaryDirectory(prefix="motet-instructions-") as folder:
        for program, counted in count(programs, tree, Path(folder)):
            if isinstance(counted, str):
                refused.append(f"{program.name}: {counted}")
            else:
                found[program.name] = counted
    return found


def compare(before: Counts, after: Mapping[str, Counted]) -> int:
    """Print the changes; returns the number of kernels that exceed the allowed increase."""
    found = [change for name, counted in after.items() if name in before
             for change in changes(name, before[name], counted)]
    slower = [change for change in found if change.ratio > ALLOWED and change.after > change.before + NOISE]
    for change in sorted(found, key=lambda change: -change.ratio):
        if change in slower:
            print(f"error: {change}")
        elif abs(change.ratio) > SHOWN:
            print(f"  {change}")
    for name in after.keys() - before.keys():
        print(f"  {name}: not in {REFERENCE.name}; add it by --update")
    print(f"{len(after)} programs, {len(found)} kernels compared, {len(slower)} slower by more than {ALLOWED:.0%}")
    return len(slower)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.instructions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help=f"write {REFERENCE.name}")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit instead of the file")
    parser.add_argument("--programs", metavar="GLOB", default="*", help="only programs whose names match")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts of both sides to FILE")
    given = parser.parse_args()
    if given.update and (given.against or given.programs != "*"):
        parser.error("--update writes the counts of all programs as this tree compiles them; expected it alone")
    return given


def main() -> int:
    given = parse()
    if missing := missing_tools():
        print(f"error: not installed: {', '.join(missing)}; expected valgrind and a C compiler, such as those of "
              "`apt install valgrind gcc`", file=sys.stderr)
        return 2
    programs = [program for program in PROGRAMS if fnmatch.fnmatch(program.name, given.programs)]
    refused: list[str] = []
    after = measure(programs, ROOT, refused)
    counts: Counts = {name: dict(counted.kernels) for name, counted in after.items()}
    before: Counts
    if given.update:
        REFERENCE.write_text(json.dumps({"target": TARGET, "programs": counts}, indent=1) + "\n")
        print(f"{REFERENCE.name}: {len(after)} programs")
    if given.against:
        with tempfile.TemporaryDirectory() as folder:
            tree = checked_out(given.against, Path(folder))
            before = {name: dict(counted.kernels) for name, counted in measure(programs, tree, []).items()}
    else:
        before = json.loads(REFERENCE.read_text())["programs"]
    if given.json:
        given.json.write_text(json.dumps({"before": before, "after": counts}, indent=1) + "\n")
    for line in refused:
        print(f"error: {line}")
    return 1 if compare(before, after) or refused else 0


if __name__ == "__main__":
    sys.exit(main())
