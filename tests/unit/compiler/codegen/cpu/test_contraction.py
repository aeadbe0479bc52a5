"""Products whose results lie otherwise than they are calculated, against numpy in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, stage, value
from tests.unit.compiler.codegen.cpu.windows import NCHW, NHWC, multiply_add, random, relu6, with_stages

from motet.compiler.codegen.cpu.gemm import contraction
from motet.compiler.targets.cpu import X86_64_V3

TARGETS = pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)


def pointwise(image, count, source, result, clamp):
    """A convolution of one pixel: dimensions n, f, h, w, c."""
    n, c, h, w = image
    shape = (n, count, h, w)
    values = [
        value(image, order=source), value((count, c), role="constant"), value((count,), role="constant"),
        value(shape, role="result", order=result), value(shape, role="temporary"),
    ]
    output = 4 if clamp else 3
    first = stage(
        (*shape, c), "ppppr", [at(0, 5, 0, 4, 2, 3), at(1, 5, 1, 4)], [at(output, 5, 0, 1, 2, 3)],
        multiply_add("f32", "f32"), inits=[at(2, 5, 1)],
    )
    stages = [first, stage(shape, "pppp", **relu6(4, 3, 4))] if clamp else [first]
    return with_stages(values[: output + 1], *stages)


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_pixels_of_every_order_for_any_partition(data):
    image = tuple(data.draw(st.integers(1, most)) for most in (3, 40, 9, 9))
    count, clamp = data.draw(st.integers(2, 70)), data.draw(st.booleans())
    orders = [data.draw(st.sampled_from([NCHW, NHWC])) for _ in range(2)]
    target = data.draw(st.sampled_from([native_target(), X86_64_V3]))
    kernel = pointwise(image, count, *orders, clamp)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, w, b = (random(rng, shape, "f32") for shape in (image, (count, image[1]), (count,)))
    (got,) = build(contraction.CLASS.generate, kernel, target)(x, w, b, split=data.draw(st.integers(1, 4)))
    expected = np.einsum("nchw,fc->nfhw", x.astype(np.float64), w.astype(np.float64)) + b[:, None, None]
    np.testing.assert_allclose(got, np.clip(expected, 0, 6) if clamp else expected, rtol=1e-5, atol=1e-4)


@TARGETS
@pytest.mark.parametrize("clamp", [False, True])
def test_vectors_run_along_what_lies_side_by_side_in_what_is_stored(clamp, target):
    """And so filters are packed when compiling, not the image at every call."""
    code = contraction.CLASS.generate(pointwise((1, 32, 7, 7), 64, NHWC, NHWC, clamp), target)
    assert code is not None and 1 in code.packings and len(code.phases) == 1 and code.scratch == 0


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_few_rows_by_a_factor_that_is_read_in_place(data):
    """From beyond the second cache, which is small here, or not."""
    m, k, n = (data.draw(st.integers(low, most)) for low, most in ((1, 17), (1, 50), (2, 600)))
    target = data.draw(st.sampled_from([native_target(), X86_64_V3]))
    if data.draw(st.booleans()):
        target = replace(target, l1=1 << 10, l2=4 << 10)
    clamp = data.draw(st.booleans())
    values = [value((m, k)), value((k, n)), value((m, n))]
    values += [value((m, n), role=role) for role in ("result", "temporary")]
    product = stage(
        (m, n, k), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(4 if clamp else 3, 3, 0, 1)],
        multiply_add("f32", "f32"), inits=[at(2, 3, 0, 1)],
    )
    stages = [product, stage((m, n), "pp", **relu6(4, 3, 2))] if clamp else [product]
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, w, start = (random(rng, shape, "f32") for shape in ((m, k), (k, n), (m, n)))
    kernel = with_stages(values if clamp else values[:4], *stages)
    (got,) = build(contraction.CLASS.generate, kernel, target)(x, w, start, split=data.draw(st.integers(1, 4)))
    expected = x.astype(np.float64) @ w.astype(np.float64) + start
    np.testing.assert_allclose(got, np.clip(expected, 0, 6) if clamp else expected, rtol=1e-5, atol=1e-4)
