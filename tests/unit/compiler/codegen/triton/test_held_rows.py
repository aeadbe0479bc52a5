"""Softmax and normalisations along any dimensions as one program, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random
from tests.unit.compiler.codegen.triton.texts import nest, tensor

from motet.artifact.dtypes import DTYPES

SOFTMAX = """
func.func @main(%x: tensor<{shape}xf32>) -> tensor<{shape}xf32> {{
  %e = tensor.empty() : tensor<{shape}xf32>
  %r = linalg.softmax dimension({axis}) ins(%x : tensor<{shape}xf32>) outs(%e : tensor<{shape}xf32>)
      -> tensor<{shape}xf32>
  return %r : tensor<{shape}xf32>
}}"""


def centred(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """(x - mean) / mean of squares of that, along `axes`."""
    names = [f"d{number}" for number in range(len(shape))]
    kept = [name for number, name in enumerate(names) if number not in axes]
    every, row = f"affine_map<({', '.join(names)}) -> ({', '.join(names)})>", \
        f"affine_map<({', '.join(names)}) -> ({', '.join(kept)})>"
    kinds = ", ".join('"reduction"' if number in axes else '"parallel"' for number in range(len(shape)))
    points = ", ".join(['"parallel"'] * len(shape))
    whole = f"tensor<{'x'.join(map(str, shape))}xf32>"
    small = f"tensor<{'x'.join(str(size) for number, size in enumerate(shape) if number not in axes)}xf32>"
    count = float(np.prod([shape[axis] for axis in axes]))
    return f"""
func.func @main(%x: {whole}) -> {whole} {{
  %zero = arith.constant 0.0 : f32
  %se = tensor.empty() : {small}
  %begin = linalg.fill ins(%zero : f32) outs(%se : {small}) -> {small}
  %sum = linalg.generic {{indexing_maps = [{every}, {row}], iterator_types = [{kinds}]}}
      ins(%x : {whole}) outs(%begin : {small}) {{
  ^bb0(%v: f32, %s: f32):
    %w = arith.addf %v, %s : f32
    linalg.yield %w : f32
  }} -> {small}
  %e = tensor.empty() : {whole}
  %c = linalg.generic {{indexing_maps = [{every}, {row}, {every}], iterator_types = [{points}]}}
      ins(%x, %sum : {whole}, {small}) outs(%e : {whole}) {{
  ^bb0(%v: f32, %s: f32, %o: f32):
    %n = arith.constant {count} : f32
    %m = arith.divf %s, %n : f32
    %w = arith.subf %v, %m : f32
    linalg.yield %w : f32
  }} -> {whole}
  %squares = linalg.generic {{indexing_maps = [{every}, {row}], iterator_types = [{kinds}]}}
      ins(%c : {whole}) outs(%begin : {small}) {{
  ^bb0(%v: f32, %s: f32):
    %q = arith.mulf %v, %v : f32
    %w = arith.addf %q, %s : f32
    linalg.yield %w : f32
  }} -> {small}
  %y = linalg.generic {{indexing_maps = [{every}, {row}, {every}], iterator_types = [{points}]}}
      ins(%c, %squares : {whole}, {small}) outs(%e : {whole}) {{
  ^bb0(%v: f32, %s: f32, %o: f32):
    %n = arith.constant {count} : f32
    %m = arith.divf %s, %n : f32
    %w = arith.divf %v, %m : f32
    linalg.yield %w : f32
  }} -> {whole}
  return %y : {whole}
}}"""


# Long and short columns, odd extents, one line and many; the last are too long for a program's registers.
@pytest.mark.parametrize("shape, axis, programs", [
    ((33, 77), 0, 1), ((4, 19, 65), 1, 1), ((7, 100, 64), 1, 1), ((3, 5, 7, 11), 2, 1), ((129, 16), 0, 1),
    ((2, 17, 31, 3), 1, 1), ((1031, 17), 0, 1), ((6, 128, 9), 1, 1), ((5000, 17), 0, None),
])
def test_a_softmax_along_any_dimension_is_one_program(shape: tuple[int, ...], axis: int, programs: int | None) -> None:
    made = generate(SOFTMAX.format(shape="x".join(map(str, shape)), axis=axis))
    assert programs is None or len(made.programs) == programs
    x = random(*shape)
    exact = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    np.testing.assert_allclose(interpret(made, [x])[0], exact / exact.sum(axis, keepdims=True), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("shape, axes", [
    ((8, 24, 15), (0, 2)), ((3, 17, 5, 7), (1,)), ((6, 20, 3, 31), (1, 3)), ((6, 77), (0,)), ((2, 3, 64, 33), (0, 1)),
])
def test_a_normalisation_along_any_dimensions_is_one_program(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    made = generate(centred(shape, axes))
    assert len(made.programs) == 1
    x = random(*shape)
    exact = x.astype(np.float64) - x.astype(np.float64).mean(axes, keepdims=True)
    exact /= (exact * exact).mean(axes, keepdims=True)
    np.testing.assert_allclose(interpret(made, [x])[0], exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape, axes", [
    ((2, 9, 64, 640), (2, 3)), ((5, 3, 45, 29, 31), (2, 3, 4)), ((1, 33_333, 2), (1, 2)), ((17, 40_961), (1,)),
])
def test_few_long_rows_are_read_in_pieces(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Sums and squares of pieces, also of a shorter last one, their combination, and the results."""
    made = generate(centred(shape, axes))
    assert len(made.programs) == 3
    x = random(*shape) + np.float32(3)
    exact = x.astype(np.float64) - x.astype(np.float64).mean(axes, keepdims=True)
    exact /= (exact * exact).mean(axes, keepdims=True)
    np.testing.assert_allclose(interpret(made, [x])[0], exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(3, 50_257), (17, 70_001), (1, 40_000)])
def test_a_softmax_of_few_long_rows_is_read_in_pieces(shape: tuple[int, ...]) -> None:
    made = generate(SOFTMAX.format(shape="x".join(map(str, shape)), axis=1))
    assert len(made.programs) == 3
    x = random(*shape)
    x[0, :9000] = -np.inf
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(interpret(made, [x])[0], exact / exact.sum(1, keepdims=True), rtol=2e-5, atol=1e-9)


def test_an_operation_that_reads_a_square_the_other_way_is_another_program() -> None:
    """What a column's sum is subtracted from lies along rows: the sum is not known in the program of a column."""
    text = centred((24, 24), (0,)).replace(
        "affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>",
        "affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>", 1)
    made = generate(text)
    x = random(24, 24)
    exact = x.astype(np.float64) - x.astype(np.float64).mean(0)[:, None]
    exact /= (exact * exact).mean(0)
    np.testing.assert_allclose(interpret(made, [x])[0], exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape, axes, dtype, programs", [
    ((64, 100, 33, 2), (1,), "f64", 1), ((12, 80, 58, 44), (1,), "f32", 1), ((1000, 333), (0,), "f32", 1),
    ((7, 300, 129), (1,), "f64", 1), ((4, 65, 31, 31), (1,), "f32", 1), ((16, 32, 28, 28), (0, 2), "f32", 1),
    ((64, 200, 33, 2), (1,), "f16", 1), ((64, 777), (0,), "f32", 1), ((2, 3, 100, 5, 130), (2,), "bf16", 1),
    ((50_001, 17), (0,), "f32", 2), ((2000, 65), (0,), "f32", 2), ((5, 70, 9, 70, 3), (1, 3), "f32", 2),
])
def test_sums_of_rows_across_memory(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, programs: int) -> None:
    """Rows that a program can hold are one launch; others are read in pieces."""
    dims = "ijklm"[: len(shape)]
    kept = [d for d in range(len(shape)) if d not in axes]
    wide = "f64" if dtype == "f64" else "f32"
    cast = [] if wide == dtype else [f"%w = arith.extf %x0 : {dtype} to {wide}"]
    term = "%w" if cast else "%x0"
    text = nest(
        [(tensor(shape, dtype), ", ".join(dims))],
        [(tensor([shape[d] for d in kept], wide), ", ".join(dims[d] for d in kept), "0.0")],
        "".join("r" if d in axes else "p" for d in range(len(shape))),
        [*cast, f"%z = arith.addf {term}, %y0 : {wide}"], ["%z"],
    )
    made = generate(text)
    assert len(made.programs) == programs
    x = random(*shape).astype(DTYPES[dtype])
    exact = x.astype(np.float64).sum(axes)
    np.testing.assert_allclose(interpret(made, [x])[0], exact, rtol=1e-5, atol=2e-4)
