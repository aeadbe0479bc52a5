"""Asserts the bounds of dynamic extents that a model's metadata states.

    func.func @main(%x: tensor<?x8xf32>)      →      %n = tensor.dim %x, 0
                                                     cf.assert 1 ≤ %n      cf.assert %n ≤ 32

Assertions about extents become constraints of the function (`scheduling/requirements.py`), which a call checks.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.onnx.model import ExtentBound
from motet.compiler.frontends.onnx.torch_operands import AT_MOST, assert_that, compare
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import NAME
from motet.compiler.ir.sizes import constant_index, extent_of


def assert_bounds(function: ir.Operation, bounds: Sequence[ExtentBound]) -> None:
    """Begins `function`, whose arguments are named, with assertions of `bounds`. Known extents need none."""
    block = function.regions[0].blocks[0]
    named = [ir.StringAttr(ir.DictAttr(each)[NAME]).value for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    with ir.InsertionPoint.at_block_begin(block):
        for bound in bounds:
            argument = block.arguments[named.index(bound.input)]
            if not ir.RankedTensorType(argument.type).is_dynamic_dim(bound.axis):
                continue
            with ir.Location.fused([ir.Location.name(bound.input)], ir.StringAttr.get("input")):
                _assert_bound(argument, bound)


def _assert_bound(argument: ir.Value, bound: ExtentBound) -> None:
    extent = extent_of(argument, bound.axis)
    if bound.least > 0:
        fits = compare(AT_MOST, constant_index(bound.least), extent)
        assert_that(fits, f"axis {bound.axis} must be at least {bound.least}")
    if bound.most is not None:
        fits = compare(AT_MOST, extent, constant_index(bound.most))
        assert_that(fits, f"axis {bound.axis} must be at most {bound.most}")
