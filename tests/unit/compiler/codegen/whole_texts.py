"""Scans, sorts and scatters as texts, in the dialect that lowered ONNX models have."""

from __future__ import annotations

from motet.compiler.frontends.torch.to_linalg import to_linalg
from motet.compiler.ir._mlir import ir, register_torch_dialect
from motet.compiler.ir.program import Program


def load(text: str, file: str) -> Program:
    """A program with operations of the dialect that lowered ONNX models have, which no text of a user's may have."""
    context = ir.Context()
    register_torch_dialect(context)
    with context, ir.Location.unknown():
        to_linalg(ir.Module.create())  # which loads the dialect
        return Program(ir.Module.parse(text), {})


SCAN = """
func.func @main(%x: tensor<{shape}x{dtype}>) -> tensor<{shape}x{dtype}> {{
  %c = arith.constant {begin} : {dtype}
  %e = tensor.empty() : tensor<{shape}x{dtype}>
  %f = tensor.empty() : tensor<{rest}x{dtype}>
  %g = linalg.fill ins(%c : {dtype}) outs(%f : tensor<{rest}x{dtype}>) -> tensor<{rest}x{dtype}>
  %y:2 = tm_tensor.scan dimension({dim}) inclusive({inclusive}) ins(%x : tensor<{shape}x{dtype}>)
      outs(%e, %g : tensor<{shape}x{dtype}>, tensor<{rest}x{dtype}>) {{
  ^bb0(%a: {dtype}, %b: {dtype}):
    %s = {op} %a, %b : {dtype}
    tm_tensor.yield %s : {dtype}
  }} -> tensor<{shape}x{dtype}>, tensor<{rest}x{dtype}>
  return %y#0 : tensor<{shape}x{dtype}>
}}
"""


def scan(shape: tuple[int, ...], dim: int, op: str, dtype: str, inclusive: bool = True, begin: str = "0.0") -> str:
    rest = [size for axis, size in enumerate(shape) if axis != dim]
    return SCAN.format(
        shape="x".join(map(str, shape)), rest="x".join(map(str, rest)), dim=dim, op=op, dtype=dtype,
        inclusive=str(inclusive).lower(), begin=begin,
    )


SORT = """
func.func @main(%x: tensor<{shape}x{dtype}>, %p: tensor<{shape}xi64>) -> ({out}x{dtype}>, {out}xi64>) {{
  %y:2 = tm_tensor.sort dimension({dim}) outs(%x, %p : tensor<{shape}x{dtype}>, tensor<{shape}xi64>) {{
  ^bb0(%a: {dtype}, %b: {dtype}, %c: i64, %d: i64):
    %s = {op}, %a, %b : {dtype}
    tm_tensor.yield %s : i1
  }} -> tensor<{shape}x{dtype}>, tensor<{shape}xi64>
  {slices}
}}
"""


def sort(shape: tuple[int, ...], dim: int, op: str, dtype: str, first: int | None = None) -> str:
    whole = "x".join(map(str, shape))
    cut = [first if axis == dim and first is not None else size for axis, size in enumerate(shape)]
    out = "tensor<" + "x".join(map(str, cut))
    zeros, ones = [0] * len(shape), [1] * len(shape)
    slices = f"return %y#0, %y#1 : {out}x{dtype}>, {out}xi64>"
    if first is not None:
        slices = "\n".join([
            f"%s{k} = tensor.extract_slice %y#{k}{zeros} {cut} {ones} : tensor<{whole}x{kind}> to {out}x{kind}>"
            for k, kind in enumerate((dtype, "i64"))
        ]) + f"\nreturn %s0, %s1 : {out}x{dtype}>, {out}xi64>"
    return SORT.format(shape=whole, out=out, dim=dim, op=op, dtype=dtype, slices=slices)


SCATTER = """
func.func @main(%u: tensor<{updates}x{dtype}>, %i: tensor<{indices}xi64>, %x: tensor<{shape}x{dtype}>)
    -> tensor<{shape}x{dtype}> {{
  %y = tm_tensor.scatter {{dimension_map = array<i64: {dims}>}} unique_indices(false)
      ins(%u, %i : tensor<{updates}x{dtype}>, tensor<{indices}xi64>) outs(%x : tensor<{shape}x{dtype}>) {{
  ^bb0(%a: {dtype}, %b: {dtype}):
    {body}
  }} -> tensor<{shape}x{dtype}>
  return %y : tensor<{shape}x{dtype}>
}}
"""


SCATTER_OF_NUMBERS = """
func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {{
  %u = arith.constant dense<2.5> : tensor<3xf32>
  %i = arith.constant dense<{index}> : tensor<3x1xi64>
  %y = tm_tensor.scatter {{dimension_map = array<i64: 0>}} unique_indices(false)
      ins(%u, %i : tensor<3xf32>, tensor<3x1xi64>) outs(%x : tensor<9xf32>) {{
  ^bb0(%a: f32, %b: f32):
    {body}
  }} -> tensor<9xf32>
  return %y : tensor<9xf32>
}}
"""
