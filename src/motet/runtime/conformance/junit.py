"""Outcomes of checks as a JUnit report, which continuous integration shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from motet.runtime.conformance.listing import Outcome


def write_junit(path: Path, uri: str, outcomes: Sequence[Outcome]) -> None:
    """Write a report: a test case for each check; expected failures and unsupported checks are skipped, with types."""
    suite = ElementTree.Element(
        "testsuite", name=f"conformance of {uri}", tests=str(len(outcomes)),
        failures=str(sum(each.verdict == "fail" for each in outcomes)), errors="0",
        skipped=str(sum(each.verdict in ("skip", "expected") for each in outcomes)),
        time=f"{sum(each.seconds for each in outcomes):.3f}",
    )
    for each in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname=each.check.area, name=each.check.name, time=f"{each.seconds:.3f}"
        )
        if each.verdict == "fail":
            ElementTree.SubElement(case, "failure", message=each.reason).text = each.check.summary
        elif each.verdict != "pass":
            kind = "unsupported" if each.verdict == "skip" else "expected failure"
            ElementTree.SubElement(case, "skipped", type=kind, message=each.reason)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
