"""Operators that are written with others, in forms that no table of forms has: NaN, ties, integers, masks of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Functions  # noqa: E402

import motet  # noqa: E402

pytestmark = pytest.mark.usefixtures("all_levels")

NAN = float("nan")


def check(functions: list[Callable[..., Any]], *inputs: Any) -> None:
    module = Functions(functions)
    found = motet.load(motet.compile(module, inputs=list(inputs), cache=False))(*inputs)
    for mine, wanted in zip(found if isinstance(found, (tuple, list)) else [found], module(*inputs), strict=True):
        assert mine.dtype == wanted.dtype
        np.testing.assert_allclose(mine.numpy(), wanted.numpy(), rtol=2e-6)


def test_medians_and_extremes_so_far() -> None:
    x = torch.tensor([[3.0, 1.0, 2.0, 5.0], [NAN, 1.0, 7.0, NAN], [4.0, 4.5, NAN, 0.0]])
    check([
        torch.median, torch.nanmedian, lambda x: torch.median(x[:, :3], 1), lambda x: torch.nanmedian(x, 1, True),
        lambda x: torch.median(x, 0), lambda x: torch.cummax(x, 1), lambda x: torch.cummin(x, 0),
        lambda x: torch.median((10 * x[0]).int()), lambda x: torch.cummax(torch.round(x[0] / 2).to(torch.int64), 0),
    ], x)  # fmt: skip


@pytest.mark.parametrize("scan", [torch.cumsum, torch.cumprod])
def test_scans_are_one_kernel(scan: Any) -> None:
    x = torch.tensor([[3.0, 1.0, 2.0, 5.0], [NAN, 1.0, 7.0, NAN], [4.0, float("inf"), -1.0, 0.5]])
    whole = torch.round(x.nan_to_num(2, 3, 4)).int()
    check([
        lambda x: scan(x, 1), lambda x: scan(x, 0, dtype=torch.float64), lambda x: scan(x, -1, dtype=torch.float16),
        lambda x: scan(x[0, 0], 0), lambda x: scan(x[:, :0], 1),
    ], x)  # fmt: skip
    check([lambda x: scan(x, 1), lambda x: scan(x > 2, 0), lambda x: scan(x[0].to(torch.uint8), 0)], whole)
    artifact = motet.compile(Functions([lambda x: scan(x, 1)]), inputs=[x], cache=False)
    assert [kernel.kind for kernel in artifact.manifest.variants[0].kernels] == ["scan"]


@pytest.mark.parametrize(("shape", "padding"), [
    ((4, 5, 17), (2, 3)), ((2, 17), (16, 16)), ((2, 3, 7, 9), (2, 3, 1, 4)), ((2, 3, 17), (-1, 3)),
    ((2, 3, 5, 6, 7), (1, 2, 3, 1, 2, 2)),
])
def test_reflecting_pads(shape: tuple[int, ...], padding: tuple[int, ...]) -> None:
    check([lambda x: torch.nn.functional.pad(x, padding, mode="reflect")], torch.randn(shape))


def test_means_of_what_is_scattered() -> None:
    torch.manual_seed(0)
    x, y, index = torch.randn(5, 3), torch.randn(7, 3), torch.randint(0, 4, (7, 3))
    whole = torch.randint(-9, 9, (5, 3)), torch.randint(-9, 9, (7, 3))
    check([
        lambda x, y, i, a, b: x.scatter_reduce(0, i, y, "mean"),
        lambda x, y, i, a, b: x.scatter_reduce(0, i, y, "mean", include_self=False),
        lambda x, y, i, a, b: a.scatter_reduce(0, i, b, "mean", include_self=False),
    ], x, y, index, *whole)  # fmt: skip


def put(x: Any, at: Any, value: Any) -> Any:
    y = x.clone()
    y[at] = value
    return y


def test_writes_by_masks() -> None:
    torch.manual_seed(1)
    x, row = torch.randn(3, 4, 5), torch.randn(5)
    check([
        lambda x, row: put(x, x > 0, 1.5), lambda x, row: put(x, x[:, :, 0] > 0, row),
        lambda x, row: put(x, x[:, 0, 0] > 0, row.max()), lambda x, row: torch.masked_scatter(x, x > 0, -x),
        lambda x, row: torch.masked_scatter(x, row > 0, x.flip(0)),
    ], x, row)  # fmt: skip


def test_unsigned_integers_are_calculated_with() -> None:
    image = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    check([
        lambda x, y: x / 255, lambda x, y: x + y, lambda x, y: x * 3 - y, lambda x, y: x // 7, lambda x, y: x > y,
        lambda x, y: torch.maximum(x, y), lambda x, y: x.float() - x.float().mean(), lambda x, y: x.amax(1),
        lambda x, y: x.sum(0), lambda x, y: -x, lambda x, y: x.clamp(10, 200), lambda x, y: x >> 3,
    ], image, image.flip(0, 1))  # fmt: skip


def test_padding_with_the_other_side() -> None:
    x = torch.randn(2, 3, 7, 5)
    pad = torch.nn.functional.pad
    check([
        lambda x: pad(x, (2, 1, 0, 3), mode="circular"), lambda x: pad(x, (5, 5, 7, 7), mode="circular"),
        lambda x: pad(x, (-1, 2, 1, -3), mode="circular"), lambda x: torch.cdist(x, x.flip(2)),
    ], x)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64, torch.uint8])
def test_integers_and_numbers(dtype: Any) -> None:
    x = torch.tensor([1, 2, 3, 5, 60, 127, 77, 100]).to(dtype)
    check([
        lambda x: x * 3, lambda x: x * 1, lambda x: x - 2, lambda x: 7 - x, lambda x: torch.sub(x, x, alpha=3),
        lambda x: x.max(), lambda x: x.min(), lambda x: torch.addcmul(x, x, x), lambda x: torch.fmod(x, 7),
        lambda x: x | 9, lambda x: x ^ 5, lambda x: x << torch.ones_like(x), lambda x: x >> torch.ones_like(x),
        lambda x: x * 1.5, lambda x: torch.arange(4, dtype=dtype) + x[:4],
    ], x)  # fmt: skip


def test_remainders_of_floats_by_a_number() -> None:
    x = torch.tensor([-7.5, 7.5, 0.0, 100.25, -3.0])
    check([lambda x: torch.fmod(x, 3.0), lambda x: torch.fmod(x, 2), lambda x: torch.fmod(x.half(), -3)], x)


@pytest.mark.parametrize("places", [[2], [0, 0], [1, 1, 1]], ids=["one", "the same twice", "the same three times"])
def test_writes_to_places_that_are_all_one(places: list[int]) -> None:
    x, y = torch.arange(6.0), torch.tensor([10.0, 20.0, 30.0])[: len(places)]
    index = torch.tensor(places)
    adding: list[Callable[..., Any]] = [
        lambda x, y: x.index_add(0, index, y), lambda x, y: x.index_put((index,), y, accumulate=True),
        lambda x, y: x.index_fill(0, index, 2.0), lambda x, y: put(x, torch.tensor(2), 4.0),
        lambda x, y: put(x.view(2, 3), torch.tensor(1), y[:1]),
    ]
    check(adding if len(places) > 1 else [*adding, lambda x, y: x.index_copy(0, index, y)], x, y)


@pytest.mark.parametrize("rows", [0, 1, 5, 17])
def test_rolls_and_largest_of_rows_whose_number_a_call_decides(rows: int) -> None:
    module = Functions([
        lambda x: x.roll(1, 0), lambda x: x.roll((-7, 2), (0, 1)), lambda x: torch.topk(x.softmax(-1), 2)[1],
        lambda x: torch.nn.functional.one_hot(torch.topk(x * 2, 3)[1], 9),
    ])
    batch = torch.export.Dim("batch", max=99)
    some = torch.randn(3, 9, generator=torch.Generator().manual_seed(1))
    session = motet.load(motet.compile(module, inputs=[some], dynamic_shapes=(({0: batch},),)))
    x = torch.randn(rows, 9, generator=torch.Generator().manual_seed(2))
    for mine, wanted in zip(session(x), module(x), strict=True):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("extent", [0, 1, 2, 5])
def test_rolls_by_the_extent_and_more(extent: int) -> None:
    x = torch.arange(3.0 * extent).reshape(3, extent)
    module = Functions([lambda x, k=k: x.roll(k, 1) for k in range(-7, 8)] + [lambda x: x.roll((4, -6, 1), (0, 1, 1))])
    for mine, wanted in zip(motet.load(motet.compile(module, inputs=[x], cache=False))(x), module(x), strict=True):
        assert torch.equal(mine, wanted)


def test_distances_of_pairs_and_written_diagonals() -> None:
    torch.manual_seed(6)
    x, planes = torch.randn(7, 5, dtype=torch.float64), torch.randn(4, 3, 6, dtype=torch.float64)
    module = Functions([
        lambda x, p: torch.nn.functional.pdist(x),
        lambda x, p: torch.nn.functional.pdist(x[:2], 1.0),
        lambda x, p: torch.addmv(x[:, 0], x, x[0], beta=0.5, alpha=3),
        lambda x, p: torch.diagonal_scatter(x, x[0], -2),
        lambda x, p: torch.diagonal_scatter(x, x[:4, 0], 1),
        lambda x, p: torch.diagonal_scatter(p, x[:3, :4], 0, 0, 2),
        lambda x, p: torch.diagonal_scatter(p, x[:3, :3], 1, -1, 0),
    ])
    found = motet.load(motet.compile(module, inputs=[x, planes], devices="host{cpu=native}"))(x, planes)
    for one, expected in zip(found, module(x, planes), strict=True):
        torch.testing.assert_close(one, expected)


def test_places_of_i32() -> None:
    x, i = torch.randn(5, 7), torch.tensor([4, -1, 0], dtype=torch.int32)
    check([lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x[i, i.long()], lambda x, i: x[i[:, None], i]], x, i)


@pytest.mark.parametrize("shape, dim, count", [
    ((1, 8, 32, 16), 2, 5), ((3, 4, 7, 5), 1, 2), ((2, 9, 6), 1, 3), ((2, 9, 6), 2, 4), ((1, 1, 9, 1, 4), 2, 3),
    ((4, 1, 5), 1, 1), ((2, 3, 8, 1), 2, 4),
])
def test_rows_are_written_along_any_dimension(shape: tuple[int, ...], dim: int, count: int) -> None:
    x, places = torch.randn(shape), torch.randperm(shape[dim])[:count]
    rows = torch.randn([count if axis == dim else extent for axis, extent in enumerate(shape)])
    check([
        lambda x, i, v: x.index_copy(dim, i, v), lambda x, i, v: x.index_add(dim, i, v),
        lambda x, i, v: torch.ops.aten.index_put(x, [None] * dim + [i], v, True),
    ], x, places, rows)


@pytest.mark.parametrize("accumulate", [False, True])
def test_elements_are_written_at_dimensions_apart(accumulate: bool) -> None:
    x, i, j = torch.randn(4, 6, 5, 3), torch.tensor([1, 3, -4]), torch.tensor([[0], [4]])
    put = torch.ops.aten.index_put
    check([lambda x, i, j, v: put(x, [i, None, j], v, accumulate)], x, i, j, torch.randn(2, 3, 6, 3))
    check([lambda x, i, v: put(x, [None, i, None, i % 3], v, accumulate)], x, i, torch.randn(3, 4, 5))
    check([lambda x, i, v: put(x, [i, None, None, i % 3], v, accumulate)], x, i, torch.tensor(2.5))
    check([lambda x, i, v: put(x, [i, None, torch.tensor(2)], v, accumulate)], x, i, torch.randn(3, 6, 3))
