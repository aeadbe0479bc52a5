"""ONNX Runtime's results for the ONNX suites, measured once per version and stored in `peers/onnxruntime.json`."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from conformance.results import Result
from conformance.runner import Child, interpreter, run_cases
from conformance.suites import INSTALL, SUITES

FILE = Path(__file__).parent / "peers" / "onnxruntime.json"
MODULES = {"as labelled": "conformance.onnxruntime_peer", "label lowered": "conformance.onnxruntime_lowered"}
_PACKAGES = ("onnx", "onnxruntime")


@dataclass(frozen=True)
class Peer:
    """`failing` are the names of the cases that ONNX Runtime does not pass, by suite and treatment of versions; `total`
    is the number of cases of a suite."""

    versions: dict[str, str] = field(default_factory=dict[str, str])
    total: dict[str, int] = field(default_factory=dict[str, int])
    failing: dict[str, dict[str, list[str]]] = field(default_factory=dict[str, dict[str, list[str]]])

    def passed(self, suite: str, way: str) -> int | None:
        """The number of cases of `suite` that it passes; None if not measured."""
        failing = self.failing.get(suite, {}).get(way)
        return None if failing is None else self.total[suite] - len(failing)


def read_peer() -> Peer:
    return Peer(**json.loads(FILE.read_text(encoding="utf-8"))) if FILE.exists() else Peer()


def measure(frameworks: Path) -> None:
    """Run the ONNX suites with ONNX Runtime, unless stored results are of the installed versions."""
    python = interpreter(_PACKAGES, frameworks)
    if python is None:
        print(f"onnxruntime: not measured: needs {', '.join(_PACKAGES)}; install them with: {INSTALL}")
        return
    versions = _versions(python)
    if read_peer().versions == versions:
        print(f"onnxruntime: measured already: {versions}")
        return
    peer = Peer(versions)
    for suite in (suite for suite in SUITES if suite.startswith("onnx-")):
        for way, module in MODULES.items():
            failing, total = _failing(python, module, suite)
            peer.failing.setdefault(suite, {})[way] = failing
            peer.total[suite] = total
            print(f"onnxruntime: {suite}, {way}: {total - len(failing)} of {total}", flush=True)
    FILE.parent.mkdir(exist_ok=True)
    text = json.dumps({"versions": peer.versions, "total": peer.total, "failing": peer.failing}, indent=0)
    FILE.write_text(text + "\n", encoding="utf-8")


def _failing(python: str, module: str, suite: str) -> tuple[list[str], int]:
    children = [Child(python, module, suite) for _ in range(len(os.sched_getaffinity(0)))]
    results: list[Result] = []
    try:
        names = children[0].names()
        run_cases(children, names, SUITES[suite].limit, results.append)
    finally:
        for child in children:
            child.stop()
    return sorted(result.name for result in results if result.outcome != "ok"), len(names)


def _versions(python: str) -> dict[str, str]:
    code = "import json, sys; from importlib.metadata import version as v; " \
           "print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
    return json.loads(subprocess.run([python, "-c", code, *_PACKAGES], check=True, capture_output=True).stdout)
