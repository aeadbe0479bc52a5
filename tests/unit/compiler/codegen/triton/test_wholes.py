"""Scans, sorts and scatters for GPUs, by Triton's interpreter, against numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton import building
from tests.unit.compiler.codegen.triton.building import Generated, interpret, interpret_checked, random
from tests.unit.compiler.codegen.whole_texts import SCATTER, SCATTER_OF_NUMBERS, load, scan, sort

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.gpu.ext import scans
from motet.compiler.codegen.triton.ext import sorts


def generate(text: str) -> Generated:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "load_mlir", load)
        return building.generate(text)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines take several turns, and are parted, at extents that the interpreter is fast enough for."""
    for name, value in (("_LINE", 128), ("_TILE", 512), ("_PARTED", 16), ("_PARTS", 8)):
        monkeypatch.setattr(scans, name, value)


@pytest.mark.parametrize("shape, dim", [
    ((3, 1000), 1), ((5, 1), 1), ((1, 13), 1), ((70, 5), 0), ((2, 33, 37), 1), ((2, 900), 1), ((3, 5003), 1),
    ((300, 40), 0), ((701, 13), 0), ((2, 503, 37), 1),
])
def test_sums_up_to_each_element(shape: tuple[int, ...], dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    x = random(*shape)
    (y,) = interpret(generate(scan(shape, dim, "arith.addf", "f32")), [x])
    np.testing.assert_allclose(y, np.cumsum(x.astype("f8"), dim), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape, dim", [
    pytest.param((3, 1000), 1, marks=pytest.mark.slow), ((40, 7), 0), ((1, 3001), 1), ((1601, 7), 0),
])
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


@pytest.mark.parametrize("shape, dim", [
    ((3, 100), 1), ((1, 1), 1), ((50, 6), 0), ((2, 17, 3), 1), pytest.param((1, 2000), 1, marks=pytest.mark.slow),
])
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


@pytest.mark.parametrize("op, dtype", [
    ("arith.cmpi sle", "i64"), ("arith.cmpi sge", "i64"), ("arith.cmpi ult", "i32"), ("arith.cmpi uge", "i8"),
    ("arith.cmpf ole", "f64"), ("arith.cmpf oge", "f64"),
])
@pytest.mark.parametrize("shape, dim, first", [
    ((2, 77), 1, None), ((131, 3), 0, 5), ((1, 1), 1, None), ((3, 64), 1, 1),
])
def test_sorts_by_ranks(op: str, dtype: str, shape: tuple[int, ...], dim: int, first: int | None) -> None:
    x = (random(*shape) * 2e5).astype(DTYPES[dtype])
    if dtype == "i64":
        x += np.int64(1) << np.int64(40)
    if dtype == "f64" and x.size > 20:
        x.reshape(-1)[[1, 7, 9, 11]] = [np.nan, np.inf, -np.inf, np.nan]
    positions = np.ascontiguousarray(np.broadcast_to(np.expand_dims(np.arange(shape[dim]), 1 - dim), shape))
    y, p = interpret(generate(sort(shape, dim, op, dtype, first)), [x, positions])
    keys = x.view(f"u{x.itemsize}") if " u" in op else x
    if op.endswith("ge"):
        keys = -keys if dtype == "f64" else ~keys
        keys = np.where(np.isnan(x), -np.inf, np.where(keys == -np.inf, -1e300, keys)) if dtype == "f64" else keys
    order = np.argsort(keys, dim, kind="stable").take(np.arange(first or shape[dim]), dim)
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, dim))


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


@pytest.mark.slow
def test_sorts_lines_longer_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_TILE", 64), ("_WHOLE", 64), ("_STEP", 32), ("_FEW", 32)):
        monkeypatch.setattr(sorts, name, value)
    x = random(2, 400)
    p = np.tile(np.arange(400), (2, 1))
    y, q = interpret(generate(sort((2, 400), 1, "arith.cmpf ole", "f32")), [x, p])
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


@pytest.mark.parametrize("shape, dim, first", [
    pytest.param((3, 901), 1, 50, marks=pytest.mark.slow), ((1, 2011), 1, 1), ((1, 620, 2), 1, 3),
    ((2, 600), 1, 20), pytest.param((2, 600), 1, 100, marks=pytest.mark.slow),
])
@pytest.mark.parametrize("dtype, op", [("f32", "arith.cmpf oge"), ("bf16", "arith.cmpf ole"), ("i8", "arith.cmpi sge")])
def test_finds_the_first_of_long_lines_by_groups(
    shape: tuple[int, ...], dim: int, first: int, dtype: str, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorts, "_TILE", 256)
    monkeypatch.setattr(sorts, "_WHOLE", 512)
    x = (np.round(random(*shape), 2) * (20 if dtype == "i8" else 1)).astype(DTYPES[dtype])
    line = np.arange(shape[dim]).reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
    made = generate(sort(shape, dim, op, dtype, first))
    assert len(made.programs) == 2 and "tl.min(" in next(iter(made.programs.values())).forms[0].source
    y, p = interpret(made, [x, np.ascontiguousarray(np.broadcast_to(line, shape))])
    keys = x.astype("f4") if op.endswith("le") else -x.astype("f4")
    order = np.argsort(keys, dim, kind="stable").take(np.arange(first), dim)
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(y.astype("f4"), np.take_along_axis(x, order, dim).astype("f4"))


@pytest.mark.parametrize("op", ["arith.cmpf oge", pytest.param("arith.cmpf ole", marks=pytest.mark.slow)])
def test_finds_nan_and_infinity_among_the_first_of_long_lines(op: str) -> None:
    x = random(2, 9000)
    x[0, [17, 8000, 8999]] = np.nan
    x[0, [5, 6]] = [np.inf, -np.inf]
    x[1] = np.where(np.arange(9000) < 8990, np.nan, x[1])  # ten numbers
    made = generate(sort((2, 9000), 1, op, "f32", 20))
    y, _ = interpret(made, [x, np.tile(np.arange(9000), (2, 1))])
    ordered = np.sort(x, 1)  # NaN last
    np.testing.assert_array_equal(y, ordered[:, ::-1][:, :20] if op.endswith("oge") else ordered[:, :20])


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


COMBINED = {
    "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "mulf": np.multiply, "addf": np.add,
    "muli": np.multiply, "maxsi": np.maximum, "andi": np.bitwise_and,
}


@pytest.mark.parametrize("op, dtype", [
    ("maximumf", "f32"), ("minimumf", "f32"), ("maximumf", "f64"), ("minimumf", "f64"), ("maximumf", "bf16"),
    ("minimumf", "f16"), ("maxnumf", "f32"), ("mulf", "f64"), ("mulf", "f16"), ("addf", "bf16"), ("muli", "i32"),
    ("maxsi", "i64"), ("andi", "i32"),
])
@pytest.mark.parametrize("values", ["numbers", "not numbers"])
def test_updates_that_meet_are_combined(op: str, dtype: str, values: str) -> None:
    body = f"%s = arith.{op} %b, %a : {dtype}\n tm_tensor.yield %s : {dtype}"
    text = SCATTER.format(updates="90x3", indices="90x1", shape="7x3", dims="0", dtype=dtype, body=body)
    rng = np.random.default_rng(5)
    indices = rng.integers(-1, 7, (90, 1))  # -1 is the last one
    x, u = (rng.choice([-2.0, -1.0, 1.0, 2.0, -0.0, 0.0, 0.5, 3.0], shape) for shape in ((7, 3), (90, 3)))
    if op == "mulf":
        x, u = np.sign(x) + 0.5, np.sign(u) + (u == 0)
    if values != "numbers" and op not in ("muli", "maxsi", "andi"):
        for array, step in ((x, 5), (u, 31)):
            array.reshape(-1)[::step] = rng.choice([np.nan, -np.nan, np.inf, -np.inf], array.size)[::step]
    x, u = x.astype(DTYPES[dtype]), u.astype(DTYPES[dtype])
    (y,) = interpret(generate(text), [u, indices, x])
    wanted = x.astype("i8" if dtype.startswith("i") else "f8")
    with np.errstate(invalid="ignore"):
        for update, (place,) in zip(u, indices, strict=True):
            wanted[place] = COMBINED[op](wanted[place], update.astype(wanted.dtype))
    np.testing.assert_array_equal(y.astype(wanted.dtype), wanted)
    if op in ("maximumf", "minimumf"):  # of zeros, too, the one with the sign that wins
        zeros, expected = y == 0, _extreme_zeros(op, x, u, indices)
        np.testing.assert_array_equal(np.signbit(y[zeros].astype("f8")), np.signbit(expected[zeros]))


def _extreme_zeros(op: str, x: np.ndarray, u: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """What zeros the extremes are, if they are zeros: numpy's maximum takes either."""
    wins = 1.0 if op == "maximumf" else -1.0
    found = np.where((x == 0) & (np.copysign(1.0, x.astype("f8")) == wins), wins * 0.0, -wins * 0.0)
    for update, (place,) in zip(u.astype("f8"), indices, strict=True):
        won = (update == 0) & (np.copysign(1.0, update) == wins)
        found[place] = np.where(won, wins * 0.0, found[place])
    return found


def test_scatters_rows_and_leaves_out_what_lies_outside() -> None:
    body = "tm_tensor.yield %a : f32"
    text = SCATTER.format(updates="4x6", indices="4x1", shape="9x6", dims="0", dtype="f32", body=body)
    x, u = random(9, 6), random(4, 6, seed=1)
    indices = np.array([[3], [9], [-10], [-2]])
    (y,), failure = interpret_checked(generate(text), [u, indices, x])
    wanted = x.copy()
    wanted[3], wanted[7] = u[0], u[3]
    np.testing.assert_array_equal(y, wanted)
    assert re.search(r"index (9|-1) .*outside of an axis of extent 9", str(failure))


@pytest.mark.parametrize("index", [4, -2, 9])
@pytest.mark.parametrize("op", ["", "add", "sub"])
def test_scatters_a_number_to_one_place(index: int, op: str) -> None:
    body = f"%s = arith.{op}f %b, %a : f32\n tm_tensor.yield %s : f32" if op else "tm_tensor.yield %a : f32"
    x = np.round(random(9) * 8)
    (y,), failure = interpret_checked(generate(SCATTER_OF_NUMBERS.format(index=index, body=body)), [x])
    assert (failure is not None) == (index == 9)
    wanted = x.copy()
    if index < 9:
        wanted[index] = {"": 2.5, "add": wanted[index] + 7.5, "sub": wanted[index] - 7.5}[op]
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("window, dims", [((1, 4, 5), "0"), ((2, 3, 5), "0, 1")])
def test_an_index_is_where_a_window_begins(window: tuple[int, ...], dims: str) -> None:
    depth = len(dims.split())
    text = SCATTER.format(
        updates="x".join(map(str, (4, *window))), indices=f"4x{depth}", shape="3x4x5", dims=dims, dtype="f32",
        body="%s = arith.subf %b, %a : f32\n tm_tensor.yield %s : f32",
    )
    x, u = random(3, 4, 5), random(4, *window, seed=1)
    indices = np.array([[0, 1], [2, 0], [-1, 1], [1, 0]])[:, :depth]
    (y,), failure = interpret_checked(generate(text), [u, np.ascontiguousarray(indices), x])
    assert (failure is not None) == (dims == "0, 1")  # a window of 2 that begins at 2 of 3 is left out, and told of
    wanted = x.copy()
    for update, index in zip(u, indices, strict=True):
        begin = [int(i) + (size if i < 0 else 0) for i, size in zip(index, x.shape, strict=False)] + [0] * (3 - depth)
        part = tuple(slice(b, b + size) for b, size in zip(begin, window, strict=True))
        if min(begin) >= 0 and wanted[part].shape == window:
            wanted[part] -= update
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
