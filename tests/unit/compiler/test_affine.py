"""Affine expressions against their value at points."""

from __future__ import annotations

import itertools
import random

import pytest

from motet.compiler.ir.affine import Affine, compose_maps, identity_map

RANK = 4


def some(chance: random.Random, rank: int = RANK) -> Affine:
    return Affine.of({d: chance.randint(-3, 3) for d in chance.sample(range(rank), 3)}, chance.randint(-9, 9))


def value(affine: Affine, point: list[int]) -> int:
    return affine.constant + sum(coefficient * point[dim] for dim, coefficient in affine.terms)


@pytest.mark.parametrize("seed", range(20))
def test_arithmetic_is_that_of_values(seed: int) -> None:
    chance = random.Random(seed)
    a, b, factor = some(chance), some(chance), chance.randint(-3, 3)
    point = [chance.randint(-20, 20) for _ in range(RANK)]
    assert value(a + b, point) == value(a, point) + value(b, point)
    assert value(a - b, point) == value(a, point) - value(b, point)
    assert value(a * factor, point) == value(a, point) * factor
    assert value(a.plus(factor), point) == value(a, point) + factor
    assert [a.coefficient(d) for d in range(RANK)] == [dict(a.terms).get(d, 0) for d in range(RANK)]


@pytest.mark.parametrize("seed", range(20))
def test_equal_expressions_are_equal_however_they_are_made(seed: int) -> None:
    chance = random.Random(seed)
    a, b = some(chance), some(chance)
    assert a + b - b == a
    assert a - a == Affine()
    assert hash(a + b) == hash(b + a)
    assert a * 0 == Affine()


@pytest.mark.parametrize("seed", range(20))
def test_a_composed_map_is_the_outer_one_at_the_values_of_the_inner_one(seed: int) -> None:
    chance = random.Random(seed)
    outer, inner = [some(chance) for _ in range(3)], [some(chance, 3) for _ in range(RANK)]
    point = [chance.randint(-20, 20) for _ in range(3)]
    between = [value(entry, point) for entry in inner]
    assert [value(entry, point) for entry in compose_maps(outer, inner)] == [value(entry, between) for entry in outer]
    assert compose_maps(outer, identity_map(RANK)) == tuple(outer)


@pytest.mark.parametrize("seed", range(20))
def test_renumbered_dimensions_keep_their_coefficients_and_others_are_zero(seed: int) -> None:
    chance = random.Random(seed)
    a = some(chance)
    new = {d: number for number, d in enumerate(chance.sample(range(RANK), 2))}
    point = [chance.randint(-20, 20) for _ in range(2)]
    before = [point[new[d]] if d in new else 0 for d in range(RANK)]
    assert value(a.renumber(new), point) == value(a, before)


def test_dimensions_that_become_one_add_their_coefficients() -> None:
    assert (Affine.dim(0) + Affine.dim(1) * 2).renumber({0: 5, 1: 5}) == Affine.dim(5) * 3


@pytest.mark.parametrize("seed", range(20))
def test_the_range_is_that_of_all_points(seed: int) -> None:
    chance = random.Random(seed)
    a, extents = some(chance), {d: chance.randint(1, 4) for d in range(RANK)}
    values = [value(a, list(point)) for point in itertools.product(*(range(extents[d]) for d in range(RANK)))]
    assert a.range(extents) == (min(values), max(values))


@pytest.mark.parametrize(("affine", "dim"), [
    (Affine.dim(2), 2), (Affine.dim(2) * 2, None), (Affine.dim(2).plus(1), None), (Affine.dim(0) + Affine.dim(2), None),
    (Affine(), None), (Affine.dim(2) * -1, None),
])
def test_only_one_dimension_alone_is_single(affine: Affine, dim: int | None) -> None:
    assert affine.single == dim
