"""Converts the inputs and outputs of a lowered model that are state to globals that `main` loads and stores.

    func.func @main(%x, %past) -> (%y, %present)      →      "util.global"() {sym_name = "cache", …}
                                                             func.func @main(%x) -> (%y) {
                                                               %past = "util.global.load"() {global = @cache}
                                                               …
                                                               "util.global.store"(%present) {global = @cache}

The pass resolve-states then makes them what a session keeps.
"""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.onnx.model import KeptState, OnnxModel
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import GLOBAL_OP, LOAD_OP, STORE_OP

_GROUPS = ("arg_attrs", "res_attrs")


def keep_states(module: ir.Module, model: OnnxModel) -> None:
    """Rewrites the only public function of `module`. Raises CompileError for element types that have no sign."""
    if not model.states:
        return
    function = next(op.operation for op in module.body.operations if op.operation.name == "func.func")
    block = function.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    inputs = [value.name for value in model.proto.graph.input if value.name not in model.constants]
    module.context.allow_unregistered_dialects = True
    with module.context, function.location:
        results, first = list(end.operands), block.operations[0].operation
        places = [inputs.index(state.input) for state in model.states]
        for state, place, value in zip(model.states, places, results[-len(places):], strict=True):
            argument = block.arguments[place]
            _declare(module, state, ir.RankedTensorType(argument.type), model)
            name = {"global": ir.FlatSymbolRefAttr.get(state.name)}
            load = ir.Operation.create(LOAD_OP, results=[argument.type], attributes=name, ip=ir.InsertionPoint(first))
            argument.replace_all_uses_with(load.results[0])
            if value == argument:
                value = load.results[0]
            if value.type != argument.type:
                value = ir.Operation.create(
                    "tensor.cast", results=[argument.type], operands=[value], ip=ir.InsertionPoint(end)).results[0]
            ir.Operation.create(STORE_OP, operands=[value], attributes=name, ip=ir.InsertionPoint(end))
        kept = list(end.operands)[: len(results) - len(places)]
        ir.Operation.create("func.return", operands=kept, ip=ir.InsertionPoint(end))
        end.erase()
        for place in sorted(places, reverse=True):
            block.erase_argument(place)
        _sign(function, places, [value.type for value in kept])


def _declare(module: ir.Module, state: KeptState, kind: ir.RankedTensorType, model: OnnxModel) -> None:
    if not kind.has_static_shape:
        raise model.error(f"state {state.name!r}: it is {kind}; expected known extents")
    if state.initial.dtype.name == "bool" or state.initial.dtype.isbuiltin != 1:
        raise model.error(f"state {state.name!r}: its elements are {state.initial.dtype}; expected floats or integers "
                          "that numpy has")
    array = np.array(state.initial, order="C")
    if array.dtype.kind == "u":
        array = array.view(f"i{array.dtype.itemsize}")
    value = ir.DenseElementsAttr.get(array, type=kind.element_type, shape=list(array.shape))
    ir.Operation.create(GLOBAL_OP, attributes={
        "sym_name": ir.StringAttr.get(state.name), "is_mutable": ir.UnitAttr.get(), "type": ir.TypeAttr.get(kind),
        "initial_value": value, "sym_visibility": ir.StringAttr.get("private"),
    }, ip=ir.InsertionPoint.at_block_begin(module.body))


def _sign(function: ir.Operation, dropped: list[int], results: list[ir.Type]) -> None:
    """Updates the signature: the arguments `dropped` and the last results are gone."""
    inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    for group in _GROUPS:
        if group in function.attributes:
            given = list(ir.ArrayAttr(function.attributes[group]))
            left = [one for place, one in enumerate(given) if place not in dropped] if group == "arg_attrs" \
                else given[: len(results)]
            function.attributes[group] = ir.ArrayAttr.get(left)
