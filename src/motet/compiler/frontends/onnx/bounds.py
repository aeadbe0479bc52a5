"""Bounds of dynamic extents, which ONNX itself cannot say: in the metadata of a model, and as assertions.

    metadata_props: motet.bounds = [{"input": "x", "axis": 0, "least": 1, "most": 32}]

    func.func @main(%x: tensor<?x8xf32>)      →      %n = tensor.dim %x, 0
                                                     cf.assert 1 ≤ %n      cf.assert %n ≤ 32

Assertions about extents become constraints of the function (`scheduling/requirements.py`), which a call checks.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from motet.compiler.frontends.onnx.model import ExtentBound, OnnxModel
from motet.compiler.frontends.onnx.torch_operands import AT_MOST, assert_that, compare
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import NAME
from motet.compiler.ir.sizes import constant_index, extent_of

if TYPE_CHECKING:
    import onnx

_KEY = "motet.bounds"


def stated_bounds(model: OnnxModel) -> list[ExtentBound]:
    """The bounds in the metadata of `model`. Raises CompileError if it does not fit the model."""
    text = next((entry.value for entry in model.proto.metadata_props if entry.key == _KEY), None)
    if text is None:
        return []
    try:
        listed: list[dict[str, Any]] = json.loads(text)
        bounds = [ExtentBound(str(one["input"]), int(one["axis"]), int(one["least"]),
                        None if one["most"] is None else int(one["most"])) for one in listed]
    except (ValueError, TypeError, KeyError) as error:
        raise model.error(f"its bounds cannot be read: {error}; expected metadata {_KEY} as a list of objects with "
                          "input, axis, least and most") from None
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.proto.graph.input}
    for bound in bounds:
        if not 0 <= bound.axis < ranks.get(bound.input, 0):
            raise model.error(f"bounds of axis {bound.axis} of {bound.input!r}: there is no such axis; expected one of "
                              f"the inputs {', '.join(ranks)}")
    return bounds


def state_bounds(proto: onnx.ModelProto, bounds: list[ExtentBound]) -> None:
    """Records `bounds` in the metadata."""
    entry = proto.metadata_props.add()
    entry.key = _KEY
    entry.value = json.dumps([asdict(one) for one in bounds])


def assert_bounds(function: ir.Operation, bounds: list[ExtentBound]) -> None:
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
