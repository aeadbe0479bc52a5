"""Runs public suites, reports the results, and compares them with earlier ones.

    python -m conformance run                            every suite
    python -m conformance run --suite onnx-node --filter Resize --jobs 2
    python -m conformance run --suite onnx-node --shard 1/4 --resume
    python -m conformance peer                           ONNX Runtime's results for the ONNX suites
    python -m conformance report                         docs/conformance.md and the table of
                                                         docs/openvino_models.md, from the last results
    python -m conformance ratchet [--drop]               conformance/passing/, from the last results
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance import peers, ratchet
from conformance.openvino_table import write_table
from conformance.report import write_report
from conformance.results import Result, Unavailable, counts, read_results, write_results
from conformance.runner import ROOT, Child, interpreter, run_cases
from conformance.suites import INSTALL, SUITES, Suite

RESULTS = ROOT / "build" / "conformance"
FRAMEWORKS = ROOT / ".frameworks" / "bin" / "python"


def main() -> int:
    options = _parse()
    suites = [SUITES[name] for name in options.suite or SUITES]
    match options.command:
        case "run":
            for suite in suites:
                run_suite(suite, options)
        case "peer":
            peers.measure(options.python)
        case "report":
            write_report(RESULTS)
            write_table(RESULTS)
        case _:
            return max(ratchet.update(suite.name, RESULTS, options.drop) for suite in suites)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "peer", "report", "ratchet"))
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="all if not given")
    parser.add_argument("--filter", default="", metavar="REGEX", help="run the cases whose names contain a match")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N", help="run the I-th of N parts")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="concurrent cases")
    parser.add_argument("--resume", action="store_true", help="skip the cases with results of the last run")
    parser.add_argument("--drop", action="store_true", help="remove cases that fail now from the ratchet")
    parser.add_argument("--python", type=Path, default=FRAMEWORKS, metavar="PATH",
                        help=f"the Python that has the frameworks; default: what {INSTALL} makes")
    return parser.parse_args()


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text}: expected I/N with 1 ≤ I ≤ N")
    return int(match[1]), int(match[2])


def run_suite(suite: Suite, options: argparse.Namespace) -> None:
    """Run the selected cases and store their results, together with those of other cases unless all are selected."""
    python = interpreter(suite.packages, options.python)
    if python is None:
        print(f"{suite.name}: skipped: needs {', '.join(suite.packages)}; install them with: {INSTALL}")
        return
    children = [Child(python, suite.module, suite.name) for _ in range(options.jobs)]
    path = RESULTS / f"{suite.name}.jsonl"
    try:
        every = children[0].names()
        part, parts = options.shard
        chosen = [case for case in every[part - 1 :: parts] if re.search(options.filter, case)]
        if options.resume:
            kept = read_results(path)
            chosen = [case for case in chosen if case not in kept]
        elif len(chosen) == len(every):
            path.unlink(missing_ok=True)
        _run(suite, children, chosen, path)
    except Unavailable as reason:
        print(f"{suite.name}: skipped: {reason}")
        return
    finally:
        for child in children:
            child.stop()
    results = {name: result for name, result in read_results(path).items() if name in set(every)}
    write_results(path, results.values())
    print(f"{suite.name}: {_tally(list(results.values()))}, of {len(every)} cases")


def _run(suite: Suite, children: Sequence[Child], chosen: Sequence[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        run_cases(children, chosen, suite.limit, _recorder(suite.name, len(chosen), stream.write, stream.flush))


def _recorder(
    suite: str, total: int, write: Callable[[str], object], flush: Callable[[], object]
) -> Callable[[Result], None]:
    """A function that writes a result's line immediately, and prints progress now and then."""
    done: list[Result] = []

    def record(result: Result) -> None:
        write(result.to_line() + "\n")
        flush()
        done.append(result)
        if result.outcome in ("wrong", "crash"):
            print(f"{suite}: {result.name}: {result.outcome}: {result.reason}", flush=True)
        if len(done) % 100 == 0:
            print(f"{suite}: {len(done)} of {total}: {_tally(done)}", flush=True)

    return record


def _tally(results: Sequence[Result]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in counts(results).items() if number or outcome == "ok")


if __name__ == "__main__":
    sys.exit(main())
