"""Counts how many of small faults the tests find: a wrong sign, an off-by-one, a missing wait, swapped axes.

    python -m checks.mutants [--only TEXT] [--seconds 300] [--jobs N] [--all]

Each fault of `checks/faults.toml` is made in a copy of the tree, in which the tests that reach its module by imports
run, the nearest first, until one fails. Fails where fewer than 95 % are found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from checks.changed import reaching
from checks.costs import TOP

_FAULTS = Path(__file__).with_name("faults.toml")
_ENOUGH = 0.95


@dataclass(frozen=True)
class Fault:
    file: str  # of src/motet
    text: str
    becomes: str
    first: str = ""  # of the files of tests, without its ending

    def make(self, top: Path) -> None:
        """Change the file in the tree at `top`."""
        path = top / "src/motet" / self.file
        path.write_text(path.read_text().replace(self.text, self.becomes))

    def is_there(self) -> bool:
        """Whether the file has the text, once."""
        path = TOP / "src/motet" / self.file
        return path.is_file() and path.read_text().count(self.text) == 1


def read_faults() -> list[Fault]:
    return [Fault(**each) for each in tomllib.loads(_FAULTS.read_text())["fault"]]


def find(fault: Fault, files: Sequence[str], seconds: float, slow: bool) -> str:
    """The first test of `files` that fails with a fault; empty if none does within `seconds`."""
    with tempfile.TemporaryDirectory(prefix="motet-mutant-") as folder:
        top = Path(folder)
        for file in _files():
            (top / file.relative_to(TOP)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, top / file.relative_to(TOP), follow_symlinks=False)
        fault.make(top)
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "120"]
        command += [] if slow else ["-m", "not slow"]
        try:
            done = subprocess.run([*command, *files], cwd=top, env=os.environ | {"PYTHONPATH": str(top / "src")},
                                  capture_output=True, text=True, check=False, timeout=2 * seconds)  # fmt: skip
        except subprocess.TimeoutExpired:
            return ""
    if done.returncode in (0, 5):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else done.stdout.strip().rpartition("\n")[2]


def near(fault: Fault, seconds: float) -> list[str]:
    """The files of tests that may find a fault, for `seconds`, the nearest first."""
    first = [f"tests/{fault.first}.py"] if fault.first else []
    return list(dict.fromkeys([*first, *reaching([f"src/motet/{fault.file}"], seconds)]))


def _files() -> Iterator[Path]:
    """What git tracks, with the bytecode of modules, which stays valid in the copy but for the module that changes."""
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        file = TOP / name
        cached = [Path(cache_from_source(str(file)))] if file.suffix == ".py" else []
        yield from (found for found in (file, *cached) if found.is_file())


def report(faults: Sequence[Fault], seconds: float, jobs: int, slow: bool) -> int:
    """Print which tests find the faults, as they are found; returns how many are."""
    found = 0
    begun = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(find, fault, near(fault, seconds), seconds, slow): fault for fault in faults}
        for done in as_completed(waiting):
            test = done.result()
            found += bool(test)
            print(f"{waiting[done].file}: {waiting[done].text.strip()}\n    {test or 'NOT FOUND'}, after "
                  f"{time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="the faults in whose file or text this occurs")
    parser.add_argument("--seconds", type=float, default=300, help="what the tests for one fault may take (300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults at the same time")
    parser.add_argument("--all", action="store_true", help="run slow tests, too")
    options = parser.parse_args()
    faults = [fault for fault in read_faults() if options.only in fault.file or options.only in fault.text]
    if gone := [f"{fault.file}: {fault.text!r}" for fault in faults if not fault.is_there()]:
        sys.exit(f"error: expected once, but not there: {'; '.join(gone)}: mend {_FAULTS.name}")
    found = report(faults, options.seconds, options.jobs, options.all)
    print(f"{found} of {len(faults)} found")
    return int(found < _ENOUGH * len(faults))


if __name__ == "__main__":
    sys.exit(main())
