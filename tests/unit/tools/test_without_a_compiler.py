"""Commands that compile, where the packages that compile are not installed: one line that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FRAGMENT = str(ROOT / "examples/fragment.mlir")

# `sys.modules` refuses imports, and `find_spec` finds none, as where nothing is installed.
PROGRAM = """
import sys, importlib.util
find, missing = importlib.util.find_spec, ("torch_mlir", "llvmlite", "triton")
sys.modules.update(dict.fromkeys(missing))
importlib.util.find_spec = lambda name, *rest: None if name in missing else find(name, *rest)
from motet.tools.main import main
main()
"""


@pytest.mark.parametrize("arguments", [
    ["compile", FRAGMENT, "--emit", "llvm"], ["run", FRAGMENT], ["lab", "show", FRAGMENT],
    ["lab", "evaluate", "matmul:8x8x8xf32"], ["opt", FRAGMENT, "--pipeline", "canonicalize"],
], ids=lambda arguments: " ".join(arguments[:2]).replace(FRAGMENT, ""))  # fmt: skip
def test_one_line_says_what_to_install(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], text=True, capture_output=True,
                          env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""})  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: ") and "install it with: pip install 'motet[compile]'" in done.stderr
