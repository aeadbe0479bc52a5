"""Regions of images: one kernel, with torchvision's results in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
try:
    import torchvision as vision
except (ImportError, RuntimeError) as error:  # RuntimeError: built for another PyTorch
    pytest.skip(f"needs torchvision: {error}", allow_module_level=True)

from tests.unit.pytorch.functions import Function  # noqa: E402

import motet  # noqa: E402


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
