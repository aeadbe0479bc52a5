"""Compiles one corpus of programs with two source trees and compares the code, byte for byte.

    python -m checks.objects BEFORE [AFTER] [--programs GLOB] [--every N] [--device TARGET …]

BEFORE and AFTER are commits; without AFTER the working tree is taken. The corpus comes from the working tree: the
benchmarks' models, the programs of `examples/` and `tests/filecheck/`, ONNX's node cases and random programs of
`tests/fuzz`. Prints each program whose members differ (a kernel's object, PTX, contracts, parameters; not the manifest
and the list of schedules), and exits with 1 if one does. A program that one of the trees refuses is compared by the
message.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZED = 240  # random programs

# In the compared tree: compiles the files of a folder and prints, for each, the hashes of its members.
_CHILD = """
import json, pathlib, sys
import motet
folder, devices = pathlib.Path(sys.argv[1]), sys.argv[2:]
for path in sorted(folder.iterdir()):
    try:
        artifact = motet.compile(path, format=path.suffix[1:], cache=False, devices=",".join(devices) or None,
                                 options={"jobs": 1})
        found = {name: member.sha256 for name, member in artifact.manifest.members.items()}
    except motet.MotetError as error:
        found = {"refused": str(error)}
    print(json.dumps([path.stem, found]), flush=True)
"""


@dataclass(frozen=True)
class Program:
    """A program of the corpus; `source` makes its text or bytes."""

    name: str
    format: str
    source: Callable[[], str | bytes]


def corpus() -> Iterator[Program]:
    """All programs, in a fixed order."""
    yield from _texts()
    yield from _models()
    yield from _node_cases()
    yield from _fuzzed()


def _texts() -> Iterator[Program]:
    for path in sorted([*ROOT.glob("examples/*.mlir"), *ROOT.glob("tests/filecheck/**/*.mlir")]):
        yield Program(f"text-{path.parent.name}-{path.stem}", "mlir", path.read_text)


def _models() -> Iterator[Program]:
    from benchmarks.workloads import WORKLOADS

    for workload in WORKLOADS:
        yield Program(
            f"model-{workload.name}", "onnx", lambda model=workload.model: model().SerializeToString()
        )


def _node_cases() -> Iterator[Program]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases test overflows and divisions by zero
        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    for case in cases:
        if (model := case.model) is not None:
            yield Program(f"node-{case.name}", "onnx", lambda model=model: model.SerializeToString())


def _fuzzed() -> Iterator[Program]:
    from tests.fuzz.graph import Graph
    from tests.fuzz.languages import LANGUAGES, Language
    from tests.fuzz.plan import batch_of, kind_of, program_of
    from tests.fuzz.shapes import types_of
    from tests.fuzz.tracked import Invalid

    for batch in range(0, FUZZED, len(batch_of(0))):
        for seed in batch_of(batch):
            graph = program_of(seed)
            try:
                types_of(graph)
            except Invalid:
                continue
            for name in kind_of(seed).languages:
                language = LANGUAGES[name]

                def write(graph: Graph = graph, language: Language = language) -> str | bytes:
                    return language.write([graph])

                yield Program(f"fuzz-{name}-{seed}", language.format, write)


def write_corpus(folder: Path, pattern: str, every: int) -> int:
    """Writes the programs whose name fits `pattern`, one of each `every`, as files; returns how many."""
    chosen = [program for program in corpus() if fnmatch.fnmatch(program.name, pattern)][::every]
    for program in chosen:
        source = program.source()
        path = folder / f"{program.name}.{program.format}"
        path.write_bytes(source.encode() if isinstance(source, str) else source)
    return len(chosen)


def members_of(tree: Path, folder: Path, devices: Sequence[str]) -> dict[str, dict[str, str]]:
    """The hashes of the members of every program, compiled with the package in `tree`."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    lines = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder), *devices], env=environment, cwd=tree, check=True, text=True,
        stdout=subprocess.PIPE,
    ).stdout.splitlines()
    return dict(json.loads(line) for line in lines)


def checked_out(commit: str, parent: Path) -> Path:
    """A folder with the files of `commit`."""
    folder = parent / hashlib.sha256(commit.encode()).hexdigest()[:12]
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The members that are not the same in both."""
    names = sorted({*before, *after} - {"manifest.json", "schedules.json"})
    return [name for name in names if before.get(name) != after.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser("python -m checks.objects", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="a commit; default: the working tree")
    parser.add_argument("--programs", default="*", help="only those whose name fits this pattern")
    parser.add_argument("--every", type=int, default=1, help="one program of so many")
    parser.add_argument("--device", action="append", default=[], help="what to compile for; default: the host's levels")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (sources := scratch / "corpus").mkdir()
        count = write_corpus(sources, given.programs, given.every)
        trees = [checked_out(given.before, scratch), checked_out(given.after, scratch) if given.after else ROOT]
        before, after = (members_of(tree, sources, given.device) for tree in trees)
    changed = {program: found for program in before if (found := differences(before[program], after[program]))}
    for program, found in changed.items():
        print(f"{program}: {', '.join(found)}")
    refused = sum("refused" in members for members in after.values())
    print(f"{count} programs ({refused} refused by both), {len(changed)} differ")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
