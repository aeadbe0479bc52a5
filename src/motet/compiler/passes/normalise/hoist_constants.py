"""hoist-constants: turns constant tensors into parameters of the program.

    func.func @f(%x: tensor<4xf32>) {                 func.func @f(%x: tensor<4xf32>,
      %w = arith.constant dense<[1., 2., …]>     →                 %w: tensor<4xf32> {motet.parameter = "constant_0"}) {

Splats remain: they become numbers in the kernels that read them, except in launches, which are kept as written, and in
sorts and scans, which read tensors from memory. After this pass kernels receive data only as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import PARAMETER, Program
from motet.compiler.passes.base import Pass
from motet.errors import CompileError


@dataclass(frozen=True)
class HoistConstants(Pass):
    """Adds to the program's parameters, under unused names."""

    name = "hoist-constants"

    def run(self, program: Program) -> bool:
        parameters = dict(program.parameters)
        changed = [_hoist(function, parameters) for function in public_functions(program.module)]
        program.parameters = parameters
        return any(changed)


def _hoist(function: ir.Operation, parameters: dict[str, np.ndarray]) -> bool:
    hoisted: dict[str, tuple[ir.Operation, list[ir.OpOperand]]] = {}
    for entry in function.regions[0].blocks[0].operations:
        operation = entry.operation
        if operation.name != "arith.constant" or not isinstance(operation.results[0].type, ir.RankedTensorType):
            continue
        is_splat = constant_number(operation) is not None
        uses = _uses_in_memory(operation) if is_splat else [*operation.results[0].uses]
        if is_splat and not uses:
            continue
        key = fresh_key("constant", parameters)
        parameters[key] = constant_array(operation.attributes["value"])
        hoisted[key] = operation, uses
    added = [(key, operation.results[0].type, operation.location) for key, (operation, _) in hoisted.items()]
    arguments = add_parameters(function, added)
    for (operation, uses), argument in zip(hoisted.values(), arguments, strict=True):
        for use in uses:
            use.owner.operation.operands[use.operand_number] = argument
        if not any(operation.results[0].uses):
            operation.erase()
    return bool(hoisted)


def fresh_key(name: str, parameters: Mapping[str, np.ndarray]) -> str:
    """An unused parameter key; users' constants may have any name."""
    number = len(parameters)
    while f"{name}_{number}" in parameters:
        number += 1
    return f"{name}_{number}"


def _uses_in_memory(operation: ir.Operation) -> list[ir.OpOperand]:
    """The uses of a constant that need it as a tensor in memory: not the one from which a scan begins."""
    return [
        use for use in operation.results[0].uses
        if use.owner.operation.name in ("func.call", "tm_tensor.sort")
        or (use.owner.operation.name == "tm_tensor.scan" and use.operand_number == 0)
    ]


def add_parameter(function: ir.Operation, kind: ir.Type, key: str, location: ir.Location) -> ir.Value:
    """Appends an argument to `function` that represents parameter `key`."""
    return add_parameters(function, [(key, kind, location)])[0]


def add_parameters(function: ir.Operation, added: Sequence[tuple[str, ir.Type, ir.Location]]) -> list[ir.Value]:
    """Appends arguments to `function` that represent parameters, each given by its key."""
    if not added:
        return []
    block = function.regions[0].blocks[0]
    known = len(block.arguments)
    attributes = (
        list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        if "arg_attrs" in function.attributes
        else [ir.DictAttr.get({})] * known
    )
    attributes += [ir.DictAttr.get({PARAMETER: ir.StringAttr.get(key)}) for key, _, _ in added]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    kinds = [*signature.inputs, *(kind for _, kind, _ in added)]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, signature.results))
    return [block.add_argument(kind, location) for _, kind, location in added]


def constant_array(attribute: ir.Attribute) -> np.ndarray:
    """The data of a dense constant, with its shape."""
    kind = ir.RankedTensorType(attribute.type)  # type: ignore[attr-defined]
    shape, name = tuple(kind.shape), str(kind.element_type)
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise CompileError(f"a constant of type {kind} that is not dense; expected dense<…> or dense_resource<…>")
    if name == "i1":
        return np.array([bool(value) for value in attribute], dtype=np.bool_).reshape(shape)
    if name in DTYPES and not isinstance(attribute, ir.DenseIntElementsAttr) and name not in ("f16", "f32", "f64"):
        numbers = printed_elements(str(attribute), DTYPES[name])
        return np.full(shape, numbers[0]) if attribute.is_splat else numbers.reshape(shape)
    return np.array(attribute, copy=True).reshape(shape)


def printed_elements(text: str, dtype: np.dtype[Any]) -> np.ndarray:
    """The elements of a dense attribute in MLIR's syntax, for types that the bindings do not support: all bytes in
    hexadecimal, or one by one as decimals or as bits."""
    body = text[text.index("<") + 1 : text.rindex("> :")]
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body[3:-1]), dtype)
    real = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    bits = np.dtype(f"u{real.itemsize}")
    for bracket in "[](),":
        body = body.replace(bracket, " ")
    elements = [
        np.array(int(word, 16), bits).view(real) if word.startswith("0x") else np.array(float(word)).astype(real)
        for word in body.split()
    ]
    return np.array(elements, real).view(dtype)
