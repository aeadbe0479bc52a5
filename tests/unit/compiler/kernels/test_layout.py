"""In which order the temporaries of a kernel lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, op, stage, value
from tests.unit.compiler.codegen.cpu.windows import NCHW, NHWC, with_stages

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.ir._mlir import ir, new_context
from motet.compiler.kernels.kernel import Kernel, row_major
from motet.compiler.kernels.layout import choose_orders, order_temporaries
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


def passed_on(kernel: Kernel, shape: Sequence[int]) -> tuple[int, ...]:
    """The order of the result of `kernel` after a convolution whose result is channels-last."""
    image = f"tensor<{'x'.join(map(str, kernel.values[0].shape))}xf32>"
    result = f"tensor<{'x'.join(map(str, shape))}xf32>"
    text = f"""
    func.func private @conv({image}, tensor<6x6x1x1xf32>) -> {image}
    func.func private @after({image}) -> {result}
    func.func private @last({result}) -> tensor<1xf32>
    func.func @main(%x: {image}, %w: tensor<6x6x1x1xf32>) -> tensor<1xf32> {{
      %a = call @conv(%x, %w) : ({image}, tensor<6x6x1x1xf32>) -> {image}
      %b = call @after(%a) : ({image}) -> {result}
      %c = call @last(%b) : ({result}) -> tensor<1xf32>
      return %c : tensor<1xf32>
    }}"""
    space = (*kernel.values[0].shape, 6, 1, 1)
    window = [at(0, 7, 0, 4, (0, {2: 1, 5: 1}), (0, {3: 1, 6: 1})), at(1, 7, 1, 4, 5, 6)]
    conv = stage(space, "pppprrr", window, [at(2, 7, 0, 1, 2, 3)], [op("mulf", 0, 1), op("addf", 2, 3)], inits=[0.0])
    values = [value(kernel.values[0].shape), value((6, 6, 1, 1)), value(kernel.values[0].shape, role="result")]
    last = stage(shape, "r" * len(shape), [at(0, len(shape), *range(len(shape)))], [at(1, len(shape), (0, {}))],
                 [op("addf", 1, 0)], inits=[0.0])
    kernels = {
        "conv": replace(with_stages(values, conv), arguments=(0, 1)), "after": replace(kernel, arguments=(0,)),
        "last": replace(with_stages([value(shape), value((1,), role="result")], last), arguments=(0,)),
    }
    module = ir.Module.parse(text, context=new_context())
    with module.context:
        block = module.body.operations[3].operation.regions[0].blocks[0]
        orders = choose_orders(block, kernels, frozenset())
        return orders.get(block.operations[1].operation.results[0], row_major(len(shape)))


def normalised(image: Sequence[int], axes: Sequence[int]) -> Kernel:
    """x minus the sum over channels, with its axes in the order `axes`: a temporary without the unit axis between."""
    _, channels, height, width = image
    read = at(0, 3, (0, {}), 2, 0, 1)
    total = stage((height, width, channels), "ppr", [read], [at(2, 3, 0, 1)], [op("addf", 1, 0)], inits=[0.0])
    apart = stage((height, width, channels), "ppp", [read, at(2, 3, 0, 1)], [at(3, 3, 0, 1, 2)], [op("subf", 0, 1)])
    there = {0: (0, {}), 1: 2, 2: 0, 3: 1}
    twice = stage((height, width, channels), "ppp", [at(3, 3, 0, 1, 2)], [at(1, 3, *(there[axis] for axis in axes))],
                  [op("addf", 0, 0)])
    values = [value(image), value([image[axis] for axis in axes], role="result"),
              value((height, width), role="temporary"), value((height, width, channels), role="temporary")]
    return with_stages(values, total, apart, twice)


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 1, 2, 3), (0, 3, 2, 1), (1, 0, 3, 2), (2, 3, 1, 0)])
def test_orders_follow_transpositions_through_all_stages(axes):
    """Whatever a normalisation calls its axes, its result lies as its image does: channels last."""
    image = (1, 6, 5, 4)
    order = passed_on(normalised(image, axes), [image[axis] for axis in axes])
    assert [axes[axis] for axis in order if axes[axis]] == [2, 3, 1]


def test_pools_keep_channels_last():
    assert passed_on(pool(6, 4, 3, NCHW), (1, 6, 4, 3)) == NHWC
