"""Scans, sorts and scatters on processors, against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import DTYPES, Executable, native_target
from tests.unit.compiler.codegen.whole_texts import SCATTER, SCATTER_OF_NUMBERS, load, scan, sort

from motet.compiler import pipeline
from motet.compiler.build.partitioning import partition
from motet.compiler.codegen.cpu.ext import sorts
from motet.compiler.codegen.cpu.ext.whole_operations import emit_whole
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import X86_64_V3, CpuTarget
from motet.errors import CompileError

TARGETS = list(dict.fromkeys((native_target(), X86_64_V3)))


def build(text: str, target: CpuTarget | None = None) -> Executable:
    """The one kernel of a program."""
    program = load(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        (function,) = partition(program).functions.values()
        kernel, code = emit_whole(function, target or native_target())
    return Executable(kernel, code, target)


def values(*shape: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    """Random numbers, some of them more than once."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 40).round(rng.integers(0, 3)).astype(DTYPES[dtype])


def positions(shape: tuple[int, ...], dim: int) -> np.ndarray:
    line = np.arange(shape[dim]).reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
    return np.ascontiguousarray(np.broadcast_to(line, shape))


def order(x: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The positions in order, by numpy's stable sort; of the largest first, by sorting from behind."""
    wide = x.astype("f8") if x.dtype.kind not in "iub" else x.astype("u8") if x.dtype.kind == "u" else x.astype("i8")
    if not descending:
        return np.argsort(wide, dim, kind="stable")
    behind = np.argsort(np.flip(wide, dim), dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(behind, dim)


def comparison(dtype: str, descending: bool) -> str:
    if dtype.startswith("i"):
        return f"arith.cmpi {'sge' if descending else 'sle'}"
    return f"arith.cmpf {'oge' if descending else 'ole'}"


def check_sort(x: np.ndarray, dim: int, dtype: str, descending: bool, first: int | None, target: CpuTarget) -> None:
    made = build(sort(x.shape, dim, comparison(dtype, descending), dtype, first), target)
    found = order(x, dim, descending)
    if first is not None:
        found = np.take(found, range(first), dim)
    for split in (1, 3):
        y, p = made(x, positions(x.shape, dim), split=split)
        np.testing.assert_array_equal(p, found)
        np.testing.assert_array_equal(y, np.take_along_axis(x, found, dim))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("shape, dim", [
    ((3, 100), 1), ((1, 1), 1), ((50, 6), 0), ((2, 17, 3), 1), ((1, 2000), 1), ((1, 2), 1), ((5, 129), 1),
    ((700, 3), 0), ((40, 31), 1), ((1, 128), 1),
])
def test_sorts_and_keeps_the_order_of_equals(shape: tuple[int, ...], dim: int, target: CpuTarget) -> None:
    for descending in (False, True):
        check_sort(values(*shape), dim, "f32", descending, None, target)


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "f16", "bf16", "f64"])
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_by_every_dtype(dtype: str, descending: bool) -> None:
    for count in (31, 77, 1003):
        check_sort(values(2, count, dtype=dtype), 1, dtype, descending, None, native_target())
        check_sort(values(2, count, dtype=dtype), 1, dtype, descending, 3, native_target())


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_sorts_the_least_and_the_largest_integers(dtype: str) -> None:
    limits = np.iinfo(DTYPES[dtype])
    x = np.random.default_rng(1).choice([limits.min, limits.max, 0, -1, 1, limits.min + 1], (3, 300))
    x = x.astype(limits.dtype)
    for descending, first in itertools.product((False, True), (None, 5)):
        check_sort(x, 1, dtype, descending, first, native_target())


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_sorts_integers_without_a_sign(dtype: str) -> None:
    x = np.random.default_rng(2).integers(0, 256, (2, 200)).astype(np.uint8)
    x = np.repeat(x, np.dtype(DTYPES[dtype]).itemsize, 1).view(DTYPES[dtype])[:, :200]
    text = sort(x.shape, 1, "arith.cmpi ule", dtype)
    y, p = build(text)(x, positions(x.shape, 1))
    found = np.argsort(x.view(f"u{x.itemsize}"), 1, kind="stable")
    np.testing.assert_array_equal(p, found)
    np.testing.assert_array_equal(y, np.take_along_axis(x, found, 1))


@pytest.mark.parametrize("predicate, wanted", [("ule", [False, True]), ("uge", [True, False]), ("sle", [True, False])])
def test_sorts_truth_values(predicate: str, wanted: list[bool]) -> None:
    x = np.random.default_rng(3).integers(0, 2, (2, 60)).astype(bool)
    y, p = build(sort(x.shape, 1, f"arith.cmpi {predicate}", "i1"))(x, positions(x.shape, 1))
    for row, found, at in zip(x, y, p, strict=True):
        falses = int((~row).sum())
        counts = [falses if not value else 60 - falses for value in wanted]
        np.testing.assert_array_equal(found, np.repeat(wanted, counts))
        assert sorted(at[: counts[0]]) == list(at[: counts[0]]) and sorted(at[counts[0] :]) == list(at[counts[0] :])


@pytest.mark.every
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("count", [40, 1000])
@pytest.mark.parametrize("first", [None, 6])
def test_nan_is_larger_than_all_and_zeros_are_equal(dtype: str, count: int, first: int | None) -> None:
    rng = np.random.default_rng(4)
    x = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0], (2, count)).astype(DTYPES[dtype])
    ranks = x.astype("f8")
    ranks[np.isnan(ranks)] = 2000.0
    ranks[np.isinf(ranks)] = np.sign(ranks[np.isinf(ranks)]) * 1000.0
    for descending in (False, True):
        y, p = build(sort((2, count), 1, comparison(dtype, descending), dtype, first))(x, positions(x.shape, 1))
        found = order(ranks, 1, descending)[:, :first]
        np.testing.assert_array_equal(p, found)
        bits = f"u{x.itemsize}"
        np.testing.assert_array_equal(y.view(bits), np.take_along_axis(x.view(bits), found, 1))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("shape, dim, first", [
    ((2, 3000), 1, 7), ((2, 100), 1, 1), ((3, 1000), 1, 50), ((1000, 5), 0, 4), ((2, 999, 3), 1, 2),
    ((1, 5003), 1, 400), ((2, 513), 1, 513), ((2, 300), 1, 299),
])
def test_gives_the_first_elements_alone(
    shape: tuple[int, ...], dim: int, first: int, target: CpuTarget
) -> None:
    for descending in (False, True):
        check_sort(values(*shape), dim, "f32", descending, first, target)


@pytest.mark.parametrize("kind", ["rising", "falling", "equal"])
def test_finds_the_first_elements_of_lines_that_are_sorted_already(kind: str) -> None:
    line = {"rising": np.arange(4000), "falling": -np.arange(4000), "equal": np.zeros(4000)}[kind]
    x = np.stack([line, line]).astype("f4")
    for descending in (False, True):
        check_sort(x, 1, "f32", descending, 70, native_target())


def test_long_lines_lie_in_memory_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorts, "_SCRATCH", 1024)
    x = values(5, 3000)
    made = build(sort(x.shape, 1, "arith.cmpf ole", "f32"))
    assert not made.code.scratch and made.code.workspaces
    check_sort(x, 1, "f32", False, None, native_target())


@pytest.mark.parametrize("first", [None, 5])
def test_sorts_lines_of_any_length(first: int | None) -> None:
    text = sort((2, 3), 1, "arith.cmpf oge", "f32", None).replace("2x3x", "?x?x")
    if first is not None:
        text = text.replace(") -> (tensor<?x?xf32>, tensor<?x?xi64>)", ") -> (tensor<?x5xf32>, tensor<?x5xi64>)")
        text = text.replace("  return %y#0, %y#1 : tensor<?x?xf32>, tensor<?x?xi64>", """
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %v = tensor.extract_slice %y#0[0, 0] [%n, 5] [1, 1] : tensor<?x?xf32> to tensor<?x5xf32>
  %q = tensor.extract_slice %y#1[0, 0] [%n, 5] [1, 1] : tensor<?x?xi64> to tensor<?x5xi64>
  return %v, %q : tensor<?x5xf32>, tensor<?x5xi64>""")
    made = build(text)
    for rows, count in ((1, 5), (3, 100), (2, 1500), (70, 257)):
        x = values(rows, count)
        extents = {"0": rows, "1": count}
        symbols = {name: extents[name[-1]] for name in made.kernel.symbols}
        y, p = made(x, positions(x.shape, 1), symbols=symbols, split=2)
        found = order(x, 1, True)[:, :first]
        np.testing.assert_array_equal(p, found)
        np.testing.assert_array_equal(y, np.take_along_axis(x, found, 1))


# -- scans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("shape, dim", [
    ((3, 1000), 1), ((5, 1), 1), ((1, 13), 1), ((70, 5), 0), ((2, 33, 37), 1), ((300, 143), 0), ((2, 0), 1),
    ((1, 0, 5), 1), ((3, 5, 8209), 1),
])
def test_sums_up_to_each_element(shape: tuple[int, ...], dim: int, target: CpuTarget) -> None:
    x = values(*shape)
    (y,) = build(scan(shape, dim, "arith.addf", "f32"), target)(x, split=3)
    np.testing.assert_allclose(y, np.cumsum(x.astype("f8"), dim), rtol=1e-4, atol=2e-2)


@pytest.mark.parametrize("shape, dim", [((3, 1000), 1), ((40, 7), 0), ((1, 3001), 1), ((30, 45), 0)])
def test_sums_before_each_element(shape: tuple[int, ...], dim: int) -> None:
    x = values(*shape, dtype="i32")
    (y,) = build(scan(shape, dim, "arith.addi", "i32", inclusive=False, begin="5"))(x)
    np.testing.assert_array_equal(y, np.cumsum(x, dim, dtype="i4") - x + np.int32(5))


@pytest.mark.parametrize("op, function", [
    ("arith.maximumf", np.maximum), ("arith.minimumf", np.minimum), ("arith.mulf", np.multiply),
])
@pytest.mark.parametrize("dim", [0, 1])
def test_other_scans(op: str, function: np.ufunc, dim: int) -> None:
    x = values(50, 50) / 40
    x[1, 7] = np.nan
    (y,) = build(scan((50, 50), dim, op, "f32"))(x)
    np.testing.assert_allclose(y, function.accumulate(x, dim), rtol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [("bf16", 1e-2), ("f16", 1e-3)])
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_of_short_floats_are_kept_in_f32(dtype: str, tolerance: float, dim: int) -> None:
    x = (np.abs(values(2, 3000)) / 300).astype(DTYPES[dtype])
    x = np.ascontiguousarray(x.T) if dim == 0 else x
    (y,) = build(scan(x.shape, dim, "arith.addf", dtype))(x)
    np.testing.assert_allclose(y.astype("f4"), np.cumsum(x.astype("f8"), dim), rtol=tolerance)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("dtype, inclusive", [("f32", True), ("f64", False), ("i8", True), ("i64", False)])
def test_contiguous_lines_of_odd_lengths(dtype: str, inclusive: bool, target: CpuTarget) -> None:
    name, wide, begin = ("addf", "f8", "0.0") if dtype[0] == "f" else ("addi", DTYPES[dtype], "0")
    for length in (7, 8, 17, 63, 65, 131):
        x = values(5, length, dtype=dtype, seed=length)
        (y,) = build(scan(x.shape, 1, f"arith.{name}", dtype, inclusive, begin), target)(x, split=2)
        total = np.cumsum(x, 1, dtype=wide)
        exact = total if inclusive else total - x.astype(wide)
        np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-4 if dtype == "f32" else 1e-11)


def test_a_scan_keeps_what_is_before_a_nan() -> None:
    x = np.ones((3, 45), np.float32)
    x[0, 20], x[1, 33], x[2, 3], x[2, 40] = np.nan, np.inf, np.inf, -np.inf
    (y,) = build(scan(x.shape, 1, "arith.addf", "f32"))(x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(y, np.cumsum(x, 1))


# -- scatters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "i64", "bf16", "i8", "f16", "i1"])
@pytest.mark.parametrize("op", ["", "add", "sub"])
def test_scatters_elements_in_their_order(dtype: str, op: str) -> None:
    if op and dtype == "i1":
        pytest.skip("truth values are not added")
    kind = "i" if dtype.startswith("i") else "f"
    body = f"%s = arith.{op}{kind} %b, %a : {dtype}\n tm_tensor.yield %s : {dtype}" if op else (
        f"tm_tensor.yield %a : {dtype}"
    )
    text = SCATTER.format(updates="60", indices="60x2", shape="7x11", dims="0, 1", dtype=dtype, body=body)
    indices = np.random.default_rng(3).integers(0, (7, 11), (60, 2))
    x, u = (np.round(values(*shape, seed=1) / 20).astype(DTYPES[dtype]) for shape in ((7, 11), (60,)))
    (y,) = build(text)(u, indices, x)
    wanted: Any = x.copy()
    for n, (i, j) in enumerate(indices):
        wanted[i, j] = u[n] if not op else wanted[i, j] + u[n] if op == "add" else wanted[i, j] - u[n]
    np.testing.assert_array_equal(y.astype("f8"), wanted.astype("f8"))


def test_scatters_rows_and_leaves_out_what_lies_outside() -> None:
    body = "tm_tensor.yield %a : f32"
    text = SCATTER.format(updates="4x6", indices="4x1", shape="9x6", dims="0", dtype="f32", body=body)
    x, u = values(9, 6), values(4, 6, seed=1)
    indices = np.array([[3], [9], [-10], [-2]])
    wanted = x.copy()
    wanted[3], wanted[7] = u[0], u[3]
    (y,) = build(text)(u, indices, x)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("window, dims", [((1, 4, 5), "0"), ((2, 4, 5), "0"), ((1, 1, 5), "0, 1"), ((2, 3, 5), "0, 1")])
def test_an_index_is_where_a_window_begins(window: tuple[int, ...], dims: str) -> None:
    """Windows that do not lie inside as a whole are left out."""
    depth = len(dims.split())
    body = "%s = arith.addf %b, %a : f32\n tm_tensor.yield %s : f32"
    text = SCATTER.format(
        updates="x".join(map(str, (6, *window))), indices=f"6x{depth}", shape="3x4x5", dims=dims, dtype="f32", body=body
    )
    x, u = values(3, 4, 5), values(6, *window, seed=1)
    indices = np.random.default_rng(5).integers(-4, (4, 5)[:depth], (6, depth))
    (y,) = build(text)(u, indices, x)
    wanted = x.copy()
    for update, index in zip(u, indices, strict=True):
        begin = [int(i) + (size if i < 0 else 0) for i, size in zip(index, x.shape, strict=False)] + [0] * (3 - depth)
        part = tuple(slice(b, b + size) for b, size in zip(begin, window, strict=True))
        if min(begin) >= 0 and wanted[part].shape == window:
            wanted[part] += update
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_scatters_a_number() -> None:
    text = """
func.func @main(%i: tensor<3x1xi64>, %x: tensor<9xf32>) -> tensor<9xf32> {
  %u = arith.constant dense<2.5> : tensor<3xf32>
  %y = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%u, %i : tensor<3xf32>, tensor<3x1xi64>) outs(%x : tensor<9xf32>) {
  ^bb0(%a: f32, %b: f32):
    tm_tensor.yield %a : f32
  } -> tensor<9xf32>
  return %y : tensor<9xf32>
}"""
    x = values(9)
    (y,) = build(text)(np.array([[1], [8], [1]]), x)
    wanted = x.copy()
    wanted[[1, 8]] = 2.5
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("index", [4, -2, 9, -10])
def test_scatters_to_one_place(index: int) -> None:
    text = SCATTER_OF_NUMBERS.format(index=index, body="%s = arith.addf %b, %a : f32\n tm_tensor.yield %s : f32")
    x = values(9)
    (y,) = build(text)(x)
    wanted = x.copy()
    if -9 <= index < 9:
        wanted[index] = ((wanted[index] + np.float32(2.5)) + np.float32(2.5)) + np.float32(2.5)
    np.testing.assert_array_equal(y, wanted)


def test_scatters_into_a_large_tensor_by_several_tasks() -> None:
    body = "tm_tensor.yield %a : i8"
    text = SCATTER.format(updates="3", indices="3x1", shape="1000003", dims="0", dtype="i8", body=body)
    x, u = values(1000003, dtype="i8"), np.array([1, 2, 3], np.int8)
    made = build(text)
    (y,) = made(u, np.array([[5], [1000002], [0]]), x, split=3)
    wanted = x.copy()
    wanted[[5, 1000002, 0]] = u
    np.testing.assert_array_equal(y, wanted)


def test_says_what_it_has_no_code_for() -> None:
    text = sort((2, 5), 1, "arith.cmpf oeq", "f32")
    with pytest.raises(CompileError, match="no code can be made for host devices: a sort by more than one comparison"):
        build(text)
