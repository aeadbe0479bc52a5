"""Resizing and grid samples of PyTorch: few kernels, with PyTorch's results in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Function  # noqa: E402

import motet  # noqa: E402

pytestmark = pytest.mark.usefixtures("all_levels")

F = torch.nn.functional
DEVICE = "host{cpu=native}"
Dim = torch.export.Dim
SHAPES = {1: [(13, 29), (8, 1), (1, 5)], 2: [((7, 9), (16, 31)), ((8, 17), (3, 33)), ((1, 5), (4, 1))],
          3: [((3, 5, 7), (4, 11, 6)), ((2, 1, 9), (2, 3, 4))]}  # fmt: skip
MODES = {1: ("linear", "nearest", "nearest-exact"), 2: ("bilinear", "bicubic", "nearest", "nearest-exact"),
         3: ("trilinear", "nearest", "nearest-exact")}  # fmt: skip
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def _forms(rank: int) -> list[tuple[Any, Any]]:
    """Functions of one image, and the image's extents."""
    found: list[tuple[Any, Any]] = []
    for mode, (size, count) in itertools.product(MODES[rank], SHAPES[rank]):
        sizes = (size,) if isinstance(size, int) else size
        kinds = [{}] if "nearest" in mode else [{}, {"align_corners": True}]
        if mode in ("bilinear", "bicubic"):
            kinds += [{"antialias": True}, {"antialias": True, "align_corners": True}]
        for kind in kinds:
            if not (kind.get("align_corners") and kind.get("antialias") and 1 in count):
                found.append((lambda x, m=mode, c=count, k=kind: F.interpolate(x, c, mode=m, **k), sizes))
        found.append((lambda x, m=mode: F.interpolate(x, scale_factor=1.7, mode=m), sizes))
        found.append((lambda x, m=mode: F.interpolate(x, scale_factor=3, mode=m), sizes))
    return found


def _compare(found: Any, expected: Any, dtype: Any) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


_KINDS = [
    (1, torch.float32), (2, torch.float32), (3, torch.float32), (2, torch.float64), (2, torch.float16),
    (1, torch.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize(("rank", "dtype"), _KINDS)
def test_some_modes(rank: int, dtype: Any) -> None:
    _check(_forms(rank)[_KINDS.index((rank, dtype)) :: 7], dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "dtype"), _KINDS)
def test_every_mode(rank: int, dtype: Any) -> None:
    _check(_forms(rank), dtype)


def _check(forms: list[tuple[Any, Any]], dtype: Any) -> None:
    torch.manual_seed(0)
    images = [torch.randn(2, 3, *sizes, dtype=torch.float64).to(dtype) for _, sizes in forms]
    together = Function(lambda *xs: tuple(f(x) for (f, _), x in zip(forms, xs, strict=True)))
    session = motet.load(motet.compile(together, inputs=images, devices=DEVICE, cache=False))
    for (function, _), image, found in zip(forms, images, session(*images), strict=True):
        nearest = "nearest" in str(function.__defaults__)  # which float64 may decide otherwise
        _compare(found, function(image if nearest else image.double()), dtype)


def _launches(artifact: Any) -> int:
    return len(next(iter(artifact.manifest.variants[0].schedules.values())).commands)


@pytest.mark.parametrize("mode", MODES[2])
def test_one_kernel_for_an_axis(mode: str) -> None:
    x = torch.randn(1, 4, 9, 11)
    module = Function(lambda x: F.interpolate(x, (14, 23), mode=mode))
    assert _launches(motet.compile(module, inputs=[x], devices=DEVICE)) == (1 if "nearest" in mode else 2)
    if mode == "bicubic":
        pytest.importorskip("triton", reason="needs Triton")
        assert _launches(motet.compile(module, inputs=[x], devices="cuda=cuda{arch=sm_90a}")) == 1


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_extents_that_differ_from_call_to_call(mode: str) -> None:
    module = Function(lambda x: F.interpolate(x, scale_factor=2, mode=mode))
    shapes = (({0: Dim("n"), 2: Dim("h", max=99), 3: Dim("w", max=99)},),)
    session = motet.load(motet.compile(module, inputs=[torch.randn(2, 3, 8, 9)], dynamic_shapes=shapes, devices=DEVICE))
    for extents in ((1, 3, 5, 7), (3, 3, 17, 2)):
        x = torch.randn(extents)
        _compare(session(x), module(x.double()), torch.float32)
    with pytest.raises(motet.MotetError, match="3"):
        session(torch.randn(1, 4, 5, 7))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_element_of_extents_that_differ_by_a_scale_that_is_rounded(mode: str) -> None:
    module = Function(lambda x: F.interpolate(x, scale_factor=1.7, mode=mode))
    session = motet.load(motet.compile(module, inputs=[torch.randn(1, 2, 8)], dynamic_shapes=(({2: Dim("n")},),),
                                       devices=DEVICE))  # fmt: skip
    for extent in (6, 11, 97):
        x = torch.randn(1, 2, extent)
        assert torch.equal(session(x), module(x))


def test_a_batch_that_differs_from_call_to_call() -> None:
    module = Function(lambda x: F.interpolate(x, (5, 12), mode="bilinear"))
    artifact = motet.compile(
        module, inputs=[torch.randn(2, 3, 8, 9)], dynamic_shapes=(({0: Dim("n"), 1: Dim("c")},),), devices=DEVICE
    )
    assert _launches(artifact) == 2
    for extents in ((1, 1, 8, 9), (5, 7, 8, 9)):
        x = torch.randn(extents)
        _compare(motet.load(artifact)(x), module(x.double()), torch.float32)


@pytest.mark.parametrize(("padding", "dtype"), [
    ("zeros", torch.float32), ("border", torch.float64), ("reflection", torch.float32),
])  # fmt: skip
def test_grid_samples(padding: str, dtype: Any) -> None:
    torch.manual_seed(1)
    forms = [
        (mode, aligned, size)
        for mode, aligned, size in itertools.product(
            ("bilinear", "nearest", "bicubic"), (False, True), ((6, 11), (1, 7), (3, 4, 5))
        ) if not (mode == "bicubic" and len(size) == 3)
    ]
    inputs = [torch.randn(2, 3, *size, dtype=dtype) for _, _, size in forms]
    grids = [(torch.rand(2, *size[::-1], len(size), dtype=dtype) - 0.5) * 3.1 for _, _, size in forms]
    grids[0][0, 0, 0, 0], grids[0][0, 0, 1, 1] = float("inf"), -1e30
    functions = [
        lambda x, g, m=mode, a=aligned: F.grid_sample(x, g, mode=m, padding_mode=padding, align_corners=a)
        for mode, aligned, _ in forms
    ]
    together = Function(
        lambda *xs: tuple(f(x, g) for f, x, g in zip(functions, xs[: len(forms)], xs[len(forms) :], strict=True))
    )
    session = motet.load(motet.compile(together, inputs=[*inputs, *grids], devices=DEVICE, cache=False))
    for function, x, grid, found in zip(functions, inputs, grids, session(*inputs, *grids), strict=True):
        expected = function(x.double(), grid.double())
        keep = torch.isfinite(expected)
        _compare(torch.where(keep, found, 0.0), torch.where(keep, expected, 0.0), dtype)


def test_grid_samples_of_extents_that_differ() -> None:
    module = Function(lambda x, g: F.grid_sample(x, g, align_corners=False))
    n, h, w, p = Dim("n"), Dim("h", max=99), Dim("w", max=99), Dim("p", max=99)
    artifact = motet.compile(
        module, inputs=[torch.randn(2, 3, 8, 9), torch.randn(2, 5, 6, 2)], devices=DEVICE,
        dynamic_shapes=(({0: n, 2: h, 3: w}, {0: n, 1: p}),),
    )
    assert _launches(artifact) == 1
    session = motet.load(artifact)
    for batch, height, width, points in ((1, 5, 7, 9), (3, 2, 33, 1)):
        x, grid = torch.randn(batch, 3, height, width), torch.randn(batch, points, 6, 2)
        _compare(session(x, grid), module(x.double(), grid.double()), torch.float32)
    with pytest.raises(motet.MotetError):
        session(torch.randn(2, 3, 5, 7), torch.randn(3, 5, 6, 2))


@pytest.mark.slow
def test_the_backend_of_torch_compile_keeps_them() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Upsample(scale_factor=1.5, mode="bilinear")).eval()
    fast = torch.compile(model, backend="motet", options={"devices": DEVICE})
    x = torch.randn(2, 3, 9, 11)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    image = torch.randn(2, 3, 9, 11, requires_grad=True)
    fast(image).sum().backward()
    found, image.grad = image.grad, None
    model(image).sum().backward()
    torch.testing.assert_close(found, image.grad)
