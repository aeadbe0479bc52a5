"""Searches in sorted sequences of any extent, also with NaN and infinities; compared with PyTorch's results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Functions  # noqa: E402

import motet  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16])
def test_places_are_those_of_pytorch(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    inner, rows = (torch.randint(0, 200, shape).to(dtype) for shape in ((100,), (4, 7)))
    x, own = torch.randint(0, 220, (9, 13)).to(dtype), torch.randint(0, 220, (4, 11)).to(dtype)
    if dtype.is_floating_point:
        inner[:4], rows[1, :6] = torch.tensor([float("inf"), float("-inf"), float("nan"), 3.0]).to(dtype), float("nan")
        x[0, :4], own[1, :2] = torch.tensor([float("inf"), float("-inf"), float("nan"), 3.0]).to(dtype), float("nan")
    order = rows.argsort(-1)
    functions = [
        lambda a, b, x, y, o: torch.bucketize(x, a),
        lambda a, b, x, y, o: torch.bucketize(x, a, right=True, out_int32=True),
        lambda a, b, x, y, o: torch.bucketize(x, a[:1]),
        lambda a, b, x, y, o: torch.searchsorted(b.gather(-1, o), y, side="right"),
        lambda a, b, x, y, o: torch.searchsorted(b, y, sorter=o),
        lambda a, b, x, y, o: torch.searchsorted(a, 7),
        lambda a, b, x, y, o: torch.bucketize(7, a),
    ]
    given = [inner.sort()[0], rows, x, own, order]
    module = Functions(functions)
    found = motet.load(motet.compile(module, inputs=given, devices="host{cpu=native}"))(*given)
    for one, expected in zip(found, module(*given), strict=True):
        assert one.dtype == expected.dtype
        assert torch.equal(one, expected)


def test_sequences_of_dynamic_extent() -> None:
    module = Functions([lambda a, x: torch.searchsorted(a, x), lambda a, x: torch.bucketize(x, a, right=True)])
    axis, other = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    given = [torch.rand(9).sort()[0], torch.rand(5)]
    shapes = (({0: axis}, {0: other}),)
    session = motet.load(motet.compile(module, inputs=given, devices="host{cpu=native}", dynamic_shapes=shapes))
    for count, many in ((9, 5), (2, 33), (1025, 40)):
        a, x = torch.rand(count).sort()[0], torch.rand(many) * 1.2 - 0.1
        for one, expected in zip(session(a, x), module(a, x), strict=True):
            assert torch.equal(one, expected)


def test_sequences_of_dynamic_extent_on_gpus() -> None:
    pytest.importorskip("triton", reason="needs Triton: make frameworks")
    axis, other = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    given = [torch.rand(3, 9).sort()[0], torch.rand(3, 5)]
    module = Functions([lambda a, x: torch.searchsorted(a, x)])
    shapes = (({1: axis}, {1: other}),)
    artifact = motet.compile(module, inputs=given, devices="cuda{arch=sm_90a}", dynamic_shapes=shapes)
    assert [kernel.kind for kernel in artifact.manifest.variants[0].kernels] == ["loops"]
