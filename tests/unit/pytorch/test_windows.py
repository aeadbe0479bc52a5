"""Operators over windows of any extents: fold, unfold, pads, adaptive pools; compared with PyTorch's results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Functions  # noqa: E402

import motet  # noqa: E402

_FOLDS = (
    # image, kernel, dilation, padding, stride
    ((13, 17), (3, 2), (2, 3), (1, 2), (1, 1)),
    ((13, 17), (3, 4), (1, 1), (1, 0), (2, 3)),
    ((11, 10), (5, 6), (1, 1), (2, 3), (1, 1)),
    ((9, 12), (2, 3), (1, 2), (0, 1), (3, 1)),
    ((15, 14), (3, 3), (2, 2), (1, 1), (2, 2)),
    ((6, 8), (3, 4), (1, 1), (0, 0), (3, 4)),
    ((10, 9), (2, 2), (1, 1), (0, 0), (5, 4)),
)


def _blocks(size: tuple[int, ...], *options: tuple[int, ...]) -> int:
    count = 1
    for extent, taps, spread, before, step in zip(size, *options, strict=True):
        count *= (extent + 2 * before - spread * (taps - 1) - 1) // step + 1
    return count


def _check(functions: list, given: list) -> None:
    module = Functions(functions)
    found = motet.load(motet.compile(module, inputs=given, devices="host{cpu=native}"))(*given)
    for one, expected in zip(found, module(*given), strict=True):
        assert one.dtype == expected.dtype
        torch.testing.assert_close(one, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fold_is_the_sum_of_shifted_parts(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    functions, given = [], []
    for number, (size, *options) in enumerate(_FOLDS):
        functions.append(lambda *all, n=number, s=size, o=options: torch.nn.functional.fold(all[n], s, *o))
        taps = options[0][0] * options[0][1]
        shape = [2, 3 * taps, _blocks(size, *options)][number % 2 :]
        given.append(torch.randn([3 * taps, shape[-1]] if number % 2 else shape, dtype=dtype))
    _check(functions, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unfold_copies_windows(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    options = [each for _, *each in _FOLDS]
    functions = [lambda x, o=each: torch.nn.functional.unfold(x, *o) for each in options]
    functions += [lambda x, o=each: torch.nn.functional.unfold(x[0], *o) for each in options[:2]]
    _check(functions, [torch.randn(2, 3, 13, 17, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16])
def test_pads_by_other_elements(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    amounts = [(2, 1, 3, 2, 1, 2), (0, 3, 0, 0, 2, 0), (4, 0, 1, 5), (0, 2, 3, 0), (4, 2), (0, 3)]
    pads = [(each, mode) for each in amounts for mode in ("reflect", "replicate", "circular")]
    if dtype == torch.bfloat16:
        pads = [(each, mode) for each, mode in pads if mode != "circular"][:6]

    def padded(x, each, mode):
        return torch.nn.functional.pad(x if len(each) == 6 else x[0] if len(each) == 4 else x[0, 0], each, mode)

    functions = [lambda x, e=each, m=mode: padded(x, e, m) for each, mode in pads]
    _check(functions, [(torch.randn(2, 3, 4, 7, 6) * 9).to(dtype)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_adaptive_pools_of_windows_of_several_sizes(dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    own = torch.nn.functional
    x = torch.randn(2, 3, 7, 13, 9, dtype=dtype)
    x[0, 0, 0, 0, 0], x[1, 2, 3, 4, 5] = float("inf"), float("nan")
    functions = [
        lambda x: own.adaptive_avg_pool3d(x, (3, 5, 9)),
        lambda x: own.adaptive_avg_pool3d(x, (1, 20, 2)),
        lambda x: own.adaptive_avg_pool2d(x[0], (5, 2)),
        lambda x: own.adaptive_avg_pool2d(x[0], (13, 40)),
        lambda x: own.adaptive_avg_pool2d(x[0], (13, 3)),
        lambda x: own.adaptive_avg_pool1d(x[0, 0], 4),
        lambda x: own.adaptive_avg_pool2d(x[0], (6, 6)),
        lambda x: own.adaptive_max_pool2d(x[0], (12, 6)),
        lambda x: own.adaptive_max_pool3d(x, (3, 5, 4), return_indices=True),
        lambda x: own.adaptive_max_pool3d(x, (7, 1, 12)),
        lambda x: own.adaptive_max_pool2d(x[0], (5, 2), return_indices=True),
        lambda x: own.adaptive_max_pool1d(x[0, 0], 4),
    ]
    _check(functions, [x])


def test_adaptive_pools_of_any_extents() -> None:
    own, auto = torch.nn.functional, torch.export.Dim.AUTO
    module = Functions([
        lambda x: own.adaptive_avg_pool2d(x, (2, 3)),
        lambda x: own.adaptive_avg_pool2d(x, (7, 1)),
        lambda x: own.adaptive_avg_pool1d(x[0], 5),
        lambda x: own.interpolate(x, size=(4, 6), mode="area"),
        lambda x: own.adaptive_max_pool2d(x, (3, 2)),
    ])
    session = motet.load(motet.compile(
        module, inputs=[torch.ones(1, 2, 11, 13)], dynamic_shapes=(({2: auto, 3: auto},),), cache=False,
    ))
    for rows, columns in itertools.product([*range(2, 16), 33], (2, 5, 6, 12, 17)):
        x = torch.arange(2.0 * rows * columns).reshape(1, 2, rows, columns).sin()
        x[0, 1, rows // 2, 1] = float("inf")
        for got, wanted in zip(session(x), module(x), strict=True):
            np.testing.assert_allclose(np.asarray(got), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_pools_of_images_without_a_batch() -> None:
    own = torch.nn.functional
    torch.manual_seed(6)
    _check([
        lambda x: own.max_pool3d(x, 2, stride=1, padding=1),
        lambda x: own.avg_pool3d(x, (1, 3, 2), ceil_mode=True),
        lambda x: own.max_pool2d(x[0], 3, return_indices=True),
        lambda x: own.avg_pool2d(x[0], 2, padding=1, count_include_pad=False),
        lambda x: own.max_pool1d(x[0, 0], 3, stride=2),
        lambda x: own.avg_pool1d(x[0, 0], 2),
        lambda x: own.adaptive_avg_pool1d(x[0, 0], 3),
        lambda x: own.adaptive_avg_pool1d(x[0], 3),
        lambda x: own.adaptive_avg_pool2d(x[0], (4, 3)),
        lambda x: own.adaptive_avg_pool3d(x, (2, 4, 3)),
        lambda x: own.lp_pool2d(x[0].abs(), 2, 2),
    ], [torch.randn(2, 7, 8, 9)])
