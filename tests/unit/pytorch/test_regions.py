"""Regions of images: one kernel, with torchvision's results in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
vision = pytest.importorskip("torchvision", reason="needs torchvision: make frameworks", exc_type=ImportError)
if not vision.extension._has_ops():
    pytest.skip("needs torchvision's library, which is built for another PyTorch", allow_module_level=True)

from tests.unit.pytorch.functions import Function, Functions  # noqa: E402

import motet  # noqa: E402

pytestmark = pytest.mark.usefixtures("all_levels")


@pytest.mark.parametrize(("samples", "aligned"), [(1, True), (2, False), (3, True)])
def test_any_number_of_regions(samples: int, aligned: bool) -> None:
    """Some are partly or wholly outside, some have no area, some end before they begin."""
    torch.manual_seed(samples)
    module = Function(lambda x, r: vision.ops.roi_align(x, r, (7, 5), 0.5, samples, aligned))
    given = [torch.randn(2, 3, 17, 19), torch.rand(9, 5)]
    artifact = motet.compile(
        module, inputs=given, devices="host{cpu=native}", dynamic_shapes=(({}, {0: torch.export.Dim("regions")}),),
    )
    assert len(next(iter(artifact.manifest.variants[0].schedules.values())).commands) == 1
    session = motet.load(artifact)
    for count in (9, 4, 23):
        x, regions = torch.randn(2, 3, 17, 19), torch.rand(count, 5) * 40 - 6
        regions[:, 0] = torch.randint(0, 2, (count,))
        regions[2:, 3:] += regions[2:, 1:3]
        regions[1, 1:] = torch.tensor([-80.0, -80.0, 90.0, 99.0])
        expected = module(x.double(), regions.double())
        torch.testing.assert_close(session(x, regions).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_of_any_size(dtype: torch.dtype) -> None:
    """Loops over the elements or samples of a cell: the same arithmetic in the same type has the same cells."""
    torch.manual_seed(7)
    calls = [
        lambda x, y, r: vision.ops.roi_align(x, r, (5, 3), 0.5, -1, False),
        lambda x, y, r: vision.ops.roi_align(x, r, (3, 4), 0.5, 7, True),
        lambda x, y, r: torch.ops.torchvision.ps_roi_align(y, r, 0.5, 3, 2, 0),
        lambda x, y, r: torch.ops.torchvision.ps_roi_align(y, r, 0.25, 3, 2, 2),
        lambda x, y, r: torch.ops.torchvision.roi_pool(x, r, 0.5, 5, 3),
        lambda x, y, r: torch.ops.torchvision.ps_roi_pool(y, r, 0.5, 3, 2),
    ]
    regions = torch.rand(13, 5, dtype=dtype) * 40 - 6
    regions[:, 0] = torch.randint(0, 2, (13,))
    regions[4:, 3:] += regions[4:, 1:3]
    regions[3, 1:] = 5
    regions[2, 1:] = torch.tensor([-80.0, -80.0, 90.0, 99.0])
    given = [torch.randn(2, 3, 17, 19, dtype=dtype), torch.randn(2, 12, 17, 19, dtype=dtype), regions]
    module = Functions(calls)
    found = motet.load(motet.compile(module, inputs=given, devices="host{cpu=native}"))(*given)
    for one, expected in zip(found, module(*given), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_deformed_convolutions(dtype: torch.dtype) -> None:
    """Groups of channels and of offsets, also with places far outside; with torchvision's results in float64."""
    torch.manual_seed(8)
    x, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((2, 6, 11, 9), (4, 3, 3, 2), (4,)))
    moves, mask = torch.randn(2, 36, 6, 8, dtype=dtype) * 4, torch.rand(2, 18, 6, 8, dtype=dtype)
    small, plain = torch.randn(5, 6, 1, 1, dtype=dtype), torch.randn(2, 2, 11, 9, dtype=dtype)
    module = Functions([
        lambda x, w, b, o, m, s, p: vision.ops.deform_conv2d(x, o, w, b, (2, 1), (2, 1), (2, 3), m),
        lambda x, w, b, o, m, s, p: vision.ops.deform_conv2d(x, p, s),
    ])
    given = [x, weight, bias, moves, mask, small, plain]
    found = motet.load(motet.compile(module, inputs=given, devices="host{cpu=native}"))(*given)
    for one, expected in zip(found, module(*(each.double() for each in given)), strict=True):
        most = 1e-4 if dtype == torch.float32 else 1e-9
        torch.testing.assert_close(one.double(), expected, rtol=most, atol=most)
