"""Convolutions of bf16 images by the CPU's instructions for bf16, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.harness import build
from tests.unit.compiler.codegen.cpu.test_convolution import conv_kernel, reference
from tests.unit.compiler.codegen.cpu.windows import NCHW, NHWC, SAME, Geometry, random

from motet.compiler.codegen.cpu.products import products
from motet.compiler.targets.cpu import X86_64_V4_AMX, X86_64_V4_BF16, CpuTarget
from motet.cpu_features import allow, host_features

TARGETS = [
    pytest.param(target, id=target.name, marks=pytest.mark.skipif(
        not (set(target.requires) <= host_features() and allow(target.requires)),
        reason=f"this processor is no {target.name}",
    ))
    for target in (X86_64_V4_AMX, X86_64_V4_BF16)
]
each_target = pytest.mark.parametrize("target", TARGETS)


def agrees(
    image: tuple[int, ...], count: int, geometry: Geometry, target: CpuTarget, split: int = 1,
    source: tuple[int, ...] = NCHW, result: tuple[int, ...] = NCHW,
) -> None:
    kernel = conv_kernel(image, count, geometry, dtype="bf16", clamp=True, source=source, result=result)
    rng = np.random.default_rng(sum(image))
    x, w = random(rng, image, "bf16"), random(rng, (count, image[1], *geometry.kernel), "bf16")
    bias = random(rng, (count,), "f32")
    (got,) = build(products.BFLOAT_CLASS.generate, kernel, target)(x, w, bias, split=split)
    expected = np.clip(reference(x, w, geometry) + bias.astype(np.float64)[:, None, None], 0, 6)
    bound = (reference(abs(x), abs(w), geometry) + 8) * (w[0].size + 2) * 2.0**-24
    assert (abs(got.astype(np.float64) - expected) <= bound).all()


@each_target
@pytest.mark.parametrize("source", [NCHW, NHWC])
@pytest.mark.parametrize("result", [NCHW, NHWC])
@pytest.mark.parametrize(("channels", "count", "size"), [(16, 16, 13), (32, 33, 7), (40, 8, 1), (64, 24, 18)])
def test_images_and_results_of_every_order(
    target: CpuTarget, source: tuple[int, ...], result: tuple[int, ...], channels: int, count: int, size: int
) -> None:
    agrees((2, channels, size, size), count, SAME, target, source=source, result=result)


@each_target
@given(st.data())
@settings(max_examples=examples(15), deadline=None)
def test_any_geometry_for_any_partition(target: CpuTarget, data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    taps = data.draw(st.sampled_from([(3, 1), (1, 3), (2, 2), (3, 3), (5, 2)]))
    stride, dilation, low, high = pair(1, 3), pair(1, 2), pair(0, 3), pair(0, 3)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(reach, low, high, pair(3, 19), strict=True)]
    image = (data.draw(st.integers(1, 2)), data.draw(st.sampled_from([16, 17, 31, 32, 33, 48])), *size)
    orders = {name: data.draw(st.sampled_from([NCHW, NHWC])) for name in ("source", "result")}
    agrees(image, data.draw(st.integers(8, 40)), Geometry(taps, stride, dilation, low, high, 0.0), target,
           data.draw(st.integers(1, 4)), **orders)


@pytest.mark.parametrize(("channels", "count"), [(3, 32), (64, 4)])
def test_few_channels_or_filters_are_left_to_other_classes(channels: int, count: int) -> None:
    kernel = conv_kernel((1, channels, 9, 9), count, SAME, dtype="bf16")
    assert products.BFLOAT_CLASS.match(kernel, X86_64_V4_AMX) is None
