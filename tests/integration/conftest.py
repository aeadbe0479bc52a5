"""The command line as a user meets it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration import command_line

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]

ADD = """
func.func @main(%x: tensor<3x5xf32>, %y: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %empty = tensor.empty() : tensor<3x5xf32>
  %sum = linalg.add ins(%x, %y : tensor<3x5xf32>, tensor<3x5xf32>) outs(%empty : tensor<3x5xf32>)
    -> tensor<3x5xf32>
  return %sum : tensor<3x5xf32>
}
"""

ROWS = """
func.func @double(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%n) : tensor<?x4xf32>
  %sum = linalg.add ins(%x, %x : tensor<?x4xf32>, tensor<?x4xf32>) outs(%empty : tensor<?x4xf32>)
    -> tensor<?x4xf32>
  return %sum : tensor<?x4xf32>
}
func.func @square(%x: tensor<6xi32>) -> tensor<6xi32> {
  %empty = tensor.empty() : tensor<6xi32>
  %product = linalg.mul ins(%x, %x : tensor<6xi32>, tensor<6xi32>) outs(%empty : tensor<6xi32>)
    -> tensor<6xi32>
  return %product : tensor<6xi32>
}
"""


def environment() -> dict[str, str]:
    """What a `motet` process needs to be this tree's."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}


def run_motet(
    *arguments: str | Path, folder: Path, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    return command_line.run([*map(str, arguments)], folder, environment(), timeout)


@pytest.fixture
def motet(tmp_path: Path) -> Run:
    """Runs `motet ARGUMENTS` in the test's own folder."""

    def run(*arguments: str | Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return run_motet(*arguments, folder=tmp_path, timeout=timeout)

    return run


@pytest.fixture
def fails(motet: Run) -> Callable[..., str]:
    """Runs `motet ARGUMENTS`, checks that it fails as for a mistake, and returns the text of the error."""

    def run(*arguments: str | Path) -> str:
        outcome = motet(*arguments)
        assert outcome.returncode == 1, outcome.stdout + outcome.stderr
        lines = outcome.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: "), outcome.stderr
        assert not lines[0].endswith(".")
        return lines[0].removeprefix("error: ")

    return run


@pytest.fixture
def add(tmp_path: Path) -> Path:
    """A program that adds two 3x5 tensors."""
    path = tmp_path / "add.mlir"
    path.write_text(ADD)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A program of two functions, one of them with a dynamic extent."""
    path = tmp_path / "rows.mlir"
    path.write_text(ROWS)
    return path


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts `add.motet` and `rows.motet`, compiled by the command line; copy one before changing it."""
    folder = tmp_path_factory.mktemp("compiled")
    for name, text in (("add", ADD), ("rows", ROWS)):
        (folder / f"{name}.mlir").write_text(text)
        outcome = run_motet("compile", f"{name}.mlir", folder=folder)
        assert outcome.returncode == 0, outcome.stderr
    return folder
