"""Runs the tests that a change can reach, the nearest first, in about three minutes.

    python -m checks.changed [--base BRANCH] [--seconds 160] [--list]

A test is the nearer, the fewer imports lead from it to a changed module. How long a file of tests takes is known from
earlier runs (`checks/costs.py`).
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from checks.costs import TOP, read_durations
from checks.structure import Module, read_modules
from motet.compiler.passes.registry import PASSES

_BASES = ("main", "origin/main")
_UNKNOWN = 5.0  # seconds of a file that has not been run
_TEXT = re.compile(r'"(motet(?:\.\w+)+)[":]')
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?import\s+(\([^)]*\)|[^\n#]+)", re.MULTILINE)
_REGISTRY = "motet.compiler.passes.registry"
_LEAST = 2.0  # seconds to start a worker's part of a file, whatever its tests take


def changed_files(base: str) -> list[str]:
    """The files that differ from where this branch left `base`, by default the first of `_BASES` that this clone has,
    with those that git does not know yet."""
    names = [base] if base else _BASES
    known = next((name for name in names if not _run_git("rev-parse", "--verify", f"{name}^{{commit}}").returncode), "")
    if not known:
        raise SystemExit(f"error: this clone has no branch {' or '.join(names)}; give the branch that the change is "
                         "compared with: make test-changed BASE=BRANCH, or --base BRANCH")
    origin = _git("merge-base", "HEAD", known)[0]
    return sorted({*_git("diff", "--name-only", origin), *_git("ls-files", "--others", "--exclude-standard")})


def _run_git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=TOP, capture_output=True, text=True, check=False)


def _git(*arguments: str) -> list[str]:
    done = _run_git(*arguments)
    if done.returncode:
        raise SystemExit(f"error: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.split("\n")[:-1]


def distances(changed: Collection[str], modules: Sequence[Module]) -> dict[str, int]:
    """The number of imports that lead from each module to one of `changed`; modules from which none do are left out.
    A module whose name is a text in another is imported there by that name, and those of passes in their registry."""
    names = {module.name for module in modules}
    importers: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        named = PASSES.values() if module.name == _REGISTRY else _TEXT.findall(module.text)
        for name in imports_in(module.text).union(named) & names:
            importers[name].append(module.name)
    found = dict.fromkeys((name for name in changed if name in names), 0)
    ring = list(found)
    while ring:
        reached = {importer: found[name] + 1 for name in reversed(ring) for importer in importers[name]}
        ring = [name for name in reached if name not in found]
        found |= {name: reached[name] for name in ring}
    return found


def imports_in(text: str) -> set[str]:
    """The names that imports mention, also those of programs in texts: modules, and for `from a import b` both a and
    a.b. Without a parser, which takes half a minute for all modules."""
    found: set[str] = set()
    for origin, imported in _IMPORT.findall(text):
        listed = re.sub("#.*", "", imported).strip("()").split(",")
        names = [each.split()[0] for each in listed if each.strip()]
        found |= {origin, *(f"{origin}.{name}" for name in names)} if origin else set(names)
    return found


def choose(near: Mapping[str, int], seconds: Mapping[str, float], limit: float) -> list[str]:
    """The files of tests, the nearest and quickest first, that take `limit` seconds together."""
    chosen: list[str] = []
    for file in sorted(near, key=lambda file: (near[file], seconds.get(file, _UNKNOWN))):
        limit -= max(seconds.get(file, _UNKNOWN), _LEAST)
        if limit < 0 and near[file]:
            break
        chosen.append(file)
    return chosen


def reaching(changed: Collection[str], limit: float) -> list[str]:
    """The files of tests that reach the changed files by imports, for `limit` seconds: those named like one of them
    first, then the nearest and quickest."""
    modules, tests = _read_all()
    names = {str(module.path.relative_to(TOP)): module.name for module in modules}
    near = distances([names[file] for file in changed if file in names], modules)
    words = {word for file in changed for word in _words(file)}
    files = {
        file: near[module.name] * (not words & _words(file)) for module in tests
        if module.name in near and (file := str(module.path.relative_to(TOP))).rpartition("/")[2].startswith("test_")
    }
    seconds: dict[str, float] = defaultdict(float)
    for function, (_, taken) in read_durations().items():
        seconds[function.partition("::")[0]] += taken
    return choose(files, seconds, limit)


@functools.cache
def _read_all() -> tuple[list[Module], list[Module]]:
    """All modules, with the tests; and the tests."""
    tests = [Module(f"tests.{module.name}", module.path, module.text) for module in read_modules(TOP / "tests")]
    return [*read_modules(), *tests], tests


def _words(file: str) -> set[str]:
    """The words of a file's name, in the singular, but for those that say nothing."""
    return {word.rstrip("s") for word in Path(file).stem.split("_")} - {"test", "onnx", "torch", "plan", "emitter", ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="", metavar="BRANCH",
                        help=f"the branch that the change is compared with ({', or else '.join(_BASES)})")
    parser.add_argument("--seconds", type=float, default=160, help="how long the tests may take (160)")
    parser.add_argument("--list", action="store_true", help="only print the files")
    options = parser.parse_args()
    changed = changed_files(options.base)
    chosen = reaching(changed, options.seconds * (os.cpu_count() or 1))
    print(f"{len(changed)} changed files; the nearest {len(chosen)} files of tests that reach them:", flush=True)
    if options.list or not chosen:
        print("\n".join(chosen))
        return 0
    command = [sys.executable, "-m", "pytest", "-n", "auto", "-m", "not slow", "--timeout", "600"]
    return subprocess.run([*command, *chosen], cwd=TOP, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
