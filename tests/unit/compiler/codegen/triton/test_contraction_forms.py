"""All forms of contractions, by Triton's interpreter: descriptors, vectors, copied factors; rings are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import Generated, check, generate, interpret, random
from tests.unit.compiler.codegen.triton.texts import convolution, product

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.gpu.gemm.tiles import GemmShape, Tile, choose_tiles
from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.codegen.triton.text.program import TritonProgram
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget

SM_90A = resolve_target("cuda:sm_90a")
TF32 = resolve_target("cuda:sm_90a/tf32")
KINDS = ("descriptors", "")


def last(made: Generated) -> TritonProgram:
    """The program of the last launch, which multiplies."""
    return made.programs[made.schedule.commands[-1].kernel]


def numbers_of(program: TritonProgram, kind: str) -> list[int]:
    """The forms of one kind: those whose label begins with it, for `` those by pointers."""
    def is_kind(label: str) -> bool:
        return label.startswith(kind) if kind else label[:1].isdigit()

    return [number for number, form in enumerate(program.forms) if is_kind(form.label)]


def multiply(x: np.ndarray, y: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.maximum(x.astype("f8") @ y.astype("f8") + bias.astype("f8"), 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n", "k"), [(256, 128, 64), (130, 72, 200), (129, 264, 1), (257, 136, 72)])
def test_every_kind_of_form_agrees_with_numpy(kind: str, m: int, n: int, k: int) -> None:
    if k == 1:
        pytest.skip("too small for matrix units") if kind else None
    made = generate(product(m, n, k, "f16", "f32"))
    x, y, bias = random(m, k).astype("f2"), random(k, n, seed=1).astype("f2"), random(n)
    for number in numbers_of(last(made), kind)[:3]:
        (got,) = interpret(made, [x, y, bias], number)
        np.testing.assert_allclose(got, multiply(x, y, bias), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("left", "right"), [("k, i", "k, j"), ("i, k", "j, k"), ("k, i", "j, k")])
def test_described_factors_may_lie_either_way(left: str, right: str) -> None:
    made = generate(product(136, 128, 80, "bf16", "f32", left, right))
    a = random(*((80, 136) if left == "k, i" else (136, 80))).astype(DTYPES["bf16"])
    b = random(*((80, 128) if right == "k, j" else (128, 80)), seed=1).astype(DTYPES["bf16"])
    x, y = (a.T if left == "k, i" else a), (b if right == "k, j" else b.T)
    numbers = numbers_of(last(made), "descriptors")
    assert numbers
    (got,) = interpret(made, [a, b, random(128)], numbers[0])
    np.testing.assert_allclose(got, multiply(x, y, random(128)), rtol=5e-3, atol=5e-3)


def test_programs_that_stay_are_as_many_as_processors() -> None:
    assert isinstance(SM_90A, GpuTarget)
    program = last(generate(product(4096, 4096, 256, "bf16", "f32")))
    tasks = [form.tasks for form in program.forms if form.label.startswith("ring")]
    assert tasks and all(count == SM_90A.processors for count in tasks)


def test_dynamic_rows_are_described_too() -> None:
    made = generate(product("?", 128, 64, "f16", "f32"))
    numbers = numbers_of(last(made), "descriptors")
    assert numbers
    for rows in (1, 130):
        x, y, bias = random(rows, 64).astype("f2"), random(64, 128, seed=1).astype("f2"), random(128)
        (got,) = interpret(made, [x, y, bias], numbers[0])
        np.testing.assert_allclose(got, multiply(x, y, bias), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("dtype", "result", "shape"), [
    ("bf16", "f32", (4096, 768, 1536)), pytest.param("f16", "f32", (1024, 515, 520), marks=pytest.mark.slow),
    pytest.param("f8E4M3FN", "f32", (512, 512, 512), marks=pytest.mark.slow),
    pytest.param("i8", "i32", (512, 512, 512), marks=pytest.mark.slow),
])
def test_rings_compile_and_do_not_spill(dtype: str, result: str, shape: tuple[int, int, int]) -> None:
    assert isinstance(SM_90A, GpuTarget)
    program = last(generate(product(*shape, dtype, result, right="j, k")))
    rings = tuple(form for form in program.forms if form.label.startswith("ring"))
    assert rings
    for made in compile_programs([replace(program, forms=rings)], SM_90A, 1, len(rings))[0]:
        assert not made.error and not made.spills
        assert made.warps > rings[made.form].warps  # those that fetch are more
        assert 0 < made.shared <= SM_90A.shared


# -- few vectors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k", "right"), [
    (1, 2050, 70, "k, j"), (1, 2050, 70, "j, k"),
    pytest.param(7, 2048, 129, "j, k", marks=pytest.mark.slow),
    pytest.param(3, 2047, 1100, "k, j", marks=pytest.mark.slow),
])
@pytest.mark.parametrize("form", [0, 1, 2, 3])
def test_few_vectors_agree_with_numpy(m: int, n: int, k: int, right: str, form: int) -> None:
    made = generate(product(m, n, k, "f32", "f32", right=right))
    assert all(each.label.startswith("vectors") for each in last(made).forms)
    x, y, bias = random(m, k), random(*((k, n) if right == "k, j" else (n, k)), seed=1), random(n)
    (got,) = interpret(made, [x, y, bias], form)
    np.testing.assert_allclose(got, multiply(x, y if right == "k, j" else y.T, bias), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_vectors_keep_nan_and_infinity() -> None:
    made = generate(product(1, 2048, 96, "f32", "f32", right="j, k"))
    x, y, bias = random(1, 96), random(2048, 96, seed=1), np.zeros(2048, "f4")
    y[5, 3], y[7, 4], x[0, 4] = np.nan, np.inf, 1.0
    (got,) = interpret(made, [x, y, bias])
    assert np.isnan(got[0, 5]) and np.isposinf(got[0, 7]) and np.isfinite(np.delete(got[0], [5, 7])).all()


# -- factors that are copied -----------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "result", "shape", "right", "launches"), [
    ("f16", "f32", (257, 259, 37), "k, j", 2),  # lines begin anywhere; one launch copies both
    ("f16", "f32", (257, 264, 40), "k, j", 1),
    ("i8", "i32", (256, 256, 48), "k, j", 2),
    ("i8", "i32", (256, 256, 48), "j, k", 1),
    ("i8", "i32", (20, 24, 48), "k, j", 1),  # too few uses of each element
])
def test_factors_are_copied_where_it_pays(
    dtype: str, result: str, shape: tuple[int, int, int], right: str, launches: int
) -> None:
    m, n, k = shape
    made = generate(product(m, n, k, dtype, result, right=right))
    assert len(made.schedule.commands) == launches
    kind = DTYPES[dtype].name
    x, y = random(m, k, dtype=kind), random(*((k, n) if right == "k, j" else (n, k)), seed=1, dtype=kind)
    bias = random(n, dtype=DTYPES[result].name)
    numbers = [number for number in range(4) if not last(made).forms[number].label.startswith("ring")]
    (got,) = interpret(made, [x, y, bias], numbers[0])
    np.testing.assert_allclose(got, multiply(x, y if right == "k, j" else y.T, bias), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("left", "right", "launches"), [("i, k", "j, k", 2), ("k, i", "j, k", 2), ("i, k", "k, j", 1)])
def test_f32_in_full_precision_has_columns_side_by_side(left: str, right: str, launches: int) -> None:
    made = generate(product(257, 259, 37, "f32", "f32", left, right))
    assert len(made.schedule.commands) == launches
    a, b = random(*((257, 37) if left == "i, k" else (37, 257))), random(*((37, 259) if right == "k, j" else (259, 37)))
    x, y, bias = a if left == "i, k" else a.T, b if right == "k, j" else b.T, random(259)
    np.testing.assert_allclose(interpret(made, [a, b, bias])[0], multiply(x, y, bias), rtol=1e-4, atol=1e-4)


def test_32_bit_factors_are_transposed_for_tensor_cores() -> None:
    assert isinstance(TF32, GpuTarget)
    made = generate(product(256, 260, 52, "f32", "f32", left="k, i"), TF32)
    assert len(made.schedule.commands) == 2  # the other one goes through registers
    x, y, bias = random(52, 256), random(52, 260, seed=1), random(260)
    (got,) = interpret(made, [x, y, bias], numbers_of(last(made), "")[0])
    np.testing.assert_allclose(got, multiply(x.T, y, bias), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("image", "filters", "window", "stride", "padding"), [
    ((2, 16, 9, 9), 32, 3, 1, 1), ((1, 24, 13, 11), 40, 5, 2, 2), ((2, 16, 7, 7), 16, 2, 1, 0),
])
def test_convolutions_with_channels_brought_last_agree(
    image: Sequence[int], filters: int, window: int, stride: int, padding: int
) -> None:
    assert isinstance(TF32, GpuTarget)
    n, c, h, w = image
    text = convolution((n, c, h, w), filters, window, stride, padding)
    made = check(text, [random(n, c, h, w), random(filters, c, window, window), random(filters)], 1e-3, 0, TF32)
    assert len(made.schedule.commands) == 2  # one copies the image and the filters


# -- which tiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "ptx80"])
@pytest.mark.parametrize("factor", ["bf16", "tf32", "tf32x3", "f32", "f64", "i8", "f8E4M3FN"])
def test_tiles_fit_shared_memory_and_are_worth_their_size(name: str, factor: str) -> None:
    target = resolve_target(f"cuda:{name}")
    assert isinstance(target, GpuTarget)
    for m, n, k in ((1, 64, 64), (17, 4096, 300), (4096, 4096, 4096), (65536, 8, 512)):
        tiles = choose_tiles(GemmShape(m, n, k, 1, factor, True), target, 8)
        assert tiles and len(set(tiles)) == len(tiles)
        for tile in tiles:
            item = {"bf16": 2, "f64": 8, "i8": 1, "f8E4M3FN": 1}.get(factor, 4)
            assert tile.stages * (tile.m + tile.n) * tile.k * item <= target.shared
            assert tile.kind == "pointers" or name == "sm_90a"


def test_large_products_have_large_tiles_and_small_ones_fill_the_processors() -> None:
    target = SM_90A
    assert isinstance(target, GpuTarget)

    def best(m: int, n: int, k: int, target: GpuTarget = target) -> Tile:
        return choose_tiles(GemmShape(m, n, k, 1, "bf16", True), target, 4)[0]

    assert best(8192, 8192, 8192).m * best(8192, 8192, 8192).n == 128 * 256
    small = best(512, 512, 512)
    assert (512 // small.m) * (512 // small.n) >= target.processors // 2


@pytest.mark.parametrize(("rows", "depth", "columns", "moved"), [
    (20, 24, 37, True),  # lines of 74 bytes
    (20, 24, 40, False), (20, 23, 37, False), (1, 96, 1600, True),  # a vector meets it
])
def test_constant_factors_lie_along_the_sum_where_that_is_faster(
    rows: int, depth: int, columns: int, moved: bool
) -> None:
    weights = np.round(random(depth, columns) * 8) / 8
    kind, wide = f"{depth}x{columns}xf16", f"{rows}x{columns}xf16"
    text = f"""
func.func @main(%a: tensor<{rows}x{depth}xf16>) -> tensor<{wide}> {{
  %w = arith.constant dense<{weights.tolist()}> : tensor<{kind}>
  %z = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<{wide}>
  %f = linalg.fill ins(%z : f16) outs(%e : tensor<{wide}>) -> tensor<{wide}>
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
      affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %w : tensor<{rows}x{depth}xf16>, tensor<{kind}>) outs(%f : tensor<{wide}>) {{
  ^bb0(%p: f16, %q: f16, %y: f16):
    %u = arith.mulf %p, %q : f16
    %v = arith.addf %y, %u : f16
    linalg.yield %v : f16
  }} -> tensor<{wide}>
  return %r : tensor<{wide}>
}}"""
    made = generate(text)
    x = (np.round(random(rows, depth)) / 4).astype("f2")
    np.testing.assert_allclose(interpret(made, [x])[0], (x.astype("f4") @ weights), rtol=2e-2, atol=2e-2)
    assert ("dimensions lie as [1, 0]" in last(made).forms[0].source) == moved
