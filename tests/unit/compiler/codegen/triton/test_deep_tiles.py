"""How much of a short product is asked for at once."""

from __future__ import annotations

import pytest
from tests.unit.compiler.codegen.triton.building import SM_90A, check, generate, random
from tests.unit.compiler.codegen.triton.texts import product

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.gpu.gemm.tiles import GemmShape, choose_tiles
from motet.compiler.targets.families import resolve_target


@pytest.mark.parametrize(("m", "n", "k"), [(128, 768, 768), (128, 3072, 768), (64, 1024, 1024), (197, 768, 512)])
def test_most_of_a_short_product_is_on_its_way(m: int, n: int, k: int) -> None:
    first = choose_tiles(GemmShape(m, n, k, 1, "bf16", False), SM_90A, 8)[0]
    assert first.stages * first.k >= min(k, 6 * 128)
    assert first.m >= 64  # what groups of warps multiply
    assert first.stages * (first.m + first.n) * first.k * 2 <= SM_90A.shared


def test_of_long_products_no_more_than_before() -> None:
    tiles = choose_tiles(GemmShape(64, 256, 4096, 1, "bf16", False), SM_90A, 8)
    assert all(tile.stages * tile.k <= 6 * 256 for tile in tiles)


def test_other_architectures_have_none() -> None:
    target = resolve_target("cuda:sm_80")
    tiles = choose_tiles(GemmShape(128, 768, 768, 1, "bf16", False), target, 8)
    assert all(tile.k <= 64 for tile in tiles if tile.m >= 32 and tile.n >= 32)


@pytest.mark.parametrize(("m", "n", "k"), [(67, 48, 600), (64, 17, 530)])
def test_the_sum_ends_where_it_ends(m: int, n: int, k: int) -> None:
    dtype = DTYPES["bf16"]
    inputs = [random(m, k).astype(dtype), random(k, n, seed=1).astype(dtype), random(n, seed=2)]
    made = check(product(m, n, k, "bf16", "f32"), inputs, 2e-3)
    assert any("x128 " in form.label for program in made.programs.values() for form in program.forms)


WHOLE, PARTED = ((64, 1024, 1024), (16, 2048, 2048)), ((64, 64, 1024), (64, 1024, 4096))


@pytest.mark.parametrize(("m", "n", "k", "launches"), [*((*s, 1) for s in WHOLE), *((*s, 2) for s in PARTED)])
def test_sums_are_parted_where_there_are_too_few_slim_tiles(m: int, n: int, k: int, launches: int) -> None:
    made = generate(product(m, n, k, "bf16", "f32"))
    assert len(made.schedule.commands) == launches
