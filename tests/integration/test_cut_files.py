"""Files that are cut short while a session is in use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import run_motet

import motet

PROGRAM = """
func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %c = arith.constant dense<{values}> : tensor<{n}xf32>
  %r = arith.addf %x, %c : tensor<{n}xf32>
  return %r : tensor<{n}xf32>
}}
"""


@pytest.mark.parametrize("beside", [False, True])
def test_copied_files_may_be_cut(tmp_path: Path, beside: bool) -> None:
    values = np.random.default_rng(0).integers(-99, 99, 4000).astype(np.float32)
    (tmp_path / "p.mlir").write_text(PROGRAM.format(n=len(values), values=values.tolist()))
    flags = ["--parameters", "external" if beside else "embedded"]
    done = run_motet("compile", "p.mlir", "-o", "p.motet", *flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with motet.load(tmp_path / "p.motet", copy=True) as session:
        for file in tmp_path.iterdir():
            os.truncate(file, 10)
        np.testing.assert_array_equal(session(values), 2 * values)
