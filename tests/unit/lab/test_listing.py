"""The kernels of a program, as `motet lab show` prints them."""

from pathlib import Path

from motet.lab.subject import open_program
from motet.tools.lab.show import kernel_lines

TEXT = """
func.func @main(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>, %c: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %p = linalg.matmul ins(%a, %b : tensor<8x16xf32>, tensor<16x4xf32>) outs(%c : tensor<8x4xf32>) -> tensor<8x4xf32>
    loc("layer1.0.dense")
  %r = linalg.add ins(%p, %c : tensor<8x4xf32>, tensor<8x4xf32>) outs(%c : tensor<8x4xf32>) -> tensor<8x4xf32>
    loc("layer1.0.skip")
  return %r : tensor<8x4xf32>
}
"""


def test_a_kernel_is_shown_with_the_names_in_the_source_of_what_it_computes(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(TEXT)
    [kernel] = open_program(str(tmp_path / "m.mlir")).kernels
    assert kernel_lines(kernel)[1] == "  computes  layer1.0.dense + skip"
