"""What is known of kernels by the symbols that they are dispatched as."""

from __future__ import annotations

from pathlib import Path

import pytest

import motet
from motet.artifact.kernels import KernelTable
from motet.artifact.reader import Artifact

TEXT = """
func.func @main(%a: tensor<ROWSx8xf32>, %b: tensor<8x16xf32>, %f: tensor<ROWSx16xf32>) -> tensor<ROWSx16xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<ROWSx8xf32>, tensor<8x16xf32>)
                     outs(%f : tensor<ROWSx16xf32>) -> tensor<ROWSx16xf32>
  return %r : tensor<ROWSx16xf32>
}"""


def compiled(rows: str, path: Path) -> Path:
    motet.compile(TEXT.replace("ROWS", rows)).save(path)
    return path


@pytest.mark.parametrize(("rows", "flops"), [("5", 2 * 5 * 8 * 16), ("?", 0)])
def test_work_over_dynamic_extents_is_unknown(rows: str, flops: int, tmp_path: Path) -> None:
    """A guess of 256 rows made `bench` report rates beyond what any processor can do."""
    path = compiled(rows, tmp_path / "product.motet")
    variants = Artifact.open(path).manifest.variants
    for variant in variants:
        table = KernelTable([variant])
        (kernel,) = variant.kernels
        found = table.find(kernel.name)
        assert found is not None and found.flops == flops and table.flops == flops
        assert (found.bytes > 0) == (flops > 0)
