"""What the command line of the fuzzer does."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.campaign import Limits, run_campaign
from tests.fuzz.graph import Graph, from_json, show, to_json
from tests.fuzz.kinds import kind_module, kinds
from tests.fuzz.known import KNOWN
from tests.fuzz.parent import Child, Finding
from tests.fuzz.plan import BATCH, kind_of, program_of
from tests.fuzz.records import Records, Tally

BUILD = Path("build")


def run(arguments: argparse.Namespace) -> int:
    """A campaign."""
    path: Path | None = arguments.resume or arguments.results
    records = Records(path) if path is not None else None
    tally = records.read() if records is not None and arguments.resume is not None else Tally()
    start = arguments.seed
    if start is None:
        start = tally.next_seed or random.SystemRandom().randrange(10**7) * BATCH
    if arguments.kind and arguments.kind not in kinds():
        print(f"error: kind {arguments.kind}: expected one of {', '.join(kinds())}, which can be tried here")
        return 2
    print(f"seeds from {start}; what is known and not drawn: {', '.join(sorted(KNOWN)) or 'nothing'}", flush=True)
    limits = Limits(arguments.seconds, arguments.count, arguments.jobs)
    run_campaign(start, limits, sorted(KNOWN), tally, records, _printer(arguments.quiet), arguments.target,
                 [arguments.kind] if arguments.kind else ["", *kinds()])
    print(f"\n{tally.show()}")
    return 1 if tally.failed else 0


def _printer(quiet: bool):
    def say(text: str) -> None:
        if text.startswith("\r"):
            if not quiet:
                sys.stderr.write(text if sys.stderr.isatty() else f"{text[1:]}\n")
                sys.stderr.flush()
            return
        print(text, flush=True)

    return say


def show_seeds(arguments: argparse.Namespace) -> int:
    for seed in map(int, arguments.what):
        if arguments.kind:
            print(kind_module(arguments.kind).show(seed))
            continue
        kind = kind_of(seed)
        print(f"seed {seed}: {kind.name} for {kind.options.target}, {kind.options.threads} threads")
        graph = program_of(seed)
        print(show(graph))
        for source in _sources(graph):
            if isinstance(source, str):
                print(source)
    return 0


def minimise_seed(arguments: argparse.Namespace) -> int:
    from tests.fuzz.minimise import minimise

    status = 0
    for seed in map(int, arguments.what):
        child = Child(sorted(KNOWN), target=arguments.target)
        try:
            graph, finding = minimise(program_of(seed), child, lambda text: print(f"  {text}", file=sys.stderr))
        finally:
            child.close()
        if finding.kind == "ok":
            print(f"seed {seed}: it is right by itself; the whole batch: python -m tests.fuzz --seed "
                  f"{seed // BATCH * BATCH} --count {BATCH}")
            continue
        status = 1
        _report(graph, finding)
        print(f"python -m tests.fuzz replay {write(graph)}")
    return status


def _report(graph: Graph, finding: Finding) -> None:
    kind = kind_of(graph.seed)
    print(f"seed {graph.seed} ({finding.language or kind.name}, {kind.options.target}): {finding.kind}: {finding.text}")
    print(show(graph))


def write(graph: Graph) -> Path:
    """Writes a program, as the fuzzer keeps it and in its own languages; the first of the files."""
    BUILD.mkdir(exist_ok=True)
    path = BUILD / f"fuzz-{graph.seed}.json"
    path.write_text(json.dumps(to_json(graph), indent=1))
    for source in _sources(graph):
        if isinstance(source, bytes):
            path.with_suffix(".onnx").write_bytes(source)
        else:
            path.with_suffix(".stablehlo.mlir" if "stablehlo." in source else ".mlir").write_text(source)
    return path


def _sources(graph: Graph) -> Sequence[str | bytes]:
    from tests.fuzz.languages import LANGUAGES

    return [LANGUAGES[language].write([graph]) for language in kind_of(graph.seed).languages]


def replay(arguments: argparse.Namespace) -> int:
    status = 0
    for path in arguments.what:
        graph = from_json(json.loads(Path(path).read_text()))
        child = Child(sorted(KNOWN), target=arguments.target)
        try:
            finding = child.try_graph(to_json(graph))
        finally:
            child.close()
        _report(graph, finding)
        status = status or int(finding.kind not in ("ok", "refused"))
    return status


def artifacts(arguments: argparse.Namespace) -> int:
    """Damages artifacts: every one must be refused, or run as the whole one does."""
    from tests.fuzz.artifacts import run_artifacts

    return run_artifacts(arguments)
