"""motet new-device: the package that it writes is a device, and the suite reports faults of one as results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.integration.installed import as_installed

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def package(motet: Run, tmp_path: Path) -> Path:
    """A new package, found like an installed one."""
    made = motet("new-device", "npu_two", "-o", str(tmp_path / "made"), "--title", "An NPU")
    assert (made.returncode, made.stderr) == (0, "")
    return as_installed(tmp_path / "made")


def conformance(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *filter(None, sys.path)])}
    return subprocess.run([sys.executable, "-m", "motet.runtime.conformance", "npu_two", *arguments], text=True,
                          capture_output=True, env=environment, timeout=400)  # fmt: skip


@pytest.mark.slow
def test_the_package_passes_the_suite(package: Path, tmp_path: Path) -> None:
    done = conformance(package, "--junit", str(tmp_path / "report.xml"))
    assert done.returncode == 0, done.stdout + done.stderr
    [suite] = ElementTree.parse(tmp_path / "report.xml").getroot()
    skipped: list[Any] = [case for case in suite if len(case)]
    assert suite.get("failures") == "0" and int(suite.get("tests", 0)) - len(skipped) > 370
    assert {case[0].get("type") for case in skipped} == {"unsupported"}


def test_a_fault_is_the_result_of_its_check(package: Path, tmp_path: Path) -> None:
    driver = package / "motet_npu_two" / "driver.py"
    driver.write_text(driver.read_text().replace('"fault-out-of-bounds", ', ""))
    report = tmp_path / "report.xml"
    done = conformance(package, "--only", "fault-out-of-bounds", "--only", "abort-idle", "--junit", str(report))
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "FAIL" in line]
    assert any("abort-idle" in line and "pass" in line for line in done.stdout.splitlines())
    assert "fault-out-of-bounds" in line and "its process ended by SIG" in line
    assert ElementTree.parse(report).getroot()[0].get("failures") == "1"


def test_an_expected_failure_is_told_apart(package: Path, tmp_path: Path) -> None:
    driver = package / "motet_npu_two" / "driver.py"
    text = driver.read_text().replace('"fault-out-of-bounds", ', "")
    driver.write_text(text + (
        '\nconformance_expected_failures = {"fault-out-of-bounds": "not yet", "allocate-sizes": "not yet"}\n'
        "def _broken(self, size):\n    raise ValueError('broken')\n\nNpuTwoDevice._allocate = _broken\n"))
    arguments = ("--only", "fault-out-of-bounds", "--only", "allocate-sizes", "--junit", str(tmp_path / "r.xml"))
    done = conformance(package, *arguments)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum("expected not yet: " in line for line in lines) == 2
    kinds = {each.get("type") for each in ElementTree.parse(tmp_path / "r.xml").iter("skipped")}
    assert kinds == {"expected failure"}


@pytest.mark.parametrize(("arguments", "said"), [
    (["Npu"], "'Npu' given; expected a name of a-z, 0-9 and _"), (["class"], "'class' given; expected a name"),
    (["cuda"], "cuda is a family of Motet's own"), (["hip"], "hip is a family of Motet's own"),
    (["npu", "--title", 'a"b'], "--title: expected one line"),
    (["npu", "-o", "."], "exists; expected a new folder"),
])  # fmt: skip
def test_mistakes_are_one_line(motet: Run, arguments: list[str], said: str) -> None:
    done = motet("new-device", *arguments)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1
