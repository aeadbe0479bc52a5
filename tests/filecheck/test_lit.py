"""Runs lit: one test for each file with a RUN line, so that they share the processors with all others."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
FILES = sorted(
    path for path in ROOT.rglob("*.mlir")
    if "RUN:" in path.read_text() and ROOT / "passes" not in path.parents  # test_passes.py runs those
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lit(path: Path) -> None:
    # Beside the interpreter, as every entry point: the module itself runs nothing.
    command = [str(Path(sys.executable).parent / "lit"), "-a", "-j1", str(path)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert outcome.returncode == 0 and "PASS: " in outcome.stdout, outcome.stdout + outcome.stderr
