"""Scans, sorts and scatters for GPUs, by Triton's interpreter, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.codegen.triton import building
from tests.unit.codegen.triton.building import Generated, interpret, random

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.triton import scans, sorts
from motet.compiler.frontends.onnx_import import TO_LINALG
from motet.compiler.ir._mlir import ir, register_torch_dialect, run_pipeline
from motet.compiler.ir.program import Program


def load(text: str, file: str) -> Program:
    """A program with operations of the dialect that lowered ONNX models have, which no text of a user's may have."""
    context = ir.Context()
    register_torch_dialect(context)
    with context, ir.Location.unknown():
        run_pipeline(ir.Module.create(), TO_LINALG)  # which loads the dialect
        return Program(ir.Module.parse(text), {})


def generate(text: str) -> Generated:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "load_mlir", load)
        return building.generate(text)


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


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines take several turns, and are parted, at extents that the interpreter is fast enough for."""
    for name, value in (("_LINE", 128), ("_PARTED", 2000), ("_PARTS", 8)):
        monkeypatch.setattr(scans, name, value)


def scan(shape: tuple[int, ...], dim: int, op: str, dtype: str, inclusive: bool = True, begin: str = "0.0") -> str:
    rest = [size for axis, size in enumerate(shape) if axis != dim]
    return SCAN.format(
        shape="x".join(map(str, shape)), rest="x".join(map(str, rest)), dim=dim, op=op, dtype=dtype,
        inclusive=str(inclusive).lower(), begin=begin,
    )


@pytest.mark.parametrize("shape, dim", [
    ((3, 1000), 1), ((5, 1), 1), ((1, 13), 1), ((70, 5), 0), ((2, 33, 37), 1), ((2, 900), 1), ((3, 5003), 1),
    ((300, 40), 0),
])
def test_sums_up_to_each_element(shape: tuple[int, ...], dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    x = random(*shape)
    (y,) = interpret(generate(scan(shape, dim, "arith.addf", "f32")), [x])
    np.testing.assert_allclose(y, np.cumsum(x.astype("f8"), dim), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape, dim", [((3, 1000), 1), ((40, 7), 0), ((1, 3001), 1)])
def test_sums_before_each_element(shape: tuple[int, ...], dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    x = random(*shape, dtype="int32")
    text = scan(shape, dim, "arith.addi", "i32", inclusive=False, begin="5")
    (y,) = interpret(generate(text), [x])
    before = np.cumsum(x, dim, dtype="i4") - x + np.int32(5)
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize("op, function", [
    ("arith.maximumf", np.maximum), ("arith.minimumf", np.minimum), ("arith.mulf", np.multiply),
])
def test_other_scans(op: str, function: np.ufunc) -> None:
    x = random(3, 50)
    x[1, 7] = np.nan
    (y,) = interpret(generate(scan((3, 50), 1, op, "f32")), [x])
    np.testing.assert_allclose(y, function.accumulate(x, 1), rtol=1e-5)


def test_sums_of_short_floats_are_kept_in_f32() -> None:
    x = np.abs(random(2, 3000)).astype(DTYPES["bf16"])
    (y,) = interpret(generate(scan((2, 3000), 1, "arith.addf", "bf16")), [x])
    np.testing.assert_allclose(y.astype("f4"), np.cumsum(x.astype("f8"), 1), rtol=1e-2)


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


@pytest.mark.parametrize("shape, dim", [((3, 100), 1), ((1, 1), 1), ((50, 6), 0), ((2, 17, 3), 1), ((1, 2000), 1)])
@pytest.mark.parametrize("op", ["arith.cmpf ole", "arith.cmpf oge"])
def test_sorts_and_keeps_the_order_of_equals(shape: tuple[int, ...], dim: int, op: str) -> None:
    x = np.round(random(*shape), 1)
    line = np.arange(shape[dim]).reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
    positions = np.broadcast_to(line, shape)
    y, p = interpret(generate(sort(shape, dim, op, "f32")), [x, np.ascontiguousarray(positions)])
    order = np.argsort(x if op.endswith("le") else -x, dim, kind="stable")
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, dim))


@pytest.mark.parametrize("dtype", ["i32", "i8", "bf16"])
def test_sorts_by_other_dtypes(dtype: str) -> None:
    x = (random(2, 77) * 20).astype(DTYPES[dtype])
    op = "arith.cmpf ole" if dtype == "bf16" else "arith.cmpi sle"
    p = np.tile(np.arange(77), (2, 1))
    y, _ = interpret(generate(sort((2, 77), 1, op, dtype)), [x, p])
    np.testing.assert_array_equal(y.astype("f4"), np.sort(x.astype("f4"), 1))


def test_puts_nan_last() -> None:
    x = random(1, 40)
    x[0, [3, 20]] = np.nan
    x[0, [5, 6]] = [np.inf, -np.inf]
    y, _ = interpret(generate(sort((1, 40), 1, "arith.cmpf ole", "f32")), [x, np.arange(40)[None]])
    np.testing.assert_array_equal(y, np.sort(x, 1))


@pytest.mark.parametrize("length, first", [(100, 7), (100, 1), (1000, 50)])
def test_gives_the_first_elements_alone(length: int, first: int) -> None:
    x = random(2, length)
    made = generate(sort((2, length), 1, "arith.cmpf oge", "f32", first))
    y, p = interpret(made, [x, np.tile(np.arange(length), (2, 1))])
    order = np.argsort(-x, 1, kind="stable")[:, :first]
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, 1))


def test_sorts_lines_longer_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_TILE", 64), ("_WHOLE", 64), ("_STEP", 32)):
        monkeypatch.setattr(sorts, name, value)
    x = random(2, 900)
    p = np.tile(np.arange(900), (2, 1))
    y, q = interpret(generate(sort((2, 900), 1, "arith.cmpf ole", "f32")), [x, p])
    order = np.argsort(x, 1, kind="stable")
    np.testing.assert_array_equal(q, order)
    np.testing.assert_array_equal(y, np.sort(x, 1))


def test_finds_the_first_of_lines_longer_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorts, "_TILE", 64)
    monkeypatch.setattr(sorts, "_WHOLE", 64)
    monkeypatch.setattr(sorts, "_FEW", 16)
    x = random(2, 500)
    p = np.tile(np.arange(500), (2, 1))
    made = generate(sort((2, 500), 1, "arith.cmpf oge", "f32", 10))
    y, q = interpret(made, [x, p])
    order = np.argsort(-x, 1, kind="stable")[:, :10]
    np.testing.assert_array_equal(q, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, 1))


def test_makes_the_positions_that_a_sort_carries_along() -> None:
    text = """
    func.func @main(%x: tensor<3x50xf32>) -> (tensor<3x4xf32>, tensor<3x4xi64>) {
      %e = tensor.empty() : tensor<3x50xi64>
      %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
          outs(%e : tensor<3x50xi64>) {
      ^bb0(%out: i64):
        %i = linalg.index 1 : index
        %n = arith.index_cast %i : index to i64
        linalg.yield %n : i64
      } -> tensor<3x50xi64>
      %y:2 = tm_tensor.sort dimension(1) outs(%x, %p : tensor<3x50xf32>, tensor<3x50xi64>) {
      ^bb0(%a: f32, %b: f32, %c: i64, %d: i64):
        %s = arith.cmpf oge, %a, %b : f32
        tm_tensor.yield %s : i1
      } -> tensor<3x50xf32>, tensor<3x50xi64>
      %v = tensor.extract_slice %y#0[0, 0] [3, 4] [1, 1] : tensor<3x50xf32> to tensor<3x4xf32>
      %q = tensor.extract_slice %y#1[0, 0] [3, 4] [1, 1] : tensor<3x50xi64> to tensor<3x4xi64>
      return %v, %q : tensor<3x4xf32>, tensor<3x4xi64>
    }
    """
    x = random(3, 50)
    made = generate(text)
    assert made.kinds == ["sort"]
    y, p = interpret(made, [x])
    order = np.argsort(-x, 1, kind="stable")[:, :4]
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, 1))


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


@pytest.mark.parametrize("dtype", ["f32", "i64", "bf16"])
@pytest.mark.parametrize("op", ["", "add", "sub"])
def test_scatters_elements(dtype: str, op: str) -> None:
    kind = "i" if dtype.startswith("i") else "f"
    body = f"%s = arith.{op}{kind} %b, %a : {dtype}\n tm_tensor.yield %s : {dtype}" if op else (
        f"tm_tensor.yield %a : {dtype}"
    )
    text = SCATTER.format(updates="20", indices="20x2", shape="7x11", dims="0, 1", dtype=dtype, body=body)
    rng = np.random.default_rng(3)
    places = rng.choice(77, 20, replace=op != "")
    indices = np.stack([places // 11, places % 11], 1)
    x, u = (np.round(random(*shape) * 8).astype(DTYPES[dtype]) for shape in ((7, 11), (20,)))
    (y,) = interpret(generate(text), [u, indices, x])
    wanted = x.copy()
    for n, (i, j) in enumerate(indices):
        wanted[i, j] = u[n] if not op else wanted[i, j] + u[n] if op == "add" else wanted[i, j] - u[n]
    np.testing.assert_array_equal(y.astype("f8"), wanted.astype("f8"))


def test_scatters_rows_and_leaves_out_what_lies_outside() -> None:
    body = "tm_tensor.yield %a : f32"
    text = SCATTER.format(updates="4x6", indices="4x1", shape="9x6", dims="0", dtype="f32", body=body)
    x, u = random(9, 6), random(4, 6, seed=1)
    indices = np.array([[3], [9], [-1], [0]])
    (y,) = interpret(generate(text), [u, indices, x])
    wanted = x.copy()
    wanted[3], wanted[0] = u[0], u[3]
    np.testing.assert_array_equal(y, wanted)
