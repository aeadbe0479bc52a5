"""hoist-constants: turns constant tensors into parameters of the program.

    func.func @f(%x: tensor<4xf32>) {                 func.func @f(%x: tensor<4xf32>,
      %w = arith.constant dense<[1., 2., …]>     →                 %w: tensor<4xf32> {motet.parameter = "constant_0"}) {

Splats stay: they become numbers in the kernels that read them. From here on kernels meet data only as arguments.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from motet.compiler.codegen.reader import constant_number
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import PARAMETER, Program
from motet.errors import CompileError

# What the bindings hand out as raw bytes rather than as an array of its own type.
RAW = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}


def hoist_constants(program: Program) -> None:
    """Hoist in every public function of `program`, in place."""
    parameters = dict(program.parameters)
    for entry in program.module.body.operations:
        function = entry.operation
        if function.name == "func.func" and "sym_visibility" not in function.attributes:
            _hoist(function, parameters)
    program.parameters = parameters


def _hoist(function: ir.Operation, parameters: dict[str, np.ndarray]) -> None:
    block = function.regions[0].blocks[0]
    for entry in list(block.operations):
        operation = entry.operation
        if operation.name != "arith.constant" or not isinstance(operation.results[0].type, ir.RankedTensorType):
            continue
        if constant_number(operation) is not None:
            continue
        key = f"constant_{len(parameters)}"
        parameters[key] = constant_array(operation.attributes["value"])
        argument = add_parameter(function, operation.results[0].type, key, operation.location)
        operation.results[0].replace_all_uses_with(argument)
        operation.erase()


def add_parameter(function: ir.Operation, kind: ir.Type, key: str, location: ir.Location) -> ir.Value:
    """A new last argument of `function` that stands for parameter `key`."""
    block = function.regions[0].blocks[0]
    known = len(block.arguments)
    attributes = (
        list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        if "arg_attrs" in function.attributes
        else [ir.DictAttr.get({})] * known
    )
    attributes.append(ir.DictAttr.get({PARAMETER: ir.StringAttr.get(key)}))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*signature.inputs, kind], signature.results)
    )
    return block.add_argument(kind, location)


def constant_array(attribute: ir.Attribute) -> np.ndarray:
    """The data of a dense constant, with its shape."""
    kind = ir.RankedTensorType(attribute.type)  # type: ignore[attr-defined]
    shape, name = tuple(kind.shape), str(kind.element_type)
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise CompileError(f"a constant of type {kind} that is not dense; expected dense<…> or dense_resource<…>")
    if name == "i1":
        return np.array([bool(value) for value in attribute], dtype=np.bool_).reshape(shape)
    if name in RAW:
        values = [ir.FloatAttr(value).value if isinstance(value, ir.Attribute) else value for value in attribute]
        return np.array(values, dtype=np.float64).astype(RAW[name]).reshape(shape)
    return np.array(attribute, copy=True).reshape(shape)
