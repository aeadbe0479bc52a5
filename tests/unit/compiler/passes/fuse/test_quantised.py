"""Chains of operations that may be dequantised bytes."""

from __future__ import annotations

import pytest

from motet.compiler.frontends import mlir
from motet.compiler.ir._mlir import ir
from motet.compiler.passes.fuse import quantised
from motet.compiler.passes.fuse.sink_dequantisations import SinkDequantisations

MULTIPLIED = """  %{0} = linalg.generic {{indexing_maps = [#same, #same, #same], iterator_types = ["parallel"]}}
    ins(%{1}, %{1} : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {{
    ^bb0(%a: f32, %b: f32, %c: f32):
      %m = arith.mulf %a, %b : f32
      linalg.yield %m : f32
  }} -> tensor<4xf32>
"""


def chain(count: int, other: str) -> str:
    steps = "".join(MULTIPLIED.format(number + 1, number) for number in range(count))
    return f"""#same = affine_map<(i) -> (i)>
func.func @main(%0: tensor<4xf32>, %other: tensor<4x{other}>) -> tensor<4xf32> {{
  %e = tensor.empty() : tensor<4xf32>
{steps}  return %{count} : tensor<4xf32>
}}"""


@pytest.mark.parametrize(("other", "least", "most"), [("i8", 1000, 1002), ("f32", 0, 0)])
def test_each_operation_of_a_long_chain_is_read_once_if_there_are_bytes(
    other: str, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, read = 1000, 0
    inner = quantised._read

    def counted(value: ir.Value, known: quantised.Known) -> quantised.Quantised | None:
        nonlocal read
        read += 1
        return inner(value, known)

    monkeypatch.setattr(quantised, "_read", counted)
    program = mlir.load_mlir(chain(count, other), "chain.mlir")
    with program.module.context:
        assert not SinkDequantisations().run(program)
    assert least <= read <= most
