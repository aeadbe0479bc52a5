"""Writes the tables of models in `docs/openvino_models.md` from the results of the suite `openvino`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.openvino_suite import DYNAMIC, IN_PARTS, NOT_CONVERTED
from conformance.results import Result, one_line, read_results
from conformance.runner import ROOT

PAGE = ROOT / "docs" / "openvino_models.md"
_BEGIN, _END = "<!-- written by python -m conformance report -->\n", "<!-- end -->\n"
_LENGTH = 160  # characters of a reason
_OUTCOMES = ("whole", "in parts", "not", "not converted by OpenVINO")
_EXTENTS = ("those of the example", "dynamic, as converted")


def write_table(results: Path) -> None:
    """Replace what is between the marks of the page. Does nothing without results."""
    found = list(read_results(results / "openvino.jsonl").values())
    if not found:
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(_BEGIN)
    after = rest.split(_END)[1]
    PAGE.write_text("".join([before, _BEGIN, *_tables(found), _END, after]), encoding="utf-8")
    print(f"{PAGE}: {len(found)} models")


def outcome_of(result: Result) -> str:
    """How much of a model Motet ran with equal results: one of `_OUTCOMES`."""
    if result.outcome == "ok":
        return "whole"
    if result.reason.startswith(NOT_CONVERTED):
        return "not converted by OpenVINO"
    inside = result.reason.startswith(IN_PARTS) and f"{IN_PARTS}, 0 of" not in result.reason
    return "in parts" if inside else "not"


def _tables(found: Sequence[Result]) -> Iterator[str]:
    counted = Counter((result.name.partition("/")[0], DYNAMIC in result.name, outcome_of(result)) for result in found)
    yield f"| extents | package | models | {' | '.join(_OUTCOMES)} |\n|---|---|---|{'---|' * len(_OUTCOMES)}\n"
    for is_dynamic, extents in enumerate(_EXTENTS):
        for package in sorted({package for package, *_ in counted}):
            numbers = [counted[package, bool(is_dynamic), outcome] for outcome in _OUTCOMES]
            yield f"| {extents} | {package} | {sum(numbers)} | {' | '.join(map(str, numbers))} |\n"
    yield "\n| model | runs | reason |\n|---|---|---|\n"
    for result in sorted(found, key=lambda each: each.name):
        if outcome_of(result) in ("in parts", "not"):
            yield f"| `{result.name.removesuffix(DYNAMIC)}`{_said(result)} |\n"
    names = sorted(result.name for result in found if outcome_of(result) == _OUTCOMES[-1])
    yield f"\nNot converted by OpenVINO: {', '.join(f'`{name}`' for name in names) or 'none'}.\n"


def _said(result: Result) -> str:
    extents = DYNAMIC if result.name.endswith(DYNAMIC) else ""
    amount, _, reason = result.reason.partition(": ") if result.reason.startswith(IN_PARTS) else ("", "", result.reason)
    runs = amount.removeprefix(f"{IN_PARTS}, ") or outcome_of(result)
    text = one_line(re.sub(r"^/\S+: ", "", reason), _LENGTH)
    text = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return f"{extents} | {runs} | {text}"
