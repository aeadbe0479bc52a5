"""Writes `docs/conformance.md`: counts of every suite, and every failure with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.peers import MODULES, Peer, read_peer
from conformance.results import Result, counts, failures, one_line, read_results
from conformance.runner import ROOT
from conformance.suites import SUITES
from motet.version import VERSION

PAGE = ROOT / "docs" / "conformance.md"
_LENGTH = 220  # characters of a reason

_HEAD = """\
# Conformance

Public suites, as Motet {version} passes them. `make conformance` runs them and writes this page; `python -m conformance
run --help` lists how to run a part of them. A case passes if it compiles and gives results of the expected type, shape
and values. It is *refused* if Motet reports that it does not support it, *wrong* if a result differs, and a *crash* if
it ends with anything but a result or an error message, or takes too long.

`make test` runs a tenth of the ONNX node cases that pass (`conformance/passing/`) and fails if one of them does not.
[`testing.md`](testing.md) describes the other tests.

"""
_JUDGING = """\
ONNX results are compared with the suite's tolerance. {count} cases need it; all others agree to the precision of their
type. Of random numbers, type, shape and range are compared, because ONNX prescribes no generator. {peer}
"""
_FAILURES = """
## {title}: failures

{note}
| case | outcome | reason |
|---|---|---|
"""


def write_report(results: Path) -> None:
    """Write the page from the results of the last runs. Suites without results are listed as not run."""
    found = {name: list(read_results(results / f"{name}.jsonl").values()) for name in SUITES}
    PAGE.write_text("".join(_page(found, read_peer())), encoding="utf-8")
    print(f"{PAGE}: {sum(len(every) for every in found.values())} cases")


def _page(found: dict[str, list[Result]], peer: Peer) -> Iterator[str]:
    yield _HEAD.format(version=VERSION)
    yield from _table(found, peer)
    loose = sum(result.outcome == "ok" and bool(result.reason) for result in found["onnx-node"])
    yield "\n" + _JUDGING.format(count=loose, peer=_peer_note(peer))
    for name, suite in SUITES.items():
        failing = sorted(failures(found[name]), key=lambda result: result.name)
        if failing:
            yield _FAILURES.format(title=suite.title, note=_note(name, failing, peer))
            yield from map(_row, failing)


def _table(found: dict[str, list[Result]], peer: Peer) -> Iterator[str]:
    yield "| suite | cases | pass | refused | wrong | crash | ONNX Runtime passes |\n|---|---|---|---|---|---|---|\n"
    for name, suite in SUITES.items():
        if not found[name]:
            yield f"| {suite.title} | not run | | | | | {_passed(name, peer)} |\n"
            continue
        numbers = " | ".join(f"{number:,}" for number in counts(found[name]).values())
        yield f"| {suite.title} | {len(found[name]):,} | {numbers} | {_passed(name, peer)} |\n"


def _passed(suite: str, peer: Peer) -> str:
    """ONNX Runtime's passing cases of a suite, with lowered versions if these are more."""
    as_labelled, lowered = (peer.passed(suite, way) for way in MODULES)
    if as_labelled is None or lowered is None:
        return ""
    return f"{as_labelled:,}" if lowered == as_labelled else f"{as_labelled:,}; {lowered:,} with its label lowered"


def _peer_note(peer: Peer) -> str:
    if not peer.versions:
        return ""
    return (f"ONNX Runtime {peer.versions['onnxruntime']} is compared in the same way, with the cases of onnx "
            f"{peer.versions['onnx']} and its CPU provider.")


def _note(suite: str, failing: Sequence[Result], peer: Peer) -> str:
    """The distribution of a suite's failures, and those that ONNX Runtime passes."""
    kinds: dict[str, int] = defaultdict(int)
    for result in failing:
        kinds[result.outcome] += 1
    text = ", ".join(f"{number} {outcome}" for outcome, number in kinds.items())
    others = peer.failing.get(suite)
    if others is None:
        return f"{len(failing)} cases: {text}.\n"
    also = sum(all(result.name in names for names in others.values()) for result in failing)
    return f"{len(failing)} cases: {text}. ONNX Runtime fails {also} of them too.\n"


def _row(result: Result) -> str:
    text = one_line(result.reason.removeprefix(f"{result.name}: "), _LENGTH)
    for character, written in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;")):
        text = text.replace(character, written)
    return f"| {result.name} | {result.outcome} | {text} |\n"
