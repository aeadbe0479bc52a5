"""`motet compile` names operators whose kernels take the generic path and most of the time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

# Steps that depend on each other, on single elements: no class has code for them.
RECURRENCE = """
func.func @main(%x: tensor<{length}xf32>) -> tensor<{length}xf32> {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %end = arith.constant {length} : index
  %y = scf.for %i = %one to %end step %one iter_args(%t = %x) -> tensor<{length}xf32> {{
    %before = arith.subi %i, %one : index
    %a = tensor.extract %t[%before] : tensor<{length}xf32>
    %b = tensor.extract %t[%i] : tensor<{length}xf32>
    %c = arith.mulf %a, %b : f32
    %n = tensor.insert %c into %t[%i] : tensor<{length}xf32>
    scf.yield %n : tensor<{length}xf32>
  }}
  return %y : tensor<{length}xf32>
}}
"""
PRODUCT = """
func.func @main(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %e = tensor.empty() : tensor<512x512xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %x = linalg.matmul ins(%a, %b : tensor<512x512xf32>, tensor<512x512xf32>) outs(%f : tensor<512x512xf32>)
    -> tensor<512x512xf32>
  return %x : tensor<512x512xf32>
}
"""


def test_slow_kernel_is_named_in_one_line(motet: Run, tmp_path: Path) -> None:
    (tmp_path / "steps.mlir").write_text(RECURRENCE.format(length=1 << 20))
    outcome = motet("compile", "steps.mlir")
    assert outcome.returncode == 0, outcome.stderr
    line = outcome.stderr.rstrip("\n")
    assert "\n" not in line
    assert line.startswith("warning: ")
    assert "steps.mlir:" in line  # the place in the source
    assert "generic path" in line
    assert "docs/codegen.md" in line


@pytest.mark.parametrize("text", [RECURRENCE.format(length=1000), PRODUCT], ids=["tiny", "in a class"])
def test_other_programs_get_no_warning(motet: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "program.mlir").write_text(text)
    outcome = motet("compile", "program.mlir")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
