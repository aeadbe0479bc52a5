"""Depthwise convolutions against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, op, stage, value
from tests.unit.compiler.codegen.cpu.windows import (
    NCHW,
    NHWC,
    SAME,
    Geometry,
    entry,
    multiply_add,
    random,
    relu6,
    windows_of,
    with_stages,
)

from motet.compiler.codegen.cpu.conv import depthwise
from motet.compiler.targets.cpu import X86_64_V3

TARGETS = pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)


def depthwise_kernel(
    image, geometry, *, dtype="f32", wide="f32", bias=True, clamp=False, result=NHWC, filters="constant", form="chw",
    order=NHWC,
):
    """Dimensions n, oh, ow, c, kh, kw."""
    n, c, *_ = image
    sizes = (n, *geometry.outputs(image[2:]), c, *geometry.kernel)
    shape = (n, c, *sizes[1:3])
    kernels = {"chw": ((c, *geometry.kernel), (3, 4, 5)), "hwc": ((*geometry.kernel, c), (4, 5, 3))}[form]
    last = 5 if clamp else 4
    values = [
        value(image, dtype, order=order), value(kernels[0], dtype, filters), value((c,), wide, "constant"),
        value(shape, wide, "result", result), value(shape, wide, "temporary"),
    ]
    reads = at(0, 6, 0, 3, entry(geometry, 0, 1, 4), entry(geometry, 1, 2, 5), padding=geometry.padding)
    output = 4 if clamp else 3
    first = stage(
        sizes, "pppprr", [reads, at(1, 6, *kernels[1])], [at(output, 6, 0, 3, 1, 2)], multiply_add(dtype, wide),
        inits=[at(2, 6, 3) if bias else 0.0],
    )
    stages = [first, stage(shape, "pppp", **relu6(4, 3, 4, wide))] if clamp else [first]
    return with_stages(values[:last], *stages)


def reference(x, w, b, geometry, form="chw"):
    w = w.astype(np.float64)
    w = w if form == "chw" else np.moveaxis(w, -1, 0)
    total = np.einsum("nchwij,cij->nchw", windows_of(x, geometry), w)
    return total if b is None else total + b.astype(np.float64)[:, None, None]


def check(image, geometry, target=None, split=1, seed=0, **options):
    rng = np.random.default_rng(seed)
    dtype, wide, form = options.get("dtype", "f32"), options.get("wide", "f32"), options.get("form", "chw")
    x = random(rng, image, dtype)
    w = random(rng, (image[1], *geometry.kernel), dtype)
    w = w if form == "chw" else np.moveaxis(w, 0, -1)
    b = random(rng, image[1:2], wide)
    executable = build(depthwise.CLASS.generate, depthwise_kernel(image, geometry, **options), target)
    (got,) = executable(x, w, b, split=split)
    expected = reference(x, w, b if options.get("bias", True) else None, geometry, form)
    expected = np.clip(expected, 0, 6) if options.get("clamp") else expected
    tolerance = {"f32": 1e-5, "f64": 1e-13, "f16": 5e-3, "bf16": 4e-2, "i32": 0}[wide]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 4)


@TARGETS
@pytest.mark.parametrize("channels", [2, 7, 16, 33, 96])
@pytest.mark.parametrize("size", [1, 7, 13])
def test_bias_and_clamp_on_borders_and_inside(target, channels, size):
    check((2, channels, size, size), SAME, target, clamp=True)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_geometry_for_any_partition(data):
    pair = lambda low, high: data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))  # noqa: E731
    taps, stride, dilation, low, high = pair(2, 5), pair(1, 3), pair(1, 2), pair(0, 3), pair(0, 3)
    geometry = Geometry(taps, stride, dilation, low, high, 0.0)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(reach, low, high, pair(0, 12), strict=True)]
    channels, split = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 4))
    target = data.draw(st.sampled_from([native_target(), X86_64_V3]))
    check((data.draw(st.integers(1, 2)), channels, *size), geometry, target, split, form="hwc")


@pytest.mark.parametrize(
    "dtype, wide", [("f64", "f64"), ("f16", "f16"), ("bf16", "bf16"), ("i8", "i32"), ("f16", "f32")]
)
def test_other_types(dtype, wide):
    geometry = Geometry((3, 3), (2, 1), low=(0, 1), high=(1, 0), padding=0 if wide == "i32" else 0.0)
    check((1, 21, 9, 10), geometry, dtype=dtype, wide=wide)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("result", [NHWC, NCHW])
def test_initial_values_and_orders_of_the_result(bias, result):
    check((2, 19, 8, 5), SAME, split=3, bias=bias, result=result)


def test_filters_known_only_when_running():
    check((1, 35, 6, 11), SAME, filters="argument", form="hwc")


def test_without_padding_and_with_many_tasks():
    check((1, 200, 30, 31), Geometry((3, 5)), split=7)


def test_a_window_wider_than_the_image():
    check((1, 24, 2, 2), Geometry((7, 7), low=(3, 3), high=(3, 3), padding=0.0))


def test_undefined_and_infinite_elements_stay_where_they_are_seen():
    x = np.ones((1, 16, 6, 6), np.float32)
    x[0, 3, 0, 0], x[0, 5, 5, 5] = np.nan, np.inf
    w, b = np.ones((16, 3, 3), np.float32), np.zeros(16, np.float32)
    (got,) = build(depthwise.CLASS.generate, depthwise_kernel(x.shape, SAME))(x, w, b)
    np.testing.assert_array_equal(got, reference(x, w, b, SAME))


def test_a_row_of_one_dimension():
    """Dimensions n, ow, c, kw."""
    rng = np.random.default_rng(1)
    x, w = random(rng, (2, 21, 17), "f32"), random(rng, (21, 4), "f32")
    result = value((2, 21, 8), role="result", order=(0, 2, 1))
    values = [value(x.shape, order=(0, 2, 1)), value(w.shape, role="constant"), result]
    kernel = with_stages(values, stage(
        (2, 8, 21, 4), "pppr", [at(0, 4, 0, 2, (-1, {1: 2, 3: 1}), padding=0.0), at(1, 4, 2, 3)], [at(2, 4, 0, 2, 1)],
        multiply_add("f32", "f32"), inits=[0.0],
    ))
    (got,) = build(depthwise.CLASS.generate, kernel)(x, w)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1)])
    expected = sum(padded[:, :, k : k + 15 : 2] * w[:, k, None].astype(np.float64) for k in range(4))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_residual_sum_and_two_results():
    x, w, r = (random(np.random.default_rng(2), s, "f32") for s in ((1, 18, 5, 7), (18, 3, 3), (1, 18, 5, 7)))
    base = depthwise_kernel(x.shape, SAME, bias=False)
    results = [value(x.shape, role="result"), value(x.shape, role="result", order=NHWC)]
    values = [*base.values[:2], value(x.shape, order=NHWC), *results]
    reads = [at(number, 4, 0, 1, 2, 3) for number in (2, 3)]
    addition = stage(x.shape, "pppp", reads, [at(4, 4, 0, 1, 2, 3)], [op("addf", 0, 1)])
    sums, total = build(depthwise.CLASS.generate, with_stages(values, *base.stages, addition))(x, w, r)
    expected = reference(x, w, None, SAME)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, expected + r, rtol=1e-5, atol=1e-5)


def test_what_it_leaves_to_others():
    ones = Geometry((3, 3), low=(1, 1), high=(1, 1), padding=1.0)
    assert depthwise.CLASS.generate(depthwise_kernel((1, 8, 5, 5), ones), native_target()) is None
    planes = depthwise_kernel((1, 8, 5, 5), SAME, result=NCHW, order=NCHW)
    assert depthwise.CLASS.generate(planes, native_target()) is None


@TARGETS
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("channels", [3, 8, 21])
def test_an_image_of_planes_is_copied(target, channels, dtype):
    geometry = Geometry((5, 3), (1, 2), low=(2, 1), high=(2, 1), padding=0.0)
    check((2, channels, 11, 19), geometry, target, order=NCHW, dtype=dtype, wide=dtype)


@pytest.mark.parametrize("order", [NHWC, NCHW])
@pytest.mark.parametrize("taps", [19, 31])
def test_a_padded_copy_of_the_image_for_large_windows(taps, order):
    low = taps // 2
    geometry = Geometry((taps, taps), low=(low, low), high=(low, low), padding=0.0)
    check((2, 21, 20, 33), geometry, split=3, order=order)
