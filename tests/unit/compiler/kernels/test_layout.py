"""In which order the temporaries of a kernel lie."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, op, stage, value
from tests.unit.compiler.codegen.cpu.windows import NCHW, NHWC, with_stages

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.layout import order_temporaries
from motet.compiler.targets.cpu import X86_64_V3


def pool(channels, height, width, order):
    """A sum over windows of 3 by 3, padded with zeros, in a temporary without the unit dimension, then its ninth."""
    image, inner = (1, channels, height, width), (channels, height, width)
    window = [at(0, 5, (0, {}), 0, (-1, {1: 1, 3: 1}), (-1, {2: 1, 4: 1}), padding=0.0)]
    sums = stage((*inner, 3, 3), "ppprr", window, [at(2, 5, 0, 1, 2)], [op("addf", 0, 1)], inits=[0.0])
    ninth = stage(
        inner, "ppp", [at(2, 3, 0, 1, 2)], [at(1, 3, (0, {}), 0, 1, 2)], [op("constant", value=9.0), op("divf", 0, 2)])
    values = [value(image, order=order), value(image, role="result", order=order), value(inner, role="temporary")]
    return with_stages(values, sums, ninth)


def test_temporaries_lie_as_what_is_made_of_them():
    assert order_temporaries(pool(5, 4, 3, NHWC)).values[2].order == (1, 2, 0)
    assert order_temporaries(pool(5, 4, 3, NCHW)).values[2].order == (0, 1, 2)


def test_temporaries_that_are_reduced_stay_as_they_are():
    shape = (4, 5, 6)
    values = [
        value((4, 5, 6), order=(0, 2, 1)), value((4, 5), role="result", order=(1, 0)), value(shape, role="temporary")]
    twice = stage(shape, "ppp", [at(0, 3, 0, 1, 2)], [at(2, 3, 0, 1, 2)], [op("addf", 0, 0)])
    total = stage(shape, "ppr", [at(2, 3, 0, 1, 2)], [at(1, 3, 0, 1)], [op("addf", 0, 1)], inits=[0.0])
    assert order_temporaries(with_stages(values, twice, total)).values[2].order == (0, 1, 2)


@pytest.mark.parametrize("target", [native_target(), X86_64_V3])
@pytest.mark.parametrize("order", [NCHW, NHWC])
@pytest.mark.parametrize("channels", [1, 7, 33])
def test_pools_are_right_in_every_order(channels, order, target):
    x = np.random.default_rng(channels).standard_normal((1, channels, 6, 5), dtype=np.float32)
    (got,) = build(loops.CLASS.generate, order_temporaries(pool(channels, 6, 5, order)), target)(x, split=2)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    expected = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3)).sum((-1, -2)) / 9
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
