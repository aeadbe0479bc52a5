"""motet new-codegen: the package that it writes compiles programs and runs them, and its tests pass as written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.installed import as_installed

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def package(motet: Run, tmp_path: Path) -> Path:
    """A new package, found like an installed one."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    made = motet("new-codegen", "npu_two", "-o", str(tmp_path / "made"), "--title", "An NPU")
    assert (made.returncode, made.stderr) == (0, "")
    as_installed(tmp_path / "made")
    return tmp_path / "made"


def python(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package / "src"), *filter(None, sys.path)])}
    return subprocess.run([sys.executable, *arguments], text=True, capture_output=True, env=environment, cwd=package,
                          timeout=400)  # fmt: skip


def pytest_of(package: Path, *arguments: str) -> str:
    """The last line of pytest in the package, which finds no configuration of this tree."""
    done = python(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_programs_run_on_the_device_and_its_fallback(package: Path) -> None:
    line = pytest_of(package, "tests/test_programs.py", "-k", "fallback")
    assert line.startswith("1 passed, 6 deselected")


@pytest.mark.slow
def test_all_tests_of_the_package_pass(package: Path) -> None:
    line = pytest_of(package, "tests")
    assert "failed" not in line and int(line.split()[0]) > 370


def test_a_mistake_in_the_text_is_named_with_its_kernel(package: Path, tmp_path: Path) -> None:
    text = package / "src" / "motet_npu_two" / "c_text.py"
    text.write_text(text.read_text().replace('"{0} + {1}"', '"{0} plus {1}"'))
    (tmp_path / "program.mlir").write_text(
        "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n"
        "  %y = arith.addf %x, %x : tensor<?xf32>\n  return %y : tensor<?xf32>\n}\n"
    )
    done = python(package, "-m", "motet", "compile", str(tmp_path / "program.mlir"), "--device", "npu_two")
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and "kernel main_kernel_0: " in line and "plus" in line


@pytest.mark.parametrize(("arguments", "said"), [
    (["Npu"], "'Npu' given; expected a name of a-z, 0-9 and _"), (["class"], "'class' given; expected a name"),
    (["cuda"], "cuda is a family of Motet's own"), (["triton"], "triton is a code generator of Motet's own"),
    (["npu", "--title", 'a"b'], "--title: expected one line"), (["npu", "-o", "."], "exists; expected a new folder"),
])  # fmt: skip
def test_mistakes_are_one_line(motet: Run, arguments: list[str], said: str) -> None:
    done = motet("new-codegen", *arguments)
    assert done.returncode == 1 and done.stderr.startswith("error: new-codegen: ") and said in done.stderr
    assert done.stderr.count("\n") == 1
