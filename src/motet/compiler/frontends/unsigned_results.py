"""Returns constants of unsigned integers as constants of signed ones, in the dialect `torch`.

    %0 = torch.vtensor.literal(dense<255> : tensor<ui8>)   →   %0 = torch.vtensor.literal(dense<-1> : tensor<si8>)
    return %0 : !torch.vtensor<[],ui8>                         return %0 : !torch.vtensor<[],si8>

The torch-mlir wheel lowers a returned constant to an attribute of signed integers, which its verifier refuses for an
unsigned type. linalg's integers are signless; the signature records separately which results are unsigned.
"""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.onnx.tensors import kind_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations


def return_signed_constants(module: ir.Module) -> None:
    """Rewrites the functions of `module` in place, after the wheel's pipeline to the dialect `torch`."""
    for returned in find_operations(module, "func.return"):
        function = returned.parent.operation
        for number, value in enumerate(returned.operands):
            kind, literal = kind_of(value), value.owner
            if kind is None or not kind.element.startswith("ui") or isinstance(literal, ir.Block):
                continue
            if literal.name != "torch.vtensor.literal":
                continue
            with returned.context, literal.location, ir.InsertionPoint(returned):
                returned.operands[number] = _signed(literal.operation)
        with returned.context:
            kinds = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
            results = [value.type for value in returned.operands]
            function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds.inputs, results))


def _signed(literal: ir.Operation) -> ir.Value:
    array = np.asarray(ir.DenseIntElementsAttr(literal.attributes["value"]))
    element = ir.IntegerType.get_signed(8 * array.itemsize)
    bits = np.asarray(array, order="C").view(f"i{array.itemsize}")
    value = ir.DenseElementsAttr.get(bits, type=element, shape=list(array.shape))
    kind = ir.Type.parse(f"!torch.vtensor<[{','.join(map(str, array.shape))}],{element}>")
    return create("torch.vtensor.literal", kind, [], {"value": value})
