"""Normalisations of what products make, for GPUs: they read it as narrow as it is, and nothing else of the product."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret

M, N, K = 24, 40, 32
NARROW, WIDE, ROWS = f"{M}x{N}xbf16", f"{M}x{N}xf32", f"{M}xf32"


def generic(name: str, kind: str, dims: str, body: str, *operands: tuple[str, str, str], result: str = "i, j") -> str:
    """`body` makes %z of %i0, %i1, … with their maps and types; `result` names the loops of what is made."""
    loops = '"parallel", ' + ('"parallel"' if result == "i, j" else '"reduction"')
    maps = ", ".join(f"affine_map<({dims}) -> ({map_})>" for map_ in [*(map_ for _, map_, _ in operands), result])
    element = kind.rpartition("x")[2]
    arguments = ", ".join(f"%i{n}: {each.rpartition('x')[2]}" for n, (_, _, each) in enumerate(operands))
    return f"""
  %e{name} = tensor.empty() : tensor<{kind}>
  %s{name} = arith.constant 0.0 : {element}
  %f{name} = linalg.fill ins(%s{name} : {element}) outs(%e{name} : tensor<{kind}>) -> tensor<{kind}>
  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{loops}]}}
      ins({', '.join(each for each, _, _ in operands)} : {', '.join(f'tensor<{each}>' for _, _, each in operands)})
      outs(%f{name} : tensor<{kind}>) {{
  ^bb0({arguments}, %o: {element}):
    {body}
    linalg.yield %z : {element}
  }} -> tensor<{kind}>"""


def normalised(centred: bool) -> str:
    """y = bf16(x @ w + r), and bf16(y / norm of y's rows), y less its mean before if `centred`, all of it in f32."""
    ij, i = "i, j", "i"
    mean = "" if not centred else (
        generic("t", ROWS, ij, "%z = arith.addf %o, %i0 : f32", ("%v", ij, WIDE), result=i)
        + generic("c", WIDE, ij, f"%n = arith.constant {N}.0 : f32 %m = arith.divf %i1, %n : f32 "
                  "%z = arith.subf %i0, %m : f32", ("%v", ij, WIDE), ("%t", i, ROWS)))
    source = "%c" if centred else "%v"
    return f"""
func.func @main(%x: tensor<{M}x{K}xbf16>, %w: tensor<{K}x{N}xbf16>, %r: tensor<{NARROW}>)
    -> (tensor<{NARROW}>, tensor<{NARROW}>) {{
  %e = tensor.empty() : tensor<{NARROW}>
  %zero = arith.constant 0.0 : bf16
  %f = linalg.fill ins(%zero : bf16) outs(%e : tensor<{NARROW}>) -> tensor<{NARROW}>
  %p = linalg.matmul ins(%x, %w : tensor<{M}x{K}xbf16>, tensor<{K}x{N}xbf16>) outs(%f : tensor<{NARROW}>)
      -> tensor<{NARROW}>
  {generic("y", NARROW, ij, "%z = arith.addf %i0, %i1 : bf16", ("%p", ij, NARROW), ("%r", ij, NARROW))}
  {generic("v", WIDE, ij, "%z = arith.extf %i0 : bf16 to f32", ("%y", ij, NARROW))}
  {mean}
  {generic("q", WIDE, ij, "%z = arith.mulf %i0, %i0 : f32", (source, ij, WIDE))}
  {generic("u", ROWS, ij, "%z = arith.addf %o, %i0 : f32", ("%q", ij, WIDE), result=i)}
  {generic("d", NARROW, ij, "%n = math.sqrt %i1 : f32 %h = arith.divf %i0, %n : f32 "
           "%z = arith.truncf %h : f32 to bf16", (source, ij, WIDE), ("%u", i, ROWS))}
  return %y, %d : tensor<{NARROW}>, tensor<{NARROW}>
}}"""


@pytest.mark.parametrize("centred", [False, True])
def test_products_write_what_they_make_once_and_narrow(centred: bool) -> None:
    made = generate(normalised(centred))
    assert len(made.programs) == 2
    assert all(set(program.buffers) == {"bf16"} for program in made.programs.values())
    random = np.random.default_rng(4)
    x, w, r = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((M, K), (K, N), (M, N)))
    y, d = (each.astype("f8") for each in interpret(made, [x, w, r]))
    product = x.astype("f8") @ w.astype("f8") + r.astype("f8")
    np.testing.assert_allclose(y, product, 2e-2, 5e-2)
    centre = y - y.mean(1, keepdims=True) if centred else y
    np.testing.assert_allclose(d, centre / np.sqrt((centre**2).sum(1, keepdims=True)), 5e-3, 1e-4)
