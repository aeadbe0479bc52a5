"""Convolutions against numpy in double precision, vectors along filters and along pixels."""

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

from motet.compiler.codegen.cpu.conv import convolution
from motet.compiler.targets.cpu import X86_64_V3

TARGETS = pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)


def conv_kernel(
    image, count, geometry, *, dtype="f32", wide="f32", init="bias", clamp=False, source=NCHW, result=NCHW,
    filters="constant",
):
    """Dimensions n, f, out…, c, tap…; `init` is `bias`, `zero` or `tensor`."""
    n, c, *extents = image
    spatial = len(extents)
    rank, every = 3 + 2 * spatial, range(2 + spatial)
    shape = (n, count, *geometry.outputs(extents))
    sizes = (*shape, c, *geometry.kernel)
    start = {"bias": value((count,), wide, "constant"), "tensor": value(shape, wide), "zero": value((1,), wide)}[init]
    inits = {"bias": at(2, rank, 1), "tensor": at(2, rank, *every), "zero": 0.0 if wide != "i32" else 0}
    values = [
        value(image, dtype, order=source), value((count, c, *geometry.kernel), dtype, filters), start,
        value(shape, wide, "result", result), value(shape, wide, "temporary"),
    ]
    axes = [entry(geometry, axis, 2 + axis, 3 + spatial + axis) for axis in range(spatial)]
    reads = at(0, rank, 0, 2 + spatial, *axes, padding=geometry.padding)
    output = 4 if clamp else 3
    first = stage(
        sizes, "p" * (2 + spatial) + "r" * (1 + spatial), [reads, at(1, rank, 1, *range(2 + spatial, rank))],
        [at(output, rank, *every)], multiply_add(dtype, wide), inits=[inits[init]],
    )
    stages = [first, stage(shape, "p" * len(shape), **relu6(4, 3, len(shape), wide))] if clamp else [first]
    return with_stages(values[: output + 1], *stages)


def reference(x, w, geometry):
    seen = windows_of(x, geometry)  # n, c, out…, tap…
    taps = range(seen.ndim - len(geometry.kernel), seen.ndim)
    product = np.tensordot(seen, w.astype(np.float64), ([1, *taps], range(1, w.ndim)))  # n, out…, f
    return np.moveaxis(product, -1, 1)


def check(image, count, geometry, target=None, split=1, seed=0, **options):
    rng = np.random.default_rng(seed)
    dtype, wide, init = options.get("dtype", "f32"), options.get("wide", "f32"), options.get("init", "bias")
    kernel = conv_kernel(image, count, geometry, **options)
    x, w = random(rng, image, dtype), random(rng, kernel.values[1].shape, dtype)
    start = random(rng, kernel.values[2].shape, wide)
    (got,) = build(convolution.CLASS.generate, kernel, target)(x, w, start, split=split)
    expected = reference(x, w, geometry)
    if init != "zero":
        along = start.reshape(-1, *[1] * (len(image) - 2)) if init == "bias" else start
        expected = expected + along.astype(np.float64)
    if options.get("clamp"):
        expected = np.clip(expected, 0, 6)
    tolerance = {"f32": 1e-5, "f64": 1e-13, "f16": 5e-3, "bf16": 4e-2, "i32": 0}[wide]
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * scale)


@TARGETS
@pytest.mark.parametrize("source", [NCHW, NHWC])
@pytest.mark.parametrize("result", [NCHW, NHWC])
@pytest.mark.parametrize("channels, count, size", [(3, 16, 13), (7, 5, 7), (1, 33, 9), (17, 2, 2), (16, 64, 1)])
def test_bias_and_clamp_of_every_order(target, source, result, channels, count, size):
    check((2, channels, size, size), count, SAME, target, source=source, result=result, clamp=True)


@given(st.data())
@settings(max_examples=examples(50), deadline=None)
def test_any_geometry_for_any_partition(data):
    def pair(low, high):
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    taps = data.draw(st.sampled_from([(3, 1), (1, 3), (2, 2), (3, 3), (4, 2)]))
    stride, dilation, low, high = pair(1, 3), pair(1, 2), pair(0, 3), pair(0, 3)
    padding = data.draw(st.sampled_from([0.0, -1.5]))
    geometry = Geometry(taps, stride, dilation, low, high, padding)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(reach, low, high, pair(3, 11), strict=True)]
    image = (data.draw(st.integers(1, 2)), data.draw(st.integers(2, 19)), *size)
    orders = {name: data.draw(st.sampled_from([NCHW, NHWC])) for name in ("source", "result")}
    target = data.draw(st.sampled_from([native_target(), X86_64_V3]))
    check(image, data.draw(st.integers(2, 40)), geometry, target, data.draw(st.integers(1, 4)), **orders)


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_volumes_along_pixels(data):
    def triple(low, high):
        return data.draw(st.tuples(*[st.integers(low, high)] * 3))

    taps, stride, dilation, low, high = triple(2, 4), triple(1, 3), triple(1, 2), triple(0, 2), triple(0, 2)
    geometry = Geometry(taps, stride, dilation, low, high, data.draw(st.sampled_from([0.0, -1.5])))
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(reach, low, high, triple(3, 11), strict=True)]
    target = data.draw(st.sampled_from([native_target(), X86_64_V3]))
    dtype, wide = data.draw(st.sampled_from([("f32", "f32"), ("f64", "f64"), ("f16", "f32")]))
    image = (data.draw(st.integers(1, 2)), data.draw(st.integers(2, 7)), *size)
    split, count, order = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 19)), tuple(range(5))
    check(image, count, geometry, target, split, dtype=dtype, wide=wide, clamp=True, source=order, result=order)


@pytest.mark.parametrize("result", [NCHW, NHWC])
@pytest.mark.parametrize(
    "dtype, wide", [("f64", "f64"), ("f16", "f16"), ("bf16", "bf16"), ("i8", "i32"), ("f16", "f32")]
)
def test_other_types(dtype, wide, result):
    geometry = Geometry((3, 3), (2, 1), low=(0, 1), high=(1, 0), padding=0 if wide == "i32" else 0.0)
    check((1, 11, 9, 10), 21, geometry, dtype=dtype, wide=wide, result=result)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_last_lone_pixel_is_all_that_is_stored(dtype):
    # of 49 pixels the last vector has one; tasks run the last first, so that what is stored past one is seen
    check((2, 4, 7, 7), 6, SAME, dtype=dtype, wide=dtype, result=NCHW, split=2)


@pytest.mark.parametrize("init", ["bias", "zero", "tensor"])
@pytest.mark.parametrize("result", [NCHW, NHWC])
def test_initial_values(init, result):
    check((2, 6, 8, 5), 19, SAME, split=3, init=init, result=result)


def test_filters_known_only_when_running():
    check((2, 6, 8, 11), 13, SAME, filters="argument")


@pytest.mark.parametrize("result", [NCHW, NHWC])
def test_without_padding_and_with_many_tasks(result):
    check((1, 40, 30, 31), 70, Geometry((3, 5)), split=7, source=result, result=result)


@pytest.mark.parametrize("result", [NCHW, NHWC])
def test_undefined_and_infinite_elements_stay_where_they_are_seen(result):
    x = np.ones((1, 2, 6, 6), np.float32)
    x[0, 1, 0, 0], x[0, 0, 5, 5] = np.nan, np.inf
    w, b = np.ones((17, 2, 3, 3), np.float32), np.zeros(17, np.float32)
    (got,) = build(convolution.CLASS.generate, conv_kernel(x.shape, 17, SAME, source=result, result=result))(x, w, b)
    np.testing.assert_array_equal(got, reference(x, w, SAME))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_a_row_of_one_dimension(order):
    """Dimensions n, f, ow, c, kw."""
    rng = np.random.default_rng(1)
    x, w = random(rng, (2, 5, 17), "f32"), random(rng, (21, 5, 4), "f32")
    values = [
        value(x.shape, order=order), value(w.shape, role="constant"), value((2, 21, 8), role="result", order=order)
    ]
    kernel = with_stages(values, stage(
        (2, 21, 8, 5, 4), "ppprr", [at(0, 5, 0, 3, (-1, {2: 2, 4: 1}), padding=0.0), at(1, 5, 1, 3, 4)],
        [at(2, 5, 0, 1, 2)], multiply_add("f32", "f32"), inits=[0.0],
    ))
    (got,) = build(convolution.CLASS.generate, kernel)(x, w, split=2)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1)])
    taps = [(padded[:, :, k : k + 15 : 2], w[:, :, k].astype(np.float64)) for k in range(4)]
    expected = sum(np.einsum("ncw,fc->nfw", seen, weights) for seen, weights in taps)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 3, 4, 1, 2)])
def test_groups(order):
    """Dimensions n, g, f, oh, ow, c, kh, kw."""
    rng = np.random.default_rng(3)
    groups, channels, count = 3, 5, 18
    x, w = random(rng, (2, groups, channels, 7, 6), "f32"), random(rng, (groups, count, channels, 3, 3), "f32")
    values = [
        value(x.shape, order=order), value(w.shape, role="constant"),
        value((2, groups, count, 7, 6), role="result", order=order),
    ]
    reads = at(0, 8, 0, 1, 5, (-1, {3: 1, 6: 1}), (-1, {4: 1, 7: 1}), padding=0.0)
    kernel = with_stages(values, stage(
        (2, groups, count, 7, 6, channels, 3, 3), "ppppprrr", [reads, at(1, 8, 1, 2, 5, 6, 7)],
        [at(2, 8, 0, 1, 2, 3, 4)], multiply_add("f32", "f32"), inits=[0.0],
    ))
    (got,) = build(convolution.CLASS.generate, kernel)(x, w, split=4)
    for g in range(groups):
        np.testing.assert_allclose(got[:, g], reference(x[:, g], w[g], SAME), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("order", [NCHW, NHWC])
def test_a_residual_sum_and_two_results(order):
    rng = np.random.default_rng(2)
    shape = (1, 18, 5, 7)
    x, w, r = (random(rng, s, "f32") for s in ((1, 4, 5, 7), (18, 4, 3, 3), shape))
    base = conv_kernel(x.shape, 18, SAME, init="zero", source=order, result=order)
    results = [value(shape, role="result", order=order), value(shape, role="result", order=order)]
    reads = [at(number, 4, 0, 1, 2, 3) for number in (2, 3)]
    addition = stage(shape, "pppp", reads, [at(4, 4, 0, 1, 2, 3)], [op("addf", 0, 1)])
    kernel = with_stages([*base.values[:2], value(shape, order=order), *results], *base.stages, addition)
    sums, total = build(convolution.CLASS.generate, kernel)(x, w, r)
    expected = reference(x, w, SAME)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(total, expected + r, rtol=1e-5, atol=1e-4)


@TARGETS
@pytest.mark.parametrize("order", [NCHW, NHWC])
def test_two_convolutions_of_one_image_that_are_added(order, target):
    rng = np.random.default_rng(4)
    shape = (2, 20, 6, 5)
    x, w, u = (random(rng, s, "f32") for s in ((2, 3, 6, 5), (20, 3, 3, 3), (20, 3, 3, 3)))
    b = random(rng, (20,), "f32")
    base = conv_kernel(x.shape, 20, SAME, source=order, result=order)
    reads = base.stages[0].inputs[0]
    first, second = (
        stage(base.stages[0].sizes, "pppprrr", [reads, at(number, 7, 1, 4, 5, 6)], [at(out, 7, 0, 1, 2, 3)],
              multiply_add("f32", "f32"), inits=[init])
        for number, out, init in ((1, 5, at(3, 7, 1)), (2, 6, 0.0))
    )
    addition = stage(
        shape, "pppp", [at(5, 4, 0, 1, 2, 3), at(6, 4, 0, 1, 2, 3)], [at(4, 4, 0, 1, 2, 3)], [op("addf", 0, 1)]
    )
    values = [
        base.values[0], value(w.shape, role="constant"), value(u.shape, role="constant"),
        value((20,), role="constant"), value(shape, role="result", order=order),
        value(shape, role="temporary"), value(shape, role="temporary"),
    ]
    (got,) = build(convolution.CLASS.generate, with_stages(values, first, second, addition), target)(x, w, u, b)
    expected = reference(x, w.astype(np.float64) + u, SAME) + b[:, None, None]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
