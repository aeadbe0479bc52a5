"""Convolutions read in place against numpy in double precision: filters near, fetched ahead, kept for all pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, op, stage, value
from tests.unit.compiler.codegen.cpu.test_convolution import SAME, conv_kernel, reference
from tests.unit.compiler.codegen.cpu.windows import NCHW, NHWC, Geometry, multiply_add, random, with_stages

from motet.compiler.codegen.cpu.conv import direct
from motet.compiler.codegen.cpu.select import generate
from motet.compiler.targets.cpu import X86_64_V3, CpuTarget

SMALL = 4 << 10  # a second cache that holds no filters of these tests
FETCHING = [replace(target, l2=SMALL, l1=1 << 10) for target in (native_target(), X86_64_V3)]
STAYING = [replace(target, l2=SMALL, l1=1 << 16) for target in (native_target(), X86_64_V3)]
TARGETS = [native_target(), X86_64_V3, *FETCHING, *STAYING]


def check(image, count, geometry, target: CpuTarget, split=1, dtype="f32", seed=0, **options):
    rng = np.random.default_rng(seed)
    options = {"source": NHWC, "result": NHWC, **options}
    kernel = conv_kernel(image, count, geometry, dtype=dtype, wide=dtype, **options)
    x, w = random(rng, image, dtype), random(rng, kernel.values[1].shape, dtype)
    start = random(rng, kernel.values[2].shape, dtype)
    (got,) = build(direct.CLASS.generate, kernel, target)(x, w, start, split=split)
    expected = reference(x, w, geometry)
    if options.get("init", "bias") != "zero":
        expected = expected + (start if options.get("init") == "tensor" else start.reshape(-1, *[1] * (len(image) - 2)))
    if options.get("clamp"):
        expected = np.clip(expected, 0, 6)
    tolerance = {"f32": 1e-5, "f64": 1e-13, "i32": 0}[dtype]
    np.testing.assert_allclose(
        got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max(initial=0)))


@given(st.data())
@settings(max_examples=examples(80, 6), deadline=None)
def test_any_geometry_for_any_caches_and_partition(data):
    def pair(low, high):
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    taps = data.draw(st.sampled_from([(3, 1), (1, 3), (2, 2), (3, 3), (4, 2)]))
    stride, dilation, low, high = pair(1, 3), pair(1, 2), pair(0, 2), pair(0, 2)
    padding = 0.0 if any(low + high) else data.draw(st.sampled_from([0.0, None]))
    geometry = Geometry(taps, stride, dilation, low, high, padding)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(reach, low, high, pair(3, 9), strict=True)]
    image = (data.draw(st.integers(1, 2)), data.draw(st.integers(16, 37)), *size)
    options = {"init": data.draw(st.sampled_from(["bias", "zero", "tensor"])), "clamp": data.draw(st.booleans())}
    check(image, data.draw(st.integers(2, 70)), geometry, data.draw(st.sampled_from(TARGETS)),
          data.draw(st.integers(1, 4)), **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f64", "i32"])
def test_other_types(dtype, target):
    geometry = Geometry((3, 3), (2, 1), low=(0, 1), high=(1, 0), padding=0 if dtype == "i32" else 0.0)
    check((1, 19, 9, 10), 21, geometry, target, dtype=dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size, taps, low", [((1, 20), 3, 1), ((20, 1), 3, 1), ((2, 2), 5, 2), ((3, 3), 7, 6)])
def test_windows_that_reach_past_several_ends_of_the_image(size, taps, low, target):
    geometry = Geometry((taps, taps), low=(low, low), high=(low, low), padding=0.0)
    check((2, 16, *size), 17, geometry, target, split=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stride", [2, 3])
def test_windows_of_one_tap_that_skip_pixels(stride, target):
    check((1, 24, 10, 13), 40, Geometry((1, 1), (stride, stride)), target, split=2)


@pytest.mark.parametrize("target", TARGETS)
def test_more_channels_than_stay_in_the_first_cache(target):
    check((1, 210, 5, 6), 50, SAME, replace(target, l1=16 << 10), split=2, clamp=True)


@pytest.mark.parametrize("target", TARGETS)
def test_undefined_and_infinite_elements_stay_where_they_are_seen(target):
    x = np.ones((1, 16, 6, 6), np.float32)
    x[0, 1, 0, 0], x[0, 0, 5, 5] = np.nan, np.inf
    w, b = np.ones((17, 16, 3, 3), np.float32), np.zeros(17, np.float32)
    (got,) = build(direct.CLASS.generate, conv_kernel(x.shape, 17, SAME, source=NHWC, result=NHWC), target)(x, w, b)
    np.testing.assert_array_equal(got, reference(x, w, SAME))


@pytest.mark.parametrize("target", TARGETS)
def test_two_convolutions_of_one_image_that_are_added(target):
    rng = np.random.default_rng(4)
    shape = (2, 20, 6, 5)
    x, w, u = (random(rng, s, "f32") for s in ((2, 18, 6, 5), (20, 18, 3, 3), (20, 18, 3, 3)))
    base = conv_kernel(x.shape, 20, SAME, source=NHWC, result=NHWC)
    reads = base.stages[0].inputs[0]
    first, second = (
        stage(base.stages[0].sizes, "pppprrr", [reads, at(number, 7, 1, 4, 5, 6)], [at(out, 7, 0, 1, 2, 3)],
              multiply_add("f32", "f32"), inits=[0.0])
        for number, out in ((1, 4), (2, 5))
    )
    addition = stage(
        shape, "pppp", [at(4, 4, 0, 1, 2, 3), at(5, 4, 0, 1, 2, 3)], [at(3, 4, 0, 1, 2, 3)], [op("addf", 0, 1)]
    )
    values = [
        base.values[0], value(w.shape, role="constant"), value(u.shape, role="constant"),
        value(shape, role="result", order=NHWC), value(shape, role="temporary"), value(shape, role="temporary"),
    ]
    (got,) = build(direct.CLASS.generate, with_stages(values, first, second, addition), target)(x, w, u)
    np.testing.assert_allclose(got, reference(x, w.astype(np.float64) + u, SAME), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("image, count, geometry, options", [
    ((1, 16, 8, 8), 16, replace(SAME, padding=1.0), {}),
    ((1, 8, 8, 8), 16, SAME, {}),
    ((1, 16, 8, 8), 16, SAME, {"filters": "argument"}),
    ((1, 16, 8, 8), 16, SAME, {"source": NCHW}),
    ((1, 16, 8, 8), 3, SAME, {"source": NCHW, "result": NCHW}),
    ((1, 4, 8, 8), 16, SAME, {"source": NCHW, "result": NCHW}),
    ((1, 64, 8, 8), 16, Geometry((1, 1), (2, 2)), {"source": NCHW, "result": NCHW}),
])
def test_what_is_left_to_other_classes(image, count, geometry, options):
    kernel = conv_kernel(image, count, geometry, **{"source": NHWC, "result": NHWC, **options})
    assert direct.CLASS.generate(kernel, native_target()) is None


def test_windows_without_padding_are_read_in_place_too():
    """And not packed as products of matrices, for which their filters would have to be packed at every call."""
    kernel = conv_kernel((1, 64, 12, 12), 32, Geometry((3, 3)), source=NHWC, result=NHWC)
    code = generate(kernel, native_target())
    assert code is not None and code.kind == "convolution" and 1 in code.packings


@pytest.mark.parametrize("image, count, geometry", [
    ((1, 43, 9, 12), 5, Geometry((5, 5), (2, 2), low=(2, 2), high=(2, 2), padding=0.0)),
    ((1, 43, 13, 9, 12), 5, Geometry((2, 5, 5), (2, 2, 2), (1, 1, 1), (2, 2, 2), (2, 2, 2), 0.0)),
])
def test_images_of_short_rows_are_copied_once_rather_than_for_each_tap(image, count, geometry):
    order = tuple(range(len(image)))
    check(image, count, geometry, native_target(), split=2, source=order, result=order)
