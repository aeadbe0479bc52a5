"""Convolutions over any number of axes whose image is copied first, against numpy in double precision."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, op, stage, value
from tests.unit.compiler.codegen.cpu.test_convolution import conv_kernel, reference
from tests.unit.compiler.codegen.cpu.windows import Geometry, entry, random, with_stages

from motet.compiler.codegen.cpu.conv import direct, direct_plan
from motet.compiler.codegen.cpu.select import generate
from motet.compiler.targets.cpu import X86_64_V3

STAYING = replace(native_target(), l2=4 << 10, l1=1 << 16)  # keeps blocks of the filters for all pixels
NARROW = replace(X86_64_V3, vector_bits=128)
TARGETS = [native_target(), NARROW, X86_64_V3, STAYING]
TOLERANCES = {"f32": 1e-5, "f64": 1e-13, "f16": 5e-3, "bf16": 4e-2, "i32": 0}


copies = patch.object(direct_plan, "copy_pays", lambda c, target: True)


def copied(kernel, target):
    """Code that copies the image, also where other classes are estimated to be faster."""
    with copies:
        found = direct.CLASS.match(kernel, target)
        assert found is not None
        schedule = direct.CLASS.choose(found, target)
        assert schedule is not None and direct.CLASS.check(found, schedule, target) == []
        return direct.CLASS.emit(found, schedule, target)


def order(spatial: int, last: bool) -> tuple[int, ...]:
    return (0, *range(2, 2 + spatial), 1) if last else tuple(range(2 + spatial))


def check(image, count, geometry, target, split=1, last=(False, False), **options):
    rng = np.random.default_rng(0)
    dtype, wide = options.get("dtype", "f32"), options.get("wide", "f32")
    source, result = (order(len(image) - 2, each) for each in last)
    kernel = conv_kernel(image, count, geometry, source=source, result=result, **options)
    x, w = random(rng, image, dtype), random(rng, kernel.values[1].shape, dtype)
    start = random(rng, kernel.values[2].shape, wide)
    (got,) = build(copied, kernel, target)(x, w, start, split=split)
    expected = reference(x, w, geometry)
    if options.get("init", "bias") == "bias":
        expected = expected + start.astype(np.float64).reshape(-1, *[1] * (len(image) - 2))
    elif options["init"] == "tensor":
        expected = expected + start.astype(np.float64)
    if options.get("clamp"):
        expected = np.clip(expected, 0, 6)
    tolerance = TOLERANCES[wide]
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * scale)


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_any_geometry_over_one_two_and_three_axes(data):
    spatial = data.draw(st.integers(1, 3))

    def each(low, high):
        return data.draw(st.tuples(*[st.integers(low, high)] * spatial))

    taps = data.draw(st.sampled_from({
        1: [(7,), (4,), (16,)], 2: [(3, 3), (1, 7), (5, 1), (4, 2)], 3: [(3, 3, 3), (3, 1, 1), (1, 2, 3), (2, 1, 2)],
    }[spatial]))
    stride, dilation, low, high = each(1, 3), each(1, 3), each(0, 3), each(0, 3)
    padding = data.draw(st.sampled_from([0.0, 0.0, -1.5] if any(low + high) else [None, 0.0]))
    geometry = Geometry(taps, stride, dilation, low, high, padding)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    size = [max(1, r - lo - hi) + extra for r, lo, hi, extra in zip(
        reach, low, high, each(0, (60, 17, 5)[spatial - 1]), strict=True)]
    last = data.draw(st.sampled_from([(False, False), (True, False), (True, True), (False, True)]))
    image = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 37)), *size)
    filters, target = data.draw(st.integers(2, 70)), data.draw(st.sampled_from(TARGETS))
    kernel = conv_kernel(image, filters, geometry, source=order(spatial, last[0]), result=order(spatial, last[1]))
    with copies:  # not a product, nor contiguous along an axis that is no window, which are of other classes
        assume(direct.CLASS.match(kernel, target) is not None)
    check(image, filters, geometry, target, data.draw(st.integers(1, 4)), last,
          init=data.draw(st.sampled_from(["bias", "zero", "tensor"])), clamp=data.draw(st.booleans()))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype, wide", [("f64", "f64"), ("i8", "i32"), ("f16", "f32"), ("bf16", "bf16")])
def test_other_types(dtype, wide, target):
    geometry = Geometry((2, 3, 3), (1, 2, 1), (1, 1, 1), (1, 0, 1), (0, 1, 0), 0 if wide == "i32" else 0.0)
    check((1, 19, 4, 9, 10), 21, geometry, target, dtype=dtype, wide=wide)


@pytest.mark.parametrize("target", TARGETS)
def test_lines_longer_than_a_task_copies(target):
    check((2, 24, 1700), 33, Geometry((5,), low=(2,), high=(2,), padding=0.0, stride=(1,), dilation=(2,)), target, 5)


@pytest.mark.parametrize("target", TARGETS)
def test_windows_longer_than_the_image(target):
    check((1, 24, 11), 32, Geometry((40,), (1,), (1,), (20,), (20,), 0.0), target)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_groups_of_channels(spatial, last):
    """Dimensions n, g, f, out…, c, tap…; groups before the channels, in one tensor of five to seven axes."""
    n, groups, count, channels = 2, 3, 20, 26
    geometry = Geometry((3,) * spatial, (2, 1, 1)[:spatial], (1,) * spatial, (1,) * spatial, (1,) * spatial, 0.0)
    extents = (13, 9, 8)[-spatial:]
    image = (n, groups, channels, *extents)
    shape = (n, groups, count, *geometry.outputs(extents))
    rank = 4 + 2 * spatial
    outs = range(3, 3 + spatial)
    axes = [entry(geometry, axis, 3 + axis, 4 + spatial + axis) for axis in range(spatial)]
    form = (0, *outs, 1, 2) if last else range(3 + spatial)
    values = [
        value(image, order=form), value((groups, count, channels, *geometry.kernel), role="constant"),
        value(shape, role="result", order=form),
    ]
    product = stage(
        (*shape, channels, *geometry.kernel), "p" * (3 + spatial) + "r" * (1 + spatial),
        [at(0, rank, 0, 1, 3 + spatial, *axes, padding=0.0), at(1, rank, 1, 2, *range(3 + spatial, rank))],
        [at(2, rank, 0, 1, 2, *outs)], [op("mulf", 0, 1), op("addf", 2, 3)], inits=[0.0],
    )
    rng = np.random.default_rng(1)
    x, w = random(rng, image, "f32"), random(rng, values[1].shape, "f32")
    (got,) = build(copied, with_stages(values, product))(x, w, split=3)
    expected = np.stack([reference(x[:, g], w[g], geometry) for g in range(groups)], 1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_a_long_row_is_divided_into_tasks():
    geometry, rows = Geometry((7,), (1,), (3,), (9,), (9,), 0.0), (0, 1, 2)
    kernel = conv_kernel((1, 64, 4000), 64, geometry, source=rows, result=rows)
    found = direct.CLASS.match(kernel, native_target())
    schedule = direct.CLASS.choose(found, native_target())
    assert schedule.pieces >= 16
    wrong = structs.replace(schedule, pieces=4001)
    assert [reason.field for reason in direct.CLASS.check(found, wrong, native_target())] == ["pieces"]


@pytest.mark.parametrize("shape, taps", [
    ((1, 64, 1000), (3,)), ((1, 32, 8, 14, 14), (3, 3, 3)), ((1, 64, 7, 7), (3, 3)),
])
def test_the_image_is_copied_once_in_a_phase(shape, taps):
    ones = (1,) * len(taps)
    kernel = conv_kernel(shape, 64, Geometry(taps, ones, ones, ones, ones, 0.0),
                         source=order(len(taps), False), result=order(len(taps), False))
    code = generate(kernel, native_target())
    assert code is not None and code.kind == "convolution"
    assert [phase.symbol for phase in code.phases] == ["kernel_copy", "kernel"] and len(code.workspaces) == 1
